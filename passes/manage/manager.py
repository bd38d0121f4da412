"""Passes and pipelines: their textual form, the checks around each pass, and the reproducer of a failed one."""

from __future__ import annotations

import dataclasses
import importlib
import os
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from mlcc import backends, plugins
from mlcc.errors import CompileError, Diagnostic, MlccError, did_you_mean, error, is_out_of_memory, render
from mlcc.ir.module import IRModule
from mlcc.ir.node import one_line
from mlcc.machine.target import Target
from mlcc.options.text import Item, format_item, parse_list
from mlcc.options.typed import Codes, describe_type, given_fields, is_kebab, kebab, typed_fields
from mlcc.passes import ALIASES, PASSES, is_pass, names
from mlcc.passes.manage.stages import BLOCKS, STEP, stage_of
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled

_CODES = Codes(unknown="E0502", value="E0503", missing="E0504")


@dataclass(frozen=True)
class PassContext:
    """The context of a pass, besides the module. Relative paths in options are resolved against `folder`.

    `confined` passes read no file outside `folder`: set if the pipeline comes from a text rather than a person.
    `builds`: code is generated from the result, which is not printed for people or other tools. If a lowering step
    cannot lower some functions, it then continues with the others: `failed` holds the findings by function, which end
    the pipeline after the last pass. `warned` holds the warnings of passes until observers receive them.
    """

    target: Target = field(default_factory=Target)
    folder: str = "."
    confined: bool = False
    builds: bool = False
    failed: dict[str, list[Diagnostic]] = field(default_factory=dict, compare=False)
    warned: list[Diagnostic] = field(default_factory=list, compare=False)

    def path(self, name: str) -> str:
        """Return the path of a file that an option names. Raise CompileError E0510 if the pipeline may not name it."""
        full = os.path.join(self.folder, name)
        if self.confined and not is_inside(self.folder, full):
            raise CompileError(error("E0510", f"{name} lies outside the folder of the text that names it"))
        return full


def is_inside(folder: str, path: str) -> bool:
    """Return True if a path, with links resolved, is a folder or lies below it."""
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root


@dataclass(frozen=True)
class Requirement:
    """A requirement on a pass's input, named after the pass that establishes it; `find` reports violations."""

    provider: str
    find: Callable[[IRModule], list[Diagnostic]]


@dataclass(frozen=True)
class Pass:
    """A transformation of a module. Its dataclass fields are its options; the docstring's first line is its summary.

    `run` returns a new module and does not change the one that it was given. A pass with `needs_blocks` only accepts
    modules whose PrimFuncs have blocks. Garbage collection is suspended meanwhile, since rewriting trees creates few
    cycles and looking for them takes a tenth of the time.
    """

    name: ClassVar[str] = ""
    needs_blocks: ClassVar[bool] = False
    requires: ClassVar[tuple[Requirement, ...]] = ()

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        raise NotImplementedError

    def __str__(self) -> str:
        return format_item(self.name, given_fields(self))


@dataclass(frozen=True)
class Pipeline:
    """A sequence of passes. `str()` prints what `Pipeline.parse` reads."""

    passes: tuple[Pass, ...] = ()

    @staticmethod
    def parse(text: str, source_name: str = "PIPELINE", target: str = "llvm") -> Pipeline:
        """Parse a pipeline. Raise CompileError (E0500 to E0504) listing everything that is wrong with the text.

        `O0` to `O3` stand for the passes of that level, `lower` for the steps that lower a module, both for the kind of
        `target`.
        """
        passes: list[Pass] = []
        errors: list[Diagnostic] = []
        groups = backends.get(target).groups
        for item in parse_list(text, source_name, "E0500"):
            group = None if item.options else groups.get(kebab(item.name))
            try:
                passes += [_parse_pass(item, target)] if group is None else Pipeline.parse(group, target=target).passes
            except CompileError as exc:
                errors += exc.diagnostics
        if errors:
            raise CompileError(errors)
        return Pipeline(tuple(passes))

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def __repr__(self) -> str:
        return f"<Pipeline {one_line(str(self))}>"

    def files(self) -> list[str]:
        """Return the files that options of the passes name."""
        named = ((p, f.name) for p in self.passes for f in fields(p) if f.metadata.get("file"))
        return [str(getattr(p, name)) for p, name in named if getattr(p, name)]


def pass_names(pipeline: str) -> list[str]:
    """Return the passes that the text of a pipeline names one by one, without those of named pipelines."""
    names = [kebab(item.name) for item in parse_list(pipeline, "PIPELINE", "E0500")]
    return [ALIASES.get(name, name) for name in names if name in PASSES or name in ALIASES]


def pass_class(name: str) -> type[Pass]:
    """Return the class of a pass by name or alias. Raise KeyError for an unknown one."""
    known = ALIASES.get(name, name)
    place = PASSES.get(known)
    if place is None:
        return _installed_pass(known)
    if isinstance(place, type):
        return place
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


def _installed_pass(name: str) -> type[Pass]:
    """Return the pass of an installed package. Raise KeyError for an unknown one, CompileError E0552 for a bad one."""

    def check(cls: object) -> str | None:
        problem = invalid_pass(cls)
        return problem or (f"calls itself `{cls.name}`" if cls.name != name else None)  # type: ignore[attr-defined]

    cls: type[Pass] | None = plugins.load_installed(plugins.PASSES, name, check)
    if cls is None:
        raise KeyError(name)
    return cls


def clashing_packages() -> list[tuple[str, str]]:
    """Return (name, package) for each entry point whose name is that of a pass of mlcc's."""
    entries = plugins.installed(plugins.PASSES)
    return [(name, plugins.owner(entry)) for name, entry in entries.items() if name in PASSES or name in ALIASES]


def invalid_pass(cls: object) -> str | None:
    """Return what is wrong with a class that should be a pass, to follow its name; None if nothing is."""
    if not isinstance(cls, type) or not issubclass(cls, Pass):
        return "is no subclass of mlcc.passes.Pass"
    if not is_kebab(cls.name):
        return f"needs a `name` of lower-case words with dashes, not {cls.name!r}"
    if cls.run is Pass.run:
        return "has no method `run`"
    params = cls.__dict__.get("__dataclass_params__")
    if params is None or not params.frozen:
        return "is no frozen dataclass: write @dataclass(frozen=True) above it"
    if any(option.name in ("name", "needs_blocks", "requires") for option in fields(cls)):
        return "has `name` or the like as an option: annotate it as ClassVar"
    try:
        hints = typing.get_type_hints(cls)
    except Exception as exc:  # noqa: BLE001 - whatever an annotation may raise
        return f"has an annotation that cannot be evaluated: {exc}"
    for option in fields(cls):
        if hints[option.name] is not typing.Any and describe_type(hints[option.name]) == "a value":
            return f"has an option `{option.name}` of a type that texts cannot give"
    return None


def _parse_pass(item: Item, target: str) -> Pass:
    """Return the pass that an item of a pipeline's text names. Raise CompileError."""
    name = kebab(item.name)
    if not is_pass(name):
        raise CompileError(_unknown_pass(item, target))
    cls = pass_class(name)
    return cls(**typed_fields(item, cls, _CODES, "pass"))


def _unknown_pass(item: Item, target: str) -> Diagnostic:
    """Return the error for an item that names neither a pass nor, without options, a group of the target."""
    name = kebab(item.name)
    groups = {group: backend.kind for backend in backends.registered_backends() for group in backend.groups}
    if name in groups and item.options:
        return error("E0502", f"`{name}` is a group of passes, which takes no options", item.name_span)
    if name in groups:
        message = f"`{name}` lowers for {groups[name]}, but the target is {target}"
        return error("E0546", message, item.name_span, help="run `lower`")
    help = no_pass_help(item.name, groups)
    return error("E0501", f"no pass `{item.name}`", item.name_span, help=help)


def no_pass_help(name: str, more: Iterable[str] = ()) -> str:
    """Return the help for a name that is none of a pass: the counterpart of a pass of TVM, or the nearest name."""
    from mlcc.passes.tvm_names import hint

    close = did_you_mean(kebab(name), [*names(), *ALIASES, *more])
    return hint(name) or close or "`mlcc passes --list` names them all"


def summary(name: str) -> str:
    """Return a one-line summary of a pass."""
    return (pass_class(name).__doc__ or "").strip().split("\n")[0]


def help_text(name: str) -> str:
    """Return the text of `mlcc passes --help-pass NAME`: docstring, options, names in TVM, aliases."""
    import inspect

    from mlcc.passes.tvm_names import names_in_tvm

    cls = pass_class(name)
    lines = [f"{cls.name}: {inspect.cleandoc(cls.__doc__ or '')}"]
    hints = typing.get_type_hints(cls)
    options = []
    for option in dataclasses.fields(cls):
        default = format_item("", [("", option.default)])[2:-1] if option.default is not dataclasses.MISSING else ""
        note = f" (default {default})" if default not in ("", '""') else ""
        suffix = ", required" if option.default is dataclasses.MISSING else note
        options.append(f"  {kebab(option.name)}: {describe_type(hints[option.name])}{suffix}")
    if options:
        lines += ["", "Options:", *options]
    in_tvm = names_in_tvm(cls.name)
    if in_tvm:
        lines += ["", f"In TVM: {', '.join(in_tvm)}."]
    others = [alias for alias, known in ALIASES.items() if known == cls.name]
    if others:
        lines += ["", f"Also known as {', '.join(others)}."]
    return "\n".join(lines)


class Observer:
    """An observer of a running pipeline. Every method is optional."""

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        """Called once, before the first pass."""

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        """Called before pass number `at`, counted from 0."""

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        """Called after pass number `at`; `before` is the module that it was given."""

    def warned(self, found: Diagnostic) -> bool:
        """Receive a warning of a pass; return True if it is shown.

        Warnings that no observer shows go to Python's `warnings`.
        """
        return False

    def finish(self) -> None:
        """Called once, after the last pass, also if one failed."""


def all_findings(failed: Mapping[str, Sequence[Diagnostic]]) -> list[Diagnostic]:
    """Return the findings on all functions without duplicates."""
    unique: list[Diagnostic] = []
    for findings in failed.values():
        unique += [finding for finding in findings if finding not in unique]
    return unique


class PassFailed(Exception):
    """A bug of mlcc inside the first of `passes` that run on `module`, or in code generation after all of them.

    `reproducer` is the path of a file with which `mlcc passes`, or `mlcc compile`, reproduces it.
    """

    def __init__(
        self, message: str, reproducer: str | None, module: IRModule, passes: Pipeline, target: str, *,
        in_code_generation: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.reproducer = reproducer
        self.module, self.passes, self.target = module, passes, target
        self.in_code_generation = in_code_generation
        if reproducer is not None:
            self.add_note(f"This is a bug in mlcc; {reproducer} shows it.")


def emit_warnings(warned: list[Diagnostic], observers: Sequence[Observer]) -> None:
    """Pass warnings to the observers, or to Python's `warnings`, and clear them."""
    for warning in warned:
        shown = [observer.warned(warning) for observer in observers]
        if not any(shown):
            warnings.warn(render(warning), stacklevel=2)
    warned.clear()


def run_pipeline(
    pipeline: Pipeline, module: IRModule, ctx: PassContext | None = None, observers: Sequence[Observer] = ()
) -> IRModule:
    """Return the module after all passes. Raises CompileError for faulty input, PassFailed for bugs of mlcc."""
    ctx = ctx or PassContext()
    try:
        for observer in observers:
            observer.start(pipeline, module)
        with deep_recursion(FRAMES_WITH_C):  # operators create deep expressions, as `R.concat` of 1,000 tensors
            for at, current in enumerate(pipeline.passes):
                module = _run_pass(pipeline, at, current, module, ctx, observers)
        if ctx.failed:
            raise CompileError(all_findings(ctx.failed))
    finally:
        for observer in observers:
            observer.finish()
    return module


def _run_pass(
    pipeline: Pipeline, at: int, current: Pass, module: IRModule, ctx: PassContext, observers: Sequence[Observer]
) -> IRModule:
    if current.needs_blocks and stage_of(module) != BLOCKS:
        message = f"`{current.name}` requires a module of {BLOCKS}, but this one has {stage_of(module)}"
        raise CompileError(
            error("E0545", message, help=f"run it before the steps of lowering, `{module.attrs.get(STEP)}`")
        )
    for requirement in current.requires:
        violations = requirement.find(module)
        if violations:
            help = f"run `{requirement.provider}` before `{current.name}`"
            raise CompileError([dataclasses.replace(d, help=d.help or help) for d in violations])
    for observer in observers:
        observer.before(at, current, module)
    functions_before = dict(module.functions)
    try:
        with gc_disabled():
            result = current.run(module, ctx)
        if not isinstance(result, IRModule):
            raise TypeError(f"`run` returned {type(result).__name__}, not a module")
        if functions_before != module.functions:  # functions compare by identity
            raise AssertionError(f"`{current.name}` changed the module that it was given")
        for observer in observers:
            observer.after(at, current, module, result)
        emit_warnings(ctx.warned, observers)
    except (MlccError, PassFailed, RecursionError, MemoryError):
        raise
    except (Exception, SystemExit) as exc:
        if is_out_of_memory(exc):
            raise
        foreign = plugins.failure(exc, f"pass `{current}` failed", type(current))
        if foreign is not None:
            raise foreign from exc
        from mlcc.passes.manage.reproducer import write_reproducer

        rest = Pipeline(pipeline.passes[at:])
        path = write_reproducer(module, rest, ctx, exc)
        message = f"pass `{current}` failed: {type(exc).__name__}: {exc}"
        raise PassFailed(message, path, module, rest, str(ctx.target)) from exc
    return result
