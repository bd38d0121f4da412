"""The compiler driver, from text to artifact: reading, passes, building, writing. Shared by command line and API."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, Diagnostic, MlccError, Severity, error, is_out_of_memory, merge_repeated
from mlcc.ir.module import Func, IRModule
from mlcc.ir.relax import Function
from mlcc.ir.tir import PrimFunc
from mlcc.recursion import gc_disabled

if TYPE_CHECKING:
    import numpy as np

    from mlcc.array_files import ArrayFile
    from mlcc.files import Content
    from mlcc.grammar.printer.writer import Style
    from mlcc.ir import relax
    from mlcc.ir.tensor_data import TensorData
    from mlcc.machine.target import Target
    from mlcc.outputs import Outputs
    from mlcc.passes.manage.manager import Observer, Pipeline
    from mlcc.targets.artifact import Artifact


# ---------------------------------------------------------------- reading and writing


def parse_file(path: str) -> IRModule:
    """Parse the module in a file; `-` is standard input. Raises CompileError."""
    from mlcc.files import read_bytes
    from mlcc.grammar.syntax.reader import decode

    folder = None if path == "-" else os.path.dirname(path) or "."
    return parse_text(decode(read_bytes(path), path), path, folder)


def parse_with_passes(path: str) -> tuple[IRModule, str | None]:
    """Parse the module in a file, and the passes that its `# PASSES:` asks for. Raises CompileError."""
    from mlcc.files import read_bytes
    from mlcc.grammar.syntax.reader import decode
    from mlcc.passes.manage.reproducer import directive

    text = decode(read_bytes(path), path)
    return parse_text(text, path, os.path.dirname(path) or "."), directive(text)


def parse_text(text: str, name: str, folder: str | None = None) -> IRModule:
    """Parse a module. Its constants may be in NAME.npz or NAME.safetensors in `folder`. Raises CompileError."""
    from mlcc.grammar.parser import parse
    from mlcc.progress import working

    with working("read"):
        return parse(text, name=name, folder=None if name == "-" else folder)


def write_module(
    module: IRModule, path: str, dialect: str = "mlcc", *, data: str | None = None, outputs: Outputs | None = None,
    more: Mapping[str, Content] | None = None, style: Style | None = None, files: Sequence[ArrayFile] = (),
    apart: Mapping[str, TensorData] | None = None,
) -> None:  # fmt: skip
    """Write the text of a module. Large constants go into FILE.npz beside it, or into the text itself on stdout.

    A file begins with the version of the text, `# mlc 1`; standard output, pipes and TVM's dialect have none.

    `data` names another file for them, .npz or .safetensors, in the folder of the text or below. On a terminal they are
    elided. `outputs` has the other inputs and outputs of the command; `more` are further files to write. `style` adds
    comments to the canonical text. Constants that are arrays of `files` stay there if `data` is not given and the text
    may refer to those files. `apart` are arrays stored beside the text that it does not refer to.
    Raises CompileError.
    """
    from mlcc.array_files import SUFFIXES, arrays_content
    from mlcc.grammar.constants import data_file_line, is_inside_folder, stored_arrays
    from mlcc.grammar.printer.printer import script, script_and_data
    from mlcc.grammar.printer.writer import CANONICAL
    from mlcc.grammar.syntax.version import with_version
    from mlcc.outputs import Outputs, contains_arrays, is_stream, ownership_comment

    outputs = outputs or Outputs()
    if is_stream(path) and data is None or dialect != "mlcc":
        elided = path == "-" and sys.stdout is not None and sys.stdout.isatty()
        outputs.save({**(more or {}), path: script(module, dialect, not elided, style or CANONICAL)})
        return
    text, tensors = script_and_data(module, style or CANONICAL)
    near = [file for file in files if data is None and is_inside_folder(file.path, path)]
    own, used = _split_by_file(near, stored_arrays(tensors))
    beside, _ = _split_by_file(files if data is None else [], stored_arrays(apart or {}))
    arrays = {**own, **beside}
    contents: dict[str, Content] = {}
    places = [os.path.splitext(path)[0] + suffix for suffix in SUFFIXES]
    if data is not None:
        contents[data] = arrays_content(data, arrays, ownership_comment(path))
    elif arrays:
        contents |= outputs.constants_file(places[0], arrays, path, lambda old: contains_arrays(old, arrays))
    used += [data or places[0]] if own else []
    there = {os.path.normpath(p) for p in places if os.path.lexists(p) or p in contents}
    if tensors and there != {os.path.normpath(p) for p in used}:
        text += "".join(data_file_line(p, path) for p in used)
    outputs.save({**(more or {}), **contents, path: text if is_stream(path) else with_version(text)})


def _split_by_file(
    files: Sequence[ArrayFile], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the arrays that none of the files holds, and the paths of the files that hold the others."""
    holder = {key: file for file in files for key, array in arrays.items() if file.holds(key, array)}
    left = {key: array for key, array in arrays.items() if key not in holder}
    return left, list(dict.fromkeys(file.path for file in holder.values()))


# ---------------------------------------------------------------- passes


def run_passes(
    mod: IRModule, passes: str | Pipeline, *, target: str | Target = "llvm", folder: str = ".",
    observers: Sequence[Observer] = (), verify_each: bool = True, builds: bool = False,
) -> IRModule:  # fmt: skip
    """Run a pipeline such as "fuse,lower-to-tir,fuse-tir" on a module. Return the new module; `mod` is not changed.

    Paths in the pipeline are relative to `folder`. `builds`: code will be generated from the result. Raises
    CompileError for errors in the module or the pipeline.
    """
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import PassContext, Pipeline, run_pipeline
    from mlcc.passes.manage.observers import VerifyEach

    where = Target.parse(target)
    pipeline = Pipeline.parse(passes, target=where.kind) if isinstance(passes, str) else passes
    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"passes are a text such as 'fuse,lower-to-tir', or a Pipeline, not {type(passes).__name__}")
    looking = [*([VerifyEach()] if verify_each else []), *observers]
    return run_pipeline(pipeline, _module_of(mod), PassContext(where, folder, builds=builds), looking)


def _module_of(mod: object) -> IRModule:
    """The module that is given, or that of a function. Raises TypeError for anything else, with what makes one."""
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (PrimFunc, Function)):
        return IRModule.from_expr(mod)
    what = f"a module is expected, not {mod!r:.60}"
    if isinstance(mod, (str, os.PathLike)):
        raise TypeError(f"{what}: read it, mlcc.parse(Path({os.fspath(mod)!r}))")
    if hasattr(mod, "forward") or hasattr(mod, "graph_module"):
        help = "mlcc.frontend.from_exported_program(torch.export.export(model, inputs))"
        raise TypeError(f"a module is expected, not a model of PyTorch ({type(mod).__name__}): import it, {help}")
    raise TypeError(f"{what}: mlcc.parse(text) makes one")


# ---------------------------------------------------------------- building


@gc_disabled()
def build(
    mod: IRModule | Func, target: str | Target = "llvm", opt_level: int | None = None,
    pipeline: str | Pipeline | None = None, *, prefix: str | None = None, allow_extern: Sequence[str] = (),
    allow_native: bool = True, sanitize: bool = False, observers: Sequence[Observer] = (), db: str | None = None,
    profile: bool = False, debug_lines: bool = False, observe: bool = False,
) -> Artifact:  # fmt: skip
    """Compile a module (or a single function) for a target.

    Runs the pipeline of `-O<opt_level>` (0 to 3; default 2, or 1 with `sanitize`), or `pipeline` if it is given, then
    generates code. `prefix` starts the exported C symbols; `allow_extern` names the C functions besides libm's that the
    module may call; `allow_native` permits embedded LLVM IR (`pragma_import_llvm`). With `sanitize` every access of a
    PrimFunc is checked, and parallel loops run serially; an invalid access ends the call with an error. `observers`
    observe the passes. `db` is a database of `mlcc tune`, whose schedules take precedence over the schedule rules
    (`apply-tuned`). With `profile` the code counts and logs the time of each kernel (`mlcc bench --profile`,
    `mlcc run --trace`); with `observe` it calls an observer after each one (`mlcc run --check-nan`). With `debug_lines`
    code says which lines of the module's text it comes from: `.loc` in assembly and PTX, `#line` in C. Raises
    CompileError.
    """
    from mlcc import backends
    from mlcc.backends import BuildOptions
    from mlcc.machine.target import Target
    from mlcc.passes.manage.levels import level_of
    from mlcc.progress import working
    from mlcc.runtime import settings
    from mlcc.verify import check

    settings.check("MLCC_CACHE", "MLCC_CACHE_DIR", "MLCC_CACHE_SIZE", "MLCC_JOBS")
    module = _module_of(mod)
    where = Target.parse(target)
    backend = backends.of(where)
    if opt_level is not None and not (isinstance(opt_level, int) and 0 <= opt_level <= 3):
        raise ValueError(f"opt_level must be 0 to 3, not {opt_level!r}")
    level = level_of(opt_level, sanitize)
    with working("verify"):
        check(module, build=True)
    if sanitize and not backend.sanitizing:
        emulating = f"emulation checks its accesses: mlcc run -t {where.kind} --emulate"
        help = emulating if backend.emulated else None
        raise CompileError(error("E0736", f"code for {where.kind} cannot be sanitized", help=help))
    if profile and where.kind != "llvm":
        help = f"profile it with the tools of {where.kind}, or for this CPU: -t 'llvm{{cpu=native}}'"
        raise CompileError(error("E0876", f"code for {where.kind} has no counters", help=help))
    if observe and not (backend.loadable.runs):
        help = "observe it on this CPU, -t 'llvm{cpu=native}', or emulated: -t cuda --emulate"
        raise CompileError(error("E0876", f"code for {where.kind} cannot be observed", help=help))
    passes = build_pipeline(module, where, level, pipeline, sanitize, db)
    if db is not None:
        _warn_unused_records(passes, db, observers)
    try:
        looking = [
            _build_verifier(module, where, pipeline is None and not backend.passes and not VERIFY_EACH),
            *observers,
        ]
        lowered = run_passes(module, passes, target=where, observers=looking, verify_each=False, builds=True)
    except CompileError as exc:
        if any(
            d.code == "E0444" for d in exc.diagnostics
        ):  # report the operators that no later pass would lower as well
            raise CompileError([*exc.diagnostics, *_operators_without_lowering(module)]) from None
        raise
    try:
        _check_operators(lowered)
        options = BuildOptions(
            prefix, level, str(passes), tuple(allow_extern), allow_native, profile, debug_lines, observe
        )
        with working("generate code", contains_others=True):
            return backend.compile(lowered, where, options)
    except (MlccError, RecursionError, MemoryError):
        raise
    except Exception as exc:
        if is_out_of_memory(exc):
            raise
        from mlcc.passes.manage.manager import PassContext, PassFailed, Pipeline
        from mlcc.passes.manage.reproducer import write_reproducer

        path = write_reproducer(lowered, Pipeline(), PassContext(where), exc, f"mlcc compile FILE -t '{where}' -p ''")
        message = f"generating code for {where} failed: {type(exc).__name__}: {exc}"
        raise PassFailed(message, path, module, passes, str(where), in_code_generation=True) from exc


VERIFY_EACH = False  # also verify after every pass of the -O pipelines; tests set it


def _build_verifier(module: IRModule, target: Target, once: bool) -> Observer:
    """Return an observer that verifies a build's module: after each pass except the steps of lowering, or once."""
    from mlcc import backends
    from mlcc.passes.manage.levels import SCHEDULING
    from mlcc.passes.manage.observers import VerifyEach, VerifyOnce

    backend = backends.of(target)
    steps = {*backend.lowering, *backend.sanitizing}
    each = VerifyEach(input_too=False, skipped=steps)
    if not once:
        return each
    return VerifyOnce(
        {*SCHEDULING, *steps},
        lambda some: run_passes(module, some, target=target, observers=[each], verify_each=False, builds=True),
    )


def build_pipeline(
    module: IRModule, target: Target, opt_level: int, pipeline: str | Pipeline | None, sanitize: bool = False,
    db: str | None = None,
) -> Pipeline:  # fmt: skip
    """Return the passes of a build: `pipeline`, or that of the level, followed by the remaining lowering passes.

    A partly lowered module continues where it stands; sanitized code has its own lowering passes. With `db`, the
    schedules of that database are applied before the schedule rules. Raises CompileError for an invalid pipeline.
    """
    from mlcc import backends
    from mlcc.passes.lowering.stage import remaining_steps, with_lowering
    from mlcc.passes.manage.manager import Pipeline
    from mlcc.passes.manage.stages import BLOCKS, stage_of

    remaining_steps(module, target.kind)  # raises if the module cannot be compiled for the target
    if pipeline is None:
        pipeline = backends.of(target).level_pipeline(opt_level) if stage_of(module) == BLOCKS else ""
    passes = Pipeline.parse(pipeline, target=target.kind) if isinstance(pipeline, str) else pipeline
    if db is not None:
        passes = insert_apply_tuned(passes, db, opt_level)
    if sanitize:  # one version of checked code is enough
        passes = Pipeline(tuple(one for one in passes.passes if one.name != "version-kernels"))
    return with_lowering(passes, module, target.kind, sanitize)


def insert_apply_tuned(passes: Pipeline, db: str, opt_level: int) -> Pipeline:
    """Insert the pass `apply-tuned` before those that schedule by rules. A pipeline without any is unchanged."""
    from mlcc.passes.auto_schedule.apply_tuned import ApplyTuned
    from mlcc.passes.manage.levels import SCHEDULING
    from mlcc.passes.manage.manager import Pass, Pipeline

    extended: list[Pass] = []
    for one in passes.passes:
        if one.name in SCHEDULING and not any(before.name in SCHEDULING for before in extended):
            extended.append(ApplyTuned(db, level=opt_level))
        extended.append(one)
    return Pipeline(tuple(extended))


def _warn_unused_records(passes: Pipeline, db: str, observers: Sequence[Observer]) -> None:
    """Warn (W1103) about a database that no pass uses."""
    from mlcc.passes.manage.manager import emit_warnings

    if not any(one.name == "apply-tuned" for one in passes.passes):
        help = "kernels are scheduled at -O2 and -O3, by pipelines with `auto-schedule`, before they are lowered"
        warning = error("W1103", f"{db} is not used: no pass schedules kernels here", help=help)
        emit_warnings([replace(warning, severity=Severity.WARNING)], observers)


def _check_operators(module: IRModule) -> None:
    """Raise CompileError E0509 for operators that were not lowered."""
    from mlcc.targets.plan.calls import NATIVE_OPERATORS

    wrong = _unlowered_operators(module, NATIVE_OPERATORS)
    if wrong:
        raise CompileError(wrong)


def run_compiled(module: IRModule, func: str, arrays: list[Any]) -> list[Any]:
    """Compile a module without optimization for this machine, with checked accesses, and call one of its functions."""
    from mlcc.passes.manage.levels import OPERATORS
    from mlcc.passes.manage.stages import BLOCKS, stage_of
    from mlcc.runtime.loader import load

    pipeline = OPERATORS if stage_of(module) == BLOCKS else ""
    artifact = build(module, "llvm{cpu=native}", pipeline=pipeline, allow_native=False, sanitize=True)
    return load(artifact)[func](*arrays)  # type: ignore[no-any-return]


def run_emulated(target: str | Target, module: IRModule, func: str, arrays: list[Any]) -> list[Any]:
    """Run the remaining lowering passes of a GPU target on a module, and call one of its functions by emulation.

    No code is generated for the GPU.
    """
    from mlcc import backends
    from mlcc.backends import BuildOptions
    from mlcc.loading import load
    from mlcc.machine.target import Target
    from mlcc.verify import check

    where = Target.parse(target)
    check(module, build=True)
    passes = build_pipeline(module, where, 2, "")
    lowered = run_passes(module, passes, target=where, verify_each=False, builds=True)
    _check_operators(lowered)
    options = BuildOptions(pipeline=str(passes), allow_native=False, only_emulated=True)
    artifact = backends.of(where).compile(lowered, where, options)
    return load(artifact, emulate=True)[func](*arrays)  # type: ignore[no-any-return]


def _operators_without_lowering(module: IRModule) -> list[Diagnostic]:
    """Return E0509 diagnostics for operators that have no lowering at all."""
    from mlcc import ops
    from mlcc.targets.plan.calls import NATIVE_OPERATORS

    known = map(ops.get, ops.names())
    lowered = {op.short for op in known if op is not None and (op.impl.lower or op.impl.expand)}
    return _unlowered_operators(module, {*NATIVE_OPERATORS, *lowered})


def _unlowered_operators(module: IRModule, native: Collection[str]) -> list[Diagnostic]:
    """Return E0509 diagnostics for the operators in functions reachable from public ones, except those in `native`.

    There is one per operator and reason, with its first location, its number of uses, their lines, and a hint."""
    from mlcc.ir import relax, tir
    from mlcc.passes.graph.dead_code import keep_reachable
    from mlcc.relax.queries import all_bindings

    public = {name for name, func in module.functions.items() if not func.is_private}
    findings = []
    for func in keep_reachable(module, public).functions.values():
        for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) else ():
            value = binding.value  # type: ignore[attr-defined]
            if isinstance(value, relax.Call) and isinstance(value.op, tir.Op):
                short = value.op.name.removeprefix("relax.")
                if short not in native:
                    span = value.span or binding.span
                    findings.append(
                        error("E0509", f"`R.{short}` cannot be lowered", span, help=_lowering_hint(short, value))
                    )
    return merge_repeated(findings)


def _lowering_hint(short: str, call: relax.Call) -> str:
    """Return a hint for a call that was not lowered: the reason, or the way to lower it."""
    from mlcc import ops
    from mlcc.ops.shapes import shapes_known

    known = ops.get(short)
    if known is None or known.impl.lower is None:
        return "this operator has no lowering: replace it by a packed function with R.call_dps_packed"
    return (
        "run `lower-to-tir` first, or use -O2"
        if shapes_known(call)
        else ("its shapes are not known: state them with R.match_cast")
    )
