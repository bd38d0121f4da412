"""`mlcc bisect --reduce`: the program, the steps of its schedule and the arrays with which the same fails."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mlcc import plugins
from mlcc.errors import CompileError, error

if TYPE_CHECKING:
    from mlcc.bisect.search import Finding
    from mlcc.files import Content
    from mlcc.ir.module import IRModule
    from mlcc.outputs import Outputs
    from mlcc.passes.manage.manager import Pipeline
    from mlcc.reduce.outcomes import Run
    from mlcc.reduce.program import Program

_FIRST_SECONDS = 600  # for the program before it is reduced


@dataclass
class ReducedFiles:
    """The files that a reduction writes: the program, and beside it the script and the arrays if there are any.

    Standard output has no files beside it: it takes no script (CompileError E0012) and no arrays. Files that exist
    beside the program are not replaced without `--force`: CompileError E0013 says so before anything is run.
    """

    program: str
    outputs: Outputs
    has_script: bool
    has_arrays: bool
    script: str = field(init=False)
    arrays: str = field(init=False)

    def __post_init__(self) -> None:
        from mlcc.outputs import is_stream

        stem = os.path.splitext(self.program)[0]
        self.script, self.arrays = f"{stem}.mls", f"{stem}.in.npz"
        self.outputs.write_module(self.program, "--reduce", "mlcc", None)
        if is_stream(self.program):
            if self.has_script:
                help = "name a file: --reduce small.mlc"
                raise CompileError(error("E0012", f"{self.program} has no place for the script beside it", help=help))
            self.has_arrays = False
        beside = {self.script: (self.has_script, "script"), self.arrays: (self.has_arrays, "arrays")}
        for path, (is_wanted, kind) in beside.items():
            if not is_wanted:
                continue
            self.outputs.write(path, "--reduce", kind)
            if os.path.lexists(path) and not self.outputs.force:
                text = f"--reduce {self.program} writes {path}, too, which exists"
                raise CompileError(error("E0013", text, help="name another file, or pass --force"))

    def save(self, text: str, script: tuple[str, ...] | None, arrays: Mapping[str, Any]) -> None:
        """Write what there is: the program, the lines of the script, the arrays by name.

        An older file of arrays that `--force` would let this replace is removed if the program needs none.
        """
        from mlcc.array_files import arrays_content

        contents: dict[str, Content] = {self.program: text}
        if script is not None:
            contents[self.script] = "".join(f"{line}\n" for line in script)
        if arrays:
            contents[self.arrays] = arrays_content(self.arrays, arrays)
        self.outputs.save(contents)
        if self.has_arrays and not arrays and os.path.lexists(self.arrays):
            os.unlink(self.arrays)


def reduce_finding(
    finding: Finding, module: IRModule, passes: Pipeline, by_level: bool, run: Run, seconds: float, files: ReducedFiles
) -> None:
    """Reduce the program with the passes up to the culprit, and write it with the command that shows the failure.

    `passes` begin with the script if there is one, and are those of the level of `run` if `by_level` is set. The
    program is judged by random arrays; if they do not show the failure, by those that are given, where a parameter has
    their shape and dtype. Raises CompileError E0518 if neither shows it.
    """
    from mlcc.bisect.search import CODE, CRASH, RACE
    from mlcc.cli.reduction import describe, outcome_observer, program_text, reduce_and_save, tell
    from mlcc.reduce.outcomes import CHECKS, MACHINE_CODE, OK, PASSES

    judged = {CODE: MACHINE_CODE, CRASH: None, RACE: CHECKS}.get(finding.kind, PASSES)
    program = _program(finding, module, passes, by_level, run)
    asked = run.arrays
    given = asked if files.has_arrays else {}
    run = replace(run, judged_by=judged, arrays={})
    started = time.monotonic()
    outcome = outcome_observer(run)(program, _FIRST_SECONDS)
    if given:
        with_given = replace(run, arrays=given)
        started = time.monotonic()
        wanted = outcome_observer(with_given)(program, _FIRST_SECONDS)
        if wanted not in (OK, outcome):
            run, outcome = with_given, wanted
            tell("random arrays do not show it: those of --in stay as long as their shapes and dtypes do")
    took = time.monotonic() - started
    if outcome == OK:
        arrays = "random arrays, nor on those of --in" if given else "random arrays"
        help = "mlcc reduce --keep COMMAND takes a command that shows it"
        if len(given) < len(asked):
            help = f"name a file for --reduce in place of {files.program}, beside which arrays can be"
        raise CompileError(error("E0518", f"nothing fails on {arrays}", help=help))
    tell(f"reducing: {outcome}; {describe(program)}")

    def save(best: Program) -> None:
        arrays = _arrays(best, run)
        left_out = [name for name in run.arrays if name not in arrays]
        if left_out:
            names = ", ".join(f"`{name}`" for name in left_out)
            tell(f"without the arrays of --in for {names}: they have no place any more")
        files.save(program_text(best, outcome, _command(best, run, files, bool(arrays))), best.script, arrays)

    reduce_and_save(program, outcome_observer(run), outcome, took, seconds, save, files.program)


def _program(finding: Finding, module: IRModule, passes: Pipeline, by_level: bool, run: Run) -> Program:
    """Return the module with what is run on it: a script, and passes up to the one that is wrong."""
    from mlcc.bisect.search import CODE
    from mlcc.files import read_bytes
    from mlcc.grammar.syntax.reader import read_source
    from mlcc.reduce.program import Program

    at = len(passes.passes) if finding.kind == CODE else finding.at or 0
    chosen = passes.passes[:at]
    script = None
    if run.script_folder is not None and chosen:
        path = chosen[0].script  # type: ignore[attr-defined]
        script = tuple(read_source(read_bytes(path), path).text.splitlines())
        chosen = chosen[1:]
    texts = None if finding.kind == CODE and by_level else tuple(map(str, chosen))
    return Program(module, texts, script)


def _arrays(program: Program, run: Run) -> dict[str, Any]:
    """Return the given arrays that a program is judged by."""
    from mlcc.reduce.arguments import fitting, random_arguments

    if not run.arrays:
        return {}
    called = program.module[run.called(program.module)]
    return fitting(called, random_arguments(called, run.sizes)[0], run.arrays)


def _command(program: Program, run: Run, files: ReducedFiles, has_arrays: bool) -> list[str]:
    """Return the command that shows the failure, to be run beside the files."""
    from mlcc.reduce.arguments import symbol_names
    from mlcc.reduce.outcomes import Run

    usual = Run()
    words = ["mlcc", "bisect", os.path.basename(files.program)]
    words += [] if program.script is None else ["--script", os.path.basename(files.script)]
    words += ["--in", os.path.basename(files.arrays)] if has_arrays else []
    words += ["-t", run.target]
    name = run.called(program.module)
    words += [] if name == usual.func else ["--func", name]
    for symbol in symbol_names(program.module[name]):
        words += ["--size", f"{symbol}={run.sizes[symbol]}"] if symbol in run.sizes else []
    for option in ("rtol", "atol"):
        words += [f"--{option}", str(getattr(run, option))] if getattr(run, option) != getattr(usual, option) else []
    words += [] if program.passes is not None or run.level is None else ["-O", str(run.level)]
    return [*words, *(word for path in plugins.loaded_paths() for word in ("--load", path))]
