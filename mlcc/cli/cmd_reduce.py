"""`mlcc reduce model.mlc --keep crash`."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from mlcc.cli.options import (
    SECONDS,
    TOLERANCE,
    force_option,
    level_option,
    load_option,
    pipeline_option,
    size_option,
    target_option,
)

if TYPE_CHECKING:
    from mlcc.reduce.program import Program

_CODE = re.compile(r"E\d{4}")


@click.command("reduce")
@click.argument("file", metavar="FILE")
@click.option(
    "--keep", "wanted", metavar="WHAT",
    help="What the result must still do: `crash`, `differs`, a code such as E0341, or a shell command whose exit "
    "status stays as it is, with the file in place of {} or at its end (default: what compiling FILE does).",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", default="-", help="The file for the reduced text (default: stdout).")
@click.option("--script", "script_path", metavar="FILE", help="A schedule script to apply first, which is reduced too.")
@click.option("--script-output", metavar="FILE", help="The file for the reduced script.")
@load_option
@pipeline_option
@level_option
@target_option("llvm{cpu=native}")
@click.option("--func", default="main", show_default=True, metavar="NAME", help="With `differs`: the function to call.")
@size_option
@click.option(
    "--rtol",
    type=TOLERANCE,
    metavar="NUMBER",
    default=1e-4,
    show_default=True,
    help="With `differs`: the relative tolerance.",
)
@click.option(
    "--atol",
    type=TOLERANCE,
    metavar="NUMBER",
    default=1e-5,
    show_default=True,
    help="With `differs`: the absolute tolerance.",
)
@click.option("--time", "seconds", type=SECONDS, default=120.0, show_default=True, metavar="SECONDS",
              help="The time after which the smallest text so far is the result.")  # fmt: skip
@force_option
def command(
    file: str, wanted: str | None, output: str, script_path: str | None, script_output: str | None,
    pipeline: str | None, level: int | None, target: str, func: str, sizes: tuple[str, ...], rtol: float, atol: float,
    seconds: float, force: bool,
) -> int:  # fmt: skip
    """Reduce FILE to a small text that still fails in the same way.

    Functions, bindings, blocks, loops, sizes, dtypes, passes and lines of a script are left out or made simpler, as
    long as the program is valid and the failure is the same: the same code of an error, a crash at the same place of
    mlcc, results that differ from those of the interpreter, or the same exit status of a command. Each candidate is
    tried in a process of its own. Ctrl-C ends the search and writes the smallest text so far.

    The passes of -p that the failure needs are written into the text, where `mlcc passes` and `mlcc reduce` find them;
    so are those of the files that mlcc writes when it fails.
    """
    from mlcc.cli.options import parse_symbol_sizes
    from mlcc.cli.reduction import describe, outcome_observer, reduce_and_save, tell
    from mlcc.driver import parse_with_passes
    from mlcc.files import read_bytes
    from mlcc.grammar.syntax.reader import read_source
    from mlcc.outputs import Outputs
    from mlcc.reduce.outcomes import MACHINE_CODE, Run
    from mlcc.reduce.program import Program

    is_command = wanted is not None and wanted not in ("crash", "differs") and not _CODE.fullmatch(wanted)
    if is_command and (script_path or pipeline is not None):
        raise click.UsageError("a command of --keep says itself what is run: leave out --script and -p")
    if (script_path is None) != (script_output is None):
        raise click.UsageError("--script and --script-output belong together")
    outputs = Outputs(force, watch=True)
    outputs.read(file, script_path)
    outputs.write_module(output, "-o", "mlcc", None)
    outputs.write(script_output, "--script-output", "script")
    outputs.check()
    module, asked = parse_with_passes(file)
    if pipeline is None and not is_command:
        pipeline = asked
    passes = None if pipeline is None else _pass_texts(pipeline, target)
    script = None if script_path is None else tuple(read_source(read_bytes(script_path), script_path).text.splitlines())
    program = Program(module, passes, script)
    folder = "." if script_path is None else os.path.dirname(script_path) or "."
    run = Run(
        target,
        level,
        MACHINE_CODE if wanted == "differs" else None,
        func,
        rtol,
        atol,
        parse_symbol_sizes(sizes),
        folder,
    )

    with tempfile.TemporaryDirectory(prefix="mlcc-reduce-") as scratch:
        observe = _command_observer(str(wanted), scratch) if is_command else outcome_observer(run)
        started = time.monotonic()
        outcome = observe(program, seconds)
        took = time.monotonic() - started
        _require(outcome, wanted, is_command, file)
        tell(f"{file}: {outcome}; {describe(program)}")
        command_line = str(wanted) if is_command else None

        def save(best: Program) -> None:
            outputs.save({output: _text(best, outcome, command_line), **_script(best, script_output)})

        reduce_and_save(program, observe, outcome, took, seconds, save, output)
    return 0


_NOT_RUN = ("exit status 126", "exit status 127")  # of a shell that may not run a command, or does not find it


def _pass_texts(pipeline: str, target: str) -> tuple[str, ...]:
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import Pipeline

    return tuple(map(str, Pipeline.parse(pipeline, "-p", Target.parse(target).kind).passes))


def _command_observer(line: str, scratch: str) -> Callable[[Program, float], str]:
    from mlcc.reduce.outcomes import command_status

    path = os.path.join(scratch, "candidate.mlc")

    def observe(program: Program, seconds: float) -> str:
        with open(path, "w", encoding="utf-8") as file:
            file.write(program.module.script())
        return command_status(line, path, seconds)

    return observe


def _require(outcome: str, wanted: str | None, is_command: bool, file: str) -> None:
    """Raise CompileError E0518 if the program does not do what is to be kept."""
    from mlcc.errors import CompileError, did_you_mean, error
    from mlcc.reduce.outcomes import CRASH, DIFFERS, OK

    if is_command and outcome in _NOT_RUN:
        hint = did_you_mean(str(wanted), (CRASH, DIFFERS)) or f"name a command, or {CRASH}, {DIFFERS} or a code"
        raise CompileError(error("E0518", f"the shell cannot run `{wanted}` ({outcome})", help=hint))
    is_as_wanted = outcome != OK if wanted is None else is_command or outcome.startswith(wanted)
    if not is_as_wanted:
        what = "nothing fails" if outcome == OK else f"it is another failure: {outcome}"
        expected = "a failure" if wanted is None else f"a {CRASH}" if wanted == CRASH else f"`{wanted}`"
        help = "pass the options of the command that failed (-t, -O, -p), or a command: --keep 'mlcc run --random'"
        raise CompileError(error("E0518", f"{file} does not show {expected}: {what}", help=help))


def _text(program: Program, outcome: str, command: str | None) -> str:
    lines = [f"# {outcome}" + ("" if command is None else f" of {command}")]
    if program.passes is not None:
        lines.insert(0, f"# PASSES: {','.join(program.passes)}")
    return "\n".join(" ".join(line.split()) for line in lines) + "\n" + program.module.script()


def _script(program: Program, path: str | None) -> dict[str, str]:
    return {} if path is None else {path: "\n".join(program.script or ()) + "\n"}
