"""Completion in shells: names of files, targets, passes, codes and functions.

click writes the script for the shell (`_MLCC_COMPLETE=bash_source mlcc`) and asks each parameter for its values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, split_arg_string

Completer = Callable[[click.Context, str], Iterable[str]]


def add_values(command: click.Command) -> None:
    """Let the parameters of a command complete their values."""
    for param in command.params:
        if isinstance(param.type, click.Choice) or (isinstance(param, click.Option) and param.is_flag):
            continue
        param.shell_complete = _complete(param)  # type: ignore[assignment]


def _complete(param: click.Parameter) -> Callable[[click.Context, str], list[CompletionItem]]:
    """Return the completer of a parameter: by its name, else files or folders if its metavar names those."""
    known = VALUES.get(param.name or "")
    metavar = param.make_metavar(click.Context(click.Command("")))
    kind = "dir" if "FOLDER" in metavar else "file" if re.search("FILE|ARRAYS", metavar) else None

    def complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if known is not None:
            return [CompletionItem(word) for word in known(ctx, incomplete) if word.startswith(incomplete)]
        return [] if kind is None else [CompletionItem(incomplete, type=kind)]

    return complete


def targets(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Kinds of targets, usual ones, and tags."""
    from mlcc.machine.tags import TAGS
    from mlcc.machine.target import KINDS

    return [*KINDS, "llvm{cpu=native}", *(f"cuda{{arch=sm_{n}}}" for n in (75, 80, 86, 89, 90, 100)), *TAGS]


def passes(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Pipelines with one more pass."""
    from mlcc.passes import ALIASES, names

    start = incomplete[: incomplete.rfind(",") + 1]
    return [start + name for name in (*names(), *ALIASES, "O0", "O1", "O2", "O3", "lower")]


def pass_names(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Names of passes."""
    from mlcc.passes import ALIASES, names

    return [*names(), *ALIASES]


def topics(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Topics and codes that `mlcc explain` explains."""
    from mlcc.codes import codes
    from mlcc.reference import pages

    return [*pages.topics(), *sorted(codes())]


def help_topics(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Commands and topics, for `mlcc help`."""
    from mlcc.cli.main import COMMANDS

    return [*COMMANDS, *topics(ctx, incomplete)]


def outputs(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """The values of `mlcc compile --emit`."""
    from mlcc import backends

    return dict.fromkeys(kind.name for backend in backends.registered_backends() for kind in backend.outputs)


def functions(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Functions of the files on the line: of a text by its lines, of an artifact by its manifest."""
    from mlcc.cli.options import is_artifact
    from mlcc.errors import MlccError
    from mlcc.files import read_bytes
    from mlcc.runtime.loader import read_manifest

    found: dict[str, None] = {}
    for path in filter(os.path.isfile, split_arg_string(os.environ.get("COMP_WORDS", ""))):
        try:
            if is_artifact(path):
                found.update(dict.fromkeys(read_manifest(path)["functions"]))
            else:
                text = read_bytes(path).decode(errors="replace")
                found.update(dict.fromkeys(re.findall(r"^\s*def\s+(\w+)", text, re.MULTILINE)))
        except MlccError:
            continue  # the command will say what is wrong with it
    return found


VALUES: dict[str, Completer] = {
    "target": targets, "pipeline": passes, "help_pass": pass_names, "topics": topics, "topic": help_topics,
    "emit": outputs, "func": functions,
}  # fmt: skip
