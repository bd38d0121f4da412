"""Options and argument handling that several commands share."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mlcc.passes.manage.levels import DEFAULT, MEANING, level_of

if TYPE_CHECKING:
    from mlcc.array_files import InputArrays
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.errors import Diagnostic
    from mlcc.frontend.request import Request
    from mlcc.runtime.executable import Executable


_TEMP_FILE_THRESHOLD = 1 << 28  # objects of at least this many bytes are loaded through a temporary file


class FiniteNumber(click.FloatRange):
    """A number within bounds; NaN, which compares with nothing, and infinities are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


TOLERANCE = FiniteNumber(0)
SECONDS = FiniteNumber(0, min_open=True)


def target_option(default: str) -> Callable[[Any], Any]:
    """`--target`, and `--fast-math` as a part of it."""
    target = click.option(
        "-t", "--target", metavar="TARGET", default=default, show_default=True, callback=_with_fast_math,
        help="The target, such as llvm{cpu=native}.",
    )  # fmt: skip
    fast = click.option(
        "--fast-math", is_flag=True, is_eager=True, expose_value=False, callback=_note_fast_math,
        help="Allow reassociation of floating-point arithmetic (llvm{fast-math=true}).",
    )  # fmt: skip
    return lambda command: target(fast(command))


def _note_fast_math(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta["fast_math"] = value


def _with_fast_math(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not ctx.meta.get("fast_math"):
        return value
    from dataclasses import replace

    from mlcc import backends
    from mlcc.machine.target import Target

    target = Target.parse(value)
    if not backends.of(target).regroups:
        able = " and ".join(b.kind for b in backends.registered_backends() if b.regroups)
        raise click.UsageError(f"--fast-math is for the target {able}, not {target.kind}")
    return str(replace(target, fast_math=True))  # type: ignore[call-arg]


def level_option(command: Any) -> Any:
    """Add `-O`; None if it is not given, see `levels.level_of`."""
    help = f"The optimization level: {MEANING} (default: {DEFAULT})."
    return click.option("-O", "level", metavar="0..3", type=click.IntRange(0, 3), help=help)(command)


def pipeline_option(command: Any) -> Any:
    return click.option(
        "-p",
        "--passes",
        "pipeline",
        metavar="PIPELINE",
        help="Run this pipeline instead of -O, such as 'fuse,lower-to-tir,fuse-tir'.",
    )(command)


def records_option(command: Any) -> Any:
    return click.option(
        "--db",
        metavar="FILE",
        help="Schedule kernels by this database of `mlcc tune`, and the others by the schedule rules.",
    )(command)


def extern_options(command: Any) -> Any:
    """Add the options that permit native code: external symbols and embedded LLVM IR. Both are off by default."""
    command = click.option(
        "--allow-extern", multiple=True, metavar="NAME", help="Let T.call_extern call this C symbol (besides libm)."
    )(command)
    return click.option(
        "--allow-native",
        is_flag=True,
        help="Compile LLVM IR embedded in the text (pragma_import_llvm). It runs with your rights.",
    )(command)


def warnings_option(command: Any) -> Any:
    return click.option(
        "--warnings", type=click.Choice(["on", "off", "error"]), default="on", show_default=True, expose_value=False,
        callback=lambda ctx, param, value: ctx.meta.__setitem__("warnings", value),
        help="Show warnings, hide them, or treat them as errors.",
    )(command)  # fmt: skip


def warnings_wanted() -> bool:
    """Return True if the command shows warnings or treats them as errors."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get("warnings", "off") != "off"


def warn(module: Any, target: str | None = None, more: Sequence[Diagnostic] = ()) -> bool:
    """Show warnings on a well-formed module, on compiling it for `target`, and `more`, on stderr.

    Return True if there are any. Raises CompileError with --warnings=error.
    """
    context = click.get_current_context(silent=True)
    mode = "off" if context is None else context.meta.get("warnings", "off")
    if mode == "off":
        return False
    from mlcc.machine.target import Target
    from mlcc.passes.lowering.stage import lowering_option_mismatch
    from mlcc.verify import lint

    otherwise = lowering_option_mismatch(module, Target.parse(target)) if target is not None else ()
    warnings = [*lint(module), *otherwise, *more]
    if warnings and context is not None:
        from dataclasses import replace

        from mlcc.cli.main import report
        from mlcc.cli.terminal import QUIET, verbosity
        from mlcc.errors import CompileError, Severity

        if mode == "error":
            raise CompileError([replace(d, severity=Severity.ERROR) for d in warnings])
        if verbosity() == QUIET:
            return True
        settings = context.find_root().obj or {}
        report(CompileError(warnings), settings.get("diagnostics", "text"), settings.get("color", "auto"))
    return bool(warnings)


def env_option(command: Any) -> Any:
    return click.option(
        "--env", "envs", multiple=True, metavar="FILE",
        help="Load packed functions from a .py or .so file. It runs with your rights: name only files you trust.",
    )(command)  # fmt: skip


def load_option(command: Any) -> Any:
    """Add `--load`, which runs files before anything else of the command; `main.run` unloads them."""
    return click.option(
        "--load", multiple=True, metavar="FILE", is_eager=True, expose_value=False, callback=_load_files,
        help="Load passes, operators and schedule rules from a Python file. It runs with your rights: name only files "
        "you trust. Repeatable.",
    )(command)  # fmt: skip


def _load_files(ctx: click.Context, param: click.Parameter, paths: tuple[str, ...]) -> None:
    if ctx.resilient_parsing:  # completing a line runs nothing
        return
    for path in paths:
        if path == "-":
            raise click.UsageError("--load takes the name of a file, not standard input")
        from mlcc.passes.manage.registry import load_file

        load_file(path)


def threads_option(command: Any) -> Any:
    return click.option(
        "--threads", type=click.IntRange(1), metavar="N",
        help="Threads for parallel loops, up to the number of cores (default: MLCC_NUM_THREADS, or all).",
    )(command)  # fmt: skip


_OPTIONAL_VALUES = ("--dump-after", "--dump-before", "--diff")


class CommandWithDumps(click.Command):
    """A command with `dump_options`, in which only `=` gives `--dump-after` a value, and the next word never does.

    So it is with `--diff` where the command has it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{w}=*" if w in _OPTIONAL_VALUES else w for w in args])


def dump_options(command: Any) -> Any:
    """Add the options that observe passes (`--time`, `--dump-*`); `dump_observers` takes the values."""
    command = click.option("--time", "timing", is_flag=True, help="Show the time of each pass on stderr.")(command)
    command = click.option(
        "--dump-dir", metavar="FOLDER", help="Dump into numbered files that can be parsed, instead of to stderr."
    )(command)
    return click.option(
        "--dump-after", metavar="[=PASS,..]", help="Show the module after these passes (bare: after each)."
    )(command)


def trace_option(help: str) -> Callable[[Any], Any]:
    """`--trace`, whose value `mlcc.cli.tracing.traced` takes."""
    return click.option("--trace", "trace_path", metavar="FILE", help=f"{help} Perfetto and chrome://tracing show it.")


def echo_stderr(part: str) -> None:
    """Write a line to stderr."""
    click.echo(part, err=True, nl=not part.endswith("\n"))


def dump_observers(
    before: str | None, after: str | None, folder: str | None, timing: bool, save: Callable[[str, str, str], None]
) -> list[Any]:
    """Return the observers for `dump_options` and `--dump-before`. `save` writes a file of `folder`.

    Raises CompileError E0501 for an unknown pass.
    """
    from mlcc.passes.manage import observers as looking

    observers: list[Any] = []
    if before is not None or after is not None or folder is not None:
        every = before is None and after is None  # --dump-dir alone
        earlier = () if before is None else looking.parse_names(before)
        later = None if every else () if after is None else looking.parse_names(after)
        observers.append(looking.Dump(echo_stderr, earlier, later, folder, save))
    if timing:
        observers.append(looking.Timing(echo_stderr))
    return observers


def force_option(command: Any) -> Any:
    return click.option(
        "--force",
        is_flag=True,
        help="Allow implicitly named files, such as FILE.npz beside -o FILE, to replace existing files.",
    )(command)


def model_options(command: Any) -> Any:
    """Add the options of model import; `model_request` takes the values."""
    for option in (
        click.option(
            "--map", "maps", multiple=True, metavar="FILE",
            help="Load converters for operators: CONVERTERS of a Python file. It runs with your rights.",
        ),
        click.option(
            "--allow-packed", is_flag=True,
            help="Import operators without a converter as packed functions, which `run --env` supplies (.pt2).",
        ),
        click.option(
            "--state-as-inputs", is_flag=True,
            help="Make buffers that the model changes, such as caches, parameters after the inputs (.pt2).",
        ),
        click.option("--dim", "dims", multiple=True, metavar="NAME:MIN..MAX", help="The range of a symbolic size."),
        click.option(
            "--shape", "shapes", multiple=True, metavar="NAME=N,...",
            help="The shape of an input with names for symbolic sizes: x=b,3,224,224, or with a range x=b:1..64,3.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def model_request(
    shapes: Sequence[str], dims: Sequence[str], maps: Sequence[str], allow_packed: bool, state_as_inputs: bool
) -> Request:
    """Return the import request for values of `model_options`. Raises CompileError."""
    from mlcc.frontend.request import Request, parse_ranges, parse_shapes
    from mlcc.frontend.source import load_converters

    stated, ranges = parse_shapes(shapes)
    converters = {key: value for path in maps for key, value in load_converters(path).items()}
    return Request(stated, parse_ranges(dims, ranges), converters, allow_packed, state_as_inputs)


def data_option(command: Any) -> Any:
    return click.option(
        "--data",
        metavar="FILE",
        help="The file for large constants, .npz or .safetensors (default: FILE.npz beside -o FILE).",
    )(command)


def check_data_option(data: str | None, output: str, dialect: str) -> None:
    """Raise UsageError for --data if the output cannot refer to it."""
    if data is not None and (output == "-" or dialect != "mlcc"):
        raise click.UsageError("--data needs -o FILE in mlcc's own dialect")


def pipeline_files(pipeline: str | None, target: str) -> list[str]:
    """Return the files that the passes of a pipeline read. Raises CompileError for errors in pipeline or target."""
    if pipeline is None or "{" not in pipeline:
        return []
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import Pipeline

    return Pipeline.parse(pipeline, "-p", Target.parse(target).kind).files()


def refuse_options(mode: str, others: Mapping[str, str]) -> None:
    """Raise UsageError for an option that has no effect with `mode`. `others` maps parameter names to options."""
    ctx = click.get_current_context()
    for name, option in others.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} cannot be combined with {mode}")


def refuse_artifacts(db: str | None, *paths: str) -> None:
    """Raise UsageError for --db with an artifact, whose kernels are already compiled."""
    compiled = [path for path in paths if is_artifact(path)]
    if db is not None and compiled:
        raise click.UsageError(f"--db is for texts: {compiled[0]} is already compiled")


def apply_threads(count: int | None) -> None:
    """Set the number of threads to the value of `--threads`, if it was given."""
    if count is not None:
        from mlcc.runtime.threads import set_num_threads

        set_num_threads(count)


def no_blas_threads() -> None:
    """Keep NumPy's BLAS from starting threads, unless the user asked for some. Must be called before NumPy loads.

    For commands that multiply no large matrices in Python: starting the threads takes longer than loading NumPy.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def is_artifact(path: str) -> bool:
    """Return True for an artifact that the runtime loads: by the suffix of its path, or the start of standard input."""
    from mlcc.outputs import KINDS

    if path != "-":
        return path.endswith(tuple(kind.suffix for kind in KINDS.values() if kind.runs))
    from mlcc.files import first_bytes
    from mlcc.runtime.loader import is_loadable

    return is_loadable(first_bytes(path, 4))


def artifact_source(path: str) -> str | bytes:
    """Return the source to load an artifact from: a path, or the content of standard input."""
    from mlcc.files import read_bytes

    return read_bytes(path) if path == "-" else path


def build_artifact(
    path: str,
    target: str,
    level: int | None,
    pipeline: str | None,
    allow_extern: tuple[str, ...] = (),
    allow_native: bool = False,
    prefix: str | None = None,
    sanitize: bool = False,
    told: list[str] | None = None,
    observers: Sequence[Any] = (),
    db: str | None = None,
    profile: bool = False,
    observe: bool = False,
    call: CallArguments | None = None,
) -> Any:
    """Compile a text file and show the warnings. Return the artifact.

    `told` gets the path if there were warnings. `observers` observe the passes; `db` is a database of tuned schedules.
    `profile` adds counters and an execution log, `observe` calls of an observer. `call` is checked before the passes.
    """
    from mlcc.cli.call_checks import CallCheck
    from mlcc.cli.progress import progress_shown
    from mlcc.driver import build
    from mlcc.frontend.source import read_module
    from mlcc.passes.manage.observers import Warnings

    module = read_module(path)
    noted = Warnings()
    with contextlib.nullcontext() if observers else progress_shown():  # observers write to the same terminal
        artifact = build(
            module,
            target=target,
            opt_level=level,
            pipeline=pipeline,
            prefix=prefix,
            allow_extern=allow_extern,
            allow_native=allow_native,
            sanitize=sanitize,
            observers=[*([] if call is None else [CallCheck(call)]), *observers, noted],
            db=db,
            profile=profile,
            observe=observe,
        )
    if warn(module, target, noted.found) and told is not None:
        told.append(path)
    return artifact


def build_object(
    path: str,
    target: str,
    level: int | None,
    pipeline: str | None,
    allow_extern: tuple[str, ...] = (),
    allow_native: bool = False,
    prefix: str | None = None,
    keep: bool = True,
    sanitize: bool = False,
    to_run: bool = False,
    db: str | None = None,
    profile: bool = False,
    observe: bool = False,
    call: CallArguments | None = None,
) -> Sequence[bytes | bytearray | memoryview]:
    """Return the object of a text file, or another loadable artifact of the target, in pieces.

    It comes from the cache if it is cached and `keep` is true; otherwise `call` is checked before the passes. Raises
    CompileError, with `to_run` also for a target whose artifacts the runtime does not load.
    """

    told: list[str] = []  # texts with warnings are not cached, so that the warnings are shown each time

    def make() -> Sequence[bytes | bytearray | memoryview]:
        if to_run:
            require_loadable(target)
        artifact = build_artifact(
            path, target, level, pipeline, allow_extern, allow_native, prefix, sanitize, told, db=db, profile=profile,
            observe=observe, call=call,
        )  # fmt: skip
        pieces: Sequence[bytes | bytearray | memoryview]
        pieces = artifact.pieces() if hasattr(artifact, "pieces") else [artifact.emit(artifact.loadable)]
        return pieces

    from mlcc import plugins
    from mlcc.cache.object_cache import cached_object, covers_target
    from mlcc.cli.terminal import VERBOSE, verbosity

    options = {
        "target": target, "level": level_of(level, sanitize), "pipeline": pipeline,
        "from": None if pipeline is None else os.getcwd(), "extern": sorted(allow_extern), "native": allow_native,
        "prefix": prefix, "sanitize": sanitize, "warnings": warnings_wanted(), "records": records_key(db),
        "plugins": plugins.state(), "profile": profile, "observe": observe,
    }  # fmt: skip
    if not keep or not covers_target(target):
        return make()
    is_made = False

    def make_now() -> Sequence[bytes | bytearray | memoryview]:
        nonlocal is_made
        is_made = True
        return make()

    code = cached_object(path, options, make_now, lambda: not told)
    if not is_made and verbosity() == VERBOSE:
        echo_stderr(f"{path}: compiled before, from the cache")
    return code


def records_key(db: str | None) -> list[Any] | None:
    """Return the part of a cache key for a database of tuned schedules: by content, whatever the file's name."""
    if db is None:
        return None
    from mlcc.records.database import Database
    from mlcc.runtime.threads import get_num_threads

    with Database(db, reads_only=True) as database:
        return [database.digest(), get_num_threads()]


def require_gpu(target: str, code: str) -> None:
    """Raise CompileError for a target that is not a GPU."""
    from mlcc import backends
    from mlcc.errors import CompileError, error

    if not backends.of(target).emulated:
        raise CompileError(error(code, f"`{target}` is not a GPU target", help="pass -t cuda, or -t cuda{arch=sm_80}"))


def require_loadable(target: str) -> None:
    """Raise CompileError for a target whose artifacts the runtime does not load."""
    from mlcc import backends
    from mlcc.errors import CompileError, error

    backend = backends.of(target)
    if not backend.loadable.runs:
        message = f"code for {backend.kind} is {backend.loadable.description}, which mlcc does not load"
        raise CompileError(error("E0850", message, help=f"write it to a file: mlcc compile -t {backend.kind}"))


def require_sanitized(path: str, source: str | bytes) -> None:
    """Raise CompileError for an artifact whose accesses are not checked."""
    from mlcc.errors import CompileError, error
    from mlcc.runtime.loader import read_manifest

    if not read_manifest(source)["source"].get("sanitize"):
        help = "run the text, or compile it with --sanitize"
        raise CompileError(
            error("E0736", f"{'standard input' if path == '-' else path} was compiled without --sanitize", help=help)
        )


def load_executable(
    path: str,
    target: str,
    level: int | None,
    pipeline: str | None,
    allow_extern: tuple[str, ...] = (),
    allow_native: bool = False,
    keep: bool = True,
    emulate: bool = False,
    check: bool = True,
    sanitize: bool = False,
    db: str | None = None,
    profile: bool = False,
    observe: bool = False,
    call: CallArguments | None = None,
) -> Executable:
    """Load an artifact file, or a text file compiled now or found in the cache.

    With `profile` a text's code has an execution log, with `observe` it calls an observer. `call` is checked before
    the passes of a text run.
    """
    from mlcc import backends
    from mlcc.loading import load

    if emulate:
        if is_artifact(path):  # which states its own target
            return load(artifact_source(path), allow_extern=allow_extern, emulate=True, check=check)
        require_gpu(target, "E0748")
        loadable = build_artifact(
            path, target, level, pipeline, allow_extern, allow_native, db=db, observe=observe, call=call
        )
        return load(loadable, allow_extern=allow_extern, emulate=True, check=check)
    if is_artifact(path):
        source = artifact_source(path)
        if sanitize:
            require_sanitized(path, source)
        return load(source, allow_extern=allow_extern)
    pieces = build_object(
        path, target, level, pipeline, allow_extern, allow_native, keep=keep, sanitize=sanitize, to_run=True, db=db,
        profile=profile and not backends.of(target).emulated,  # a launch plan can always be logged
        observe=observe, call=call,
    )  # fmt: skip
    if sum(map(len, pieces)) < _TEMP_FILE_THRESHOLD:
        loadable = b"".join(pieces)
        del pieces  # frees the constants
        return load(loadable, allow_extern=allow_extern)
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="mlcc-", suffix=".o") as file:  # the object is not twice in memory
        file.writelines(pieces)
        file.flush()
        return load(file.name, allow_extern=allow_extern)


def inputs_options(command: Any) -> Any:
    """Add the options for arguments: files, which `load_inputs` opens, and --random. `choose_inputs` takes both."""
    for option in (
        click.option("--ignore-extra", is_flag=True, help="Let files have arrays that the function does not take."),
        size_option,
        click.option(
            "--random", "is_random", is_flag=True,
            help="Random arrays for parameters that get none: floats from 0 to 1, integers 0 or 1, the same each time.",
        ),
        click.option(
            "--params", "weights", multiple=True, metavar="ARRAYS",
            help="Weights by the model's names: like --in, but arrays that the function does not take are ignored.",
        ),
        in_option("Arrays by parameter name"),
    ):  # fmt: skip
        command = option(command)
    return command


def in_option(what: str) -> Callable[[Any], Any]:
    """`--in`, whose values `load_inputs` opens."""
    return click.option(
        "--in", "inputs", multiple=True, metavar="[NAME=]FILE[:ARRAY]",
        help=f"{what}: .npz, .safetensors, an index of several, or a folder; or one array, from a .npy or by its name "
        "in the file. Repeatable.",
    )  # fmt: skip


def size_option(command: Any) -> Any:
    """`--size`, whose values `parse_symbol_sizes` reads."""
    return click.option(
        "--size", "sizes", multiple=True, metavar="NAME=N", help="What a symbol in shapes is, such as n=32."
    )(command)


def parse_symbol_sizes(texts: Sequence[str]) -> dict[str, int]:
    """The values of symbols that `--size` gives. Raises CompileError E0017."""
    from mlcc.errors import CompileError, error

    sizes = {}
    for part in (part for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        if not (name.isidentifier() and number.isascii() and number.isdigit()):
            raise CompileError(error("E0017", f"`{part}` does not name a size", help="write --size n=32"))
        sizes[name] = int(number)
    return sizes


def input_files(*groups: Sequence[str | None]) -> list[str]:
    """The paths in the values of --in and of options like it."""
    from mlcc.array_files import ArraySource

    return [ArraySource.parse(text).path for group in groups for text in group if text is not None]


def refuse_two_readers(*paths: str) -> None:
    """Raises UsageError if standard input is read for two purposes."""
    if paths.count("-") > 1:
        raise click.UsageError("standard input (-) can be read only once: name a file for the others")


def load_inputs(paths: Sequence[str], weights: Sequence[str] = ()) -> InputArrays:
    """The arrays of all files by name, read when they are asked for.

    Raises CompileError E0003 for an unreadable file, and E0004 if two files have an array of the same name.
    """
    from mlcc.array_files import ArraySource, InputArrays

    return InputArrays(
        *([file for text in given for file in ArraySource.parse(text).load()] for given in (paths, weights))
    )


def choose_inputs(
    callees: Sequence[Any], arrays: Mapping[str, Any], is_random: bool, sizes: Sequence[str],
    ignore_extra: bool = False, paths: Sequence[str] = (), stand_ins: bool = False,
) -> list[list[Any]]:  # fmt: skip
    """The arguments of a call of each function: arrays from files, and random ones for other parameters if that was
    asked for. An array is for all functions that have a parameter of its name. `paths` are the functions' files.
    With `stand_ins` random arrays are zeros that take no memory.

    Raises CompileError E0004, E0017, UsageError.
    """
    from mlcc.call_by_name import arguments_of_each

    if not is_random:
        if sizes:
            raise click.UsageError("--size says what --random makes: pass that, too")
        return arguments_of_each(callees, paths, arrays, ignore_extra)
    from mlcc.random_inputs import check_sizes, random_inputs

    known = parse_symbol_sizes(sizes)
    check_sizes(known, callees)
    return arguments_of_each(callees, paths, arrays, ignore_extra, lambda c: random_inputs(c, arrays, known, stand_ins))
