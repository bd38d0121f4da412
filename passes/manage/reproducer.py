"""Reproducers of bugs in passes: a file with the module before the pass and the rest of the pipeline, ready to run."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import tempfile
import traceback
from typing import TYPE_CHECKING

from mlcc import plugins
from mlcc.ir.module import IRModule

if TYPE_CHECKING:
    from mlcc.passes.manage.manager import Pass, PassContext, Pipeline

_DIRECTIVE = re.compile(r"#\s*PASSES:(.*)")


def directive(text: str) -> str | None:
    """Return the pipeline in a `# PASSES: fuse,lower-to-tir` line among the comments that start a text, or None."""
    for line in text.splitlines():
        match = _DIRECTIVE.match(line.strip())
        if match:
            return match[1].strip()
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return None


def write_reproducer(
    module: IRModule, pipeline: Pipeline, ctx: PassContext, exc: BaseException, command: str | None = None
) -> str | None:
    """Write a reproducer to the folder for temporary files and return its path; None if even that fails.

    `command` is the command that reproduces the bug, by default the passes for the same target.
    """
    loads = "".join(f" --load {shlex.quote(os.path.abspath(path))}" for path in plugins.loaded_paths())
    command = (command or f"mlcc passes FILE -t '{ctx.target}'") + loads
    try:
        text = module.script()
        handle, path = tempfile.mkstemp(prefix="mlcc-bug-", suffix=".mlc")
        passes = type(pipeline)(tuple(_copy_option_files(p, ctx, path) for p in pipeline.passes))
        trace = "".join(traceback.format_exception(exc)).rstrip().splitlines()
        notes = "\n".join(f"#   {line}" for line in trace)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"# PASSES: {passes}\n# {command.replace('FILE', path)}\n{notes}\n{text}")
    except Exception:  # noqa: BLE001 - reporting a bug must not hide it behind another
        return None
    return path


def _copy_option_files(current: Pass, ctx: PassContext, beside: str) -> Pass:
    """Return the pass with the files that its options name copied beside the reproducer, whose folder confines it."""
    changes = {}
    for option in dataclasses.fields(current):
        value = getattr(current, option.name)
        if option.metadata.get("file") and value:
            name = f"{beside.removesuffix('.mlc')}-{os.path.basename(value)}"
            with open(os.path.join(ctx.folder, value), "rb") as source, open(name, "wb") as copy:
                copy.write(source.read())
            changes[option.name] = os.path.basename(name)
    return dataclasses.replace(current, **changes)
