"""Observers of a running pipeline: dumps, differences, times, verification."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mlcc.errors import CompileError, Diagnostic, Severity, error
from mlcc.ir.module import Func, IRModule
from mlcc.options.typed import kebab
from mlcc.passes import ALIASES, is_pass
from mlcc.passes.manage.manager import Observer, Pass, Pipeline, no_pass_help

_DUMP = "# --- "
DATA_LIMIT = 1 << 20  # most bytes of constants in a dump

Write = Callable[[str], None]


def dump_text(module: IRModule) -> str:
    """Return the module as a text that parses; large constants are referenced by name."""
    from mlcc.grammar.printer.printer import script
    from mlcc.ir import relax
    from mlcc.ir.node import walk

    total = 0
    for func in module.functions.values():
        for node in walk(func):
            total += node.data.nbytes if isinstance(node, relax.Constant) else 0
    return script(module, data=total <= DATA_LIMIT)


@dataclass
class Dump(Observer):
    """Write the module before or after passes, fenced by `# --- after fuse`, or as numbered files in `folder`.

    `names_before` and `names_after` select passes; None selects every pass.
    """

    write: Write
    names_before: Collection[str] | None = ()
    names_after: Collection[str] | None = ()
    folder: str | None = None
    save: Callable[[str, str, str], None] | None = None  # called with the path, the text, and the prefix of every dump

    def __post_init__(self) -> None:
        self.names_before = _canonical_names(self.names_before)
        self.names_after = _canonical_names(self.names_after)

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if self.names_before is None or current.name in self.names_before:
            self._dump(at, "before", current, module)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if self.names_after is None or current.name in self.names_after:
            self._dump(at, "after", current, module)

    def _dump(self, at: int, phase: str, current: Pass, module: IRModule) -> None:
        text = dump_text(module)
        if self.folder is None:
            self.write(f"# --- {phase} {current.name}\n{text}")
            return
        from mlcc.files import make_folder, write_atomic

        make_folder(self.folder)
        path = os.path.join(self.folder, f"{at + 1:02}-{phase}-{current.name}.mlc")
        text = f"{_DUMP}{phase} {current}\n{text}"
        if self.save is None:
            write_atomic(path, text)
        else:
            self.save(path, text, _DUMP)


def _canonical_names(names: Collection[str] | None) -> set[str] | None:
    return None if names is None else {ALIASES.get(kebab(n), kebab(n)) for n in names}


@dataclass
class Diff(Observer):
    """Write the changes of each pass, function by function, as a unified diff of texts.

    Passes in a row that change nothing share a line: `# --- unchanged by normalize, fuse`. `names` selects passes; None
    selects every pass.
    """

    write: Write
    names: Collection[str] | None = None
    _idle: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = _canonical_names(self.names)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if self.names is not None and current.name not in self.names:
            return
        import difflib

        from mlcc.grammar.printer.printer import function_lines

        lines: list[str] = []
        for name in dict.fromkeys([*before, *module]):
            old, new = before.functions.get(name), module.functions.get(name)
            if old is not new:
                left, right = ([] if func is None else function_lines(name, func) for func in (old, new))
                lines += difflib.unified_diff(left, right, f"{name} before", f"{name} after", lineterm="")
        if not lines:
            self._idle.append(current.name)
            return
        self._write_idle()
        self.write("\n".join([f"# --- changed by {current.name}", *lines]) + "\n")

    def finish(self) -> None:
        self._write_idle()

    def _write_idle(self) -> None:
        if self._idle:
            self.write(f"# --- unchanged by {', '.join(self._idle)}\n")
            self._idle.clear()


@dataclass
class Timing(Observer):
    """Write the time of each pass at the end."""

    write: Write
    clock: Callable[[], float] = time.perf_counter
    spent: list[tuple[str, float]] = field(default_factory=list)
    _started: float = 0.0

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        self._started = self.clock()

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self.spent.append((current.name, self.clock() - self._started))

    def finish(self) -> None:
        total = sum(seconds for _, seconds in self.spent)
        self.write("\n".join(time_rows([*self.spent, ("all passes", total)])) + "\n")


def time_rows(spent: Sequence[tuple[str, float]]) -> list[str]:
    """Return a line for each name: its milliseconds, and their share of the last entry, which is the total."""
    total = spent[-1][1]
    return [f"{1e3 * s:10.2f} ms  {100 * s / total if total else 0:5.1f} %  {name}" for name, s in spent]


_SIZE_ERRORS = ("E0355", "E0447", "E0448", "E0492")  # errors that derived sizes can reveal


@dataclass
class VerifyEach(Observer):
    """Verify the module before the first pass, where a violation is the user's, and after each, where it is a bug.

    `input_too` is False if the caller has verified the input. Passes in `skipped` are not followed by a verification.
    Impossible `match_cast`s and sizes, and out-of-bounds accesses, that only derived sizes reveal are the user's at any
    time.
    """

    input_too: bool = True
    skipped: Collection[str] = ()
    _verified: Mapping[str, Func] = field(default_factory=dict)  # the functions of the module that was verified last

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        errors = violations(module) if self.input_too else []
        if errors:
            raise CompileError(errors)
        self._verified = dict(module.functions)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if current.name not in self.skipped and module.functions != before.functions:  # functions compare by identity
            errors = violations(module, self._verified)
            if any(d.code not in _SIZE_ERRORS for d in errors):
                raise IllFormed(errors)
            if errors:
                raise CompileError(errors)
            self._verified = dict(module.functions)


@dataclass
class VerifyOnce(Observer):
    """Verify the module once, before the first of the passes `until` or at the end, instead of after each pass.

    For pipelines of mlcc's own, whose passes its tests verify one by one. After a violation, `each` reruns the passes
    with a verification after each, so that the culprit is named.
    """

    until: Collection[str]
    each: Callable[[Pipeline], object]
    _pipeline: Pipeline = Pipeline()
    _input: IRModule | None = None

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self._pipeline, self._input = pipeline, module

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if current.name in self.until:
            self._verify(at, module)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if at + 1 == len(self._pipeline.passes):
            self._verify(at + 1, module)

    def _verify(self, at: int, module: IRModule) -> None:
        if self._input is None:
            return
        errors = violations(module) if module.functions != self._input.functions else []
        self._input = None
        if errors:
            self.each(Pipeline(self._pipeline.passes[:at]))
            raise IllFormed(errors)


def violations(module: IRModule, verified: Mapping[str, Func] | None = None) -> list[Diagnostic]:
    """Return the errors that the verifier finds; warnings do not count, nor functions that were `verified` before."""
    from mlcc.verify import verify

    return [d for d in verify(module, verified) if d.severity is Severity.ERROR]


@dataclass
class Warnings(Observer):
    """Collect the warnings of passes."""

    found: list[Diagnostic] = field(default_factory=list)

    def warned(self, found: Diagnostic) -> bool:
        self.found.append(found)
        return True


class IllFormed(Exception):
    """A pass produced a module that violates a rule of the IR."""

    def __init__(self, errors: list[Diagnostic]) -> None:
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in errors[:4]))


def parse_names(text: str) -> list[str] | None:
    """Parse the pass names of `--dump-after=fuse,fuse-tir`; return None for the bare option (every pass).

    Raise CompileError for an unknown name.
    """
    if text in ("", "*"):
        return None
    names = [n for n in re.split(r"[,\s]+", text) if n]
    unknown = [n for n in names if not is_pass(kebab(n))]
    if unknown:
        raise CompileError([error("E0501", f"no pass `{n}`", help=no_pass_help(n)) for n in unknown])
    return [kebab(n) for n in names]
