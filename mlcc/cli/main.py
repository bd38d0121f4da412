"""The `mlcc` command: dispatches to subcommands, and maps exceptions to messages and exit codes.

Only click is imported at the top, so that `mlcc --help` starts fast.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

import mlcc
from mlcc.cli import signals
from mlcc.codes.exit_codes import EXIT_CODES, SIGNALS
from mlcc.errors import MachineError, MlccError, NotFiniteError, is_out_of_memory
from mlcc.temporaries import remove_temporaries

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_INPUT, EXIT_USAGE, EXIT_DIFFERENT, EXIT_MACHINE, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 6, 70, 130

COMPLETION = "_MLCC_COMPLETE"  # the variable by which a shell asks for completions
_FLAGS_ANYWHERE = ("-q", "--quiet", "-v", "--verbose")  # options of `mlcc` that may stand behind the command
# name -> one line of help; the module mlcc.cli.cmd_NAME is imported only when the command runs
COMMANDS = {
    "analyze": "Report the memory accesses of GPU kernels, by emulation, or the ranges of tensors.",
    "bench": "Time functions inside native code, with interleaved samples.",
    "bisect": "Find the pass, the change and the kernel that make results wrong.",
    "cache": "Show or empty the cache of compiled objects.",
    "check": "Parse and verify; print nothing if there is no error.",
    "compile": "Compile a module to an object, assembly, LLVM IR or a shared library.",
    "diff": "Compare two modules, or two artifacts, and show what differs.",
    "doctor": "Check the installation, the machine and artifacts, and say how to mend faults.",
    "explain": "Explain an operator, a pass, a primitive, an option, or a diagnostic code.",
    "fmt": "Format a text; comments are kept.",
    "graph": "Draw the graph of a model as a picture (SVG), or write it for Graphviz.",
    "help": "Show the help of a command, or explain a topic.",
    "import": "Import a model of PyTorch or ONNX as text.",
    "inspect": "Show the manifest of an artifact.",
    "lsp": "Serve an editor: findings, hover, completion, formatting.",
    "ops": "List the operators, with their parameters.",
    "passes": "Run passes over a module and print the result.",
    "reduce": "Reduce a text that fails to a small one that still fails.",
    "report": "Report how a module was compiled: graphs, kernels, schedules, memory, assembly.",
    "run": "Run a function of a module or artifact on arrays from files.",
    "schedule": "Apply a schedule script to a module and print the result.",
    "tune": "Search for faster schedules of a module's kernels, by measuring.",
    "upgrade": "Rewrite files of an older mlcc, or an older dialect, in today's form.",
}
BLAS_COMMANDS = (
    "analyze",
    "bench",
    "import",
    "passes",
    "report",
    "run",
)  # commands that may multiply large matrices in NumPy, or decide it themselves


_EPILOG = f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}; {SIGNALS}."


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if name not in BLAS_COMMANDS:
            from mlcc.cli.options import no_blas_threads

            no_blas_threads()
        command: click.Command = importlib.import_module(f"mlcc.cli.cmd_{name}").command
        command.epilog = command.epilog or _EPILOG
        if COMPLETION in os.environ:
            from mlcc.cli.completion import add_values

            add_values(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, none of which is imported for that, or the options in front of them."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=help) for name, help in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take -q and -v wherever they stand before a `--`."""
        end = args.index("--") if "--" in args else len(args)
        moved = [word for word in args[:end] if word in _FLAGS_ANYWHERE]
        return super().parse_args(ctx, [*moved, *(w for w in args[:end] if w not in _FLAGS_ANYWHERE), *args[end:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from mlcc.cli.usage import command_hint

            ctx.fail(f"no such command `{args[0]}`; {command_hint(args[0], tuple(COMMANDS))}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(mlcc.__version__, "-V", "--version", prog_name="mlcc")
@click.option("-q", "--quiet", is_flag=True, help="Show errors and results only: no warnings, no progress.")
@click.option("-v", "--verbose", is_flag=True, help="Show each piece of work of a compilation, and what it took.")
@click.option(
    "--diagnostics",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    help="How errors and warnings are written to stderr, anywhere on the line: JSON has a line for each, SARIF is one "
    "document.",
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto",
              help="Colour in messages (auto: on a terminal; NO_COLOR and FORCE_COLOR are heeded).")  # fmt: skip
@click.pass_context
def cli(ctx: click.Context, quiet: bool, verbose: bool, diagnostics: str, color: str) -> None:
    """Compile tensor programs written as text (.mlc) and run them.

    A FILE of `-` is standard input. Results go to standard output unless -o is given, so that commands can be piped.
    """
    if quiet and verbose:
        raise click.UsageError("give either --quiet or --verbose")
    ctx.obj = {"diagnostics": diagnostics, "color": color, "verbosity": verbose - quiet}
    if ctx.invoked_subcommand != "doctor":  # which reports invalid variables
        from mlcc.runtime import settings

        settings.check()


def report(problem: MlccError, style: str = "text", color: str = "auto") -> None:
    """Write the diagnostics of an error to stderr."""
    from mlcc.cli import reports

    reports.write(problem.diagnostics, style, color)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with the documented code. SIGINT, SIGTERM and SIGHUP end it within a second."""
    _prepare_streams()
    try:
        with signals.watched():
            code = run(sys.argv[1:] if argv is None else argv)
    except signals.Stopped as exc:
        remove_temporaries()
        signals.print_message(exc.number)
        code = signals.exit_code(exc.number)
    _drop_failing_output()
    sys.exit(code)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code. Never raises, even if standard streams fail."""
    argv, settings = _settings(argv)
    try:
        try:
            return _run_and_finish(argv, settings)
        except Exception as exc:
            if not is_out_of_memory(exc):
                raise
        return _out_of_memory_again(settings)  # outside the handler, which keeps what the failing frames hold
    except (OSError, ValueError):  # standard error is full or closed, so nothing can be reported
        return EXIT_INPUT
    finally:
        if "mlcc.plugins" in sys.modules:
            sys.modules["mlcc.plugins"].unload_all()


def _run_and_finish(argv: list[str], settings: dict[str, str]) -> int:
    code = _run(argv, settings)
    if settings["style"] == "sarif":
        from mlcc.cli import reports

        reports.finish("sarif")
    return code


def _run(argv: list[str], settings: dict[str, str]) -> int:
    try:
        result = cli.main(args=argv, prog_name="mlcc", standalone_mode=False, complete_var=COMPLETION)
        _flush()
        return result if isinstance(result, int) else 0
    except MlccError as exc:
        report(exc, **settings)
        _show_cause(exc)
        if isinstance(exc, NotFiniteError):
            return EXIT_DIFFERENT
        return EXIT_MACHINE if isinstance(exc, MachineError) else EXIT_INPUT
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.ClickException as exc:
        _show_usage(exc, argv, settings)
        return EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader of the output has gone: not an error, but Python would report it again at exit
        _drop_output()
        return 0
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        _drop_output()  # click found that the reader has gone, and wrapped standard output
        return 0
    except RecursionError:
        return _too_deep(settings)
    except Exception as exc:  # noqa: BLE001 - the last resort: an internal error, with a reproducer
        if is_out_of_memory(exc):
            return _out_of_memory(settings)
        if hasattr(exc, "mlcc_packed"):  # an exception of a registered packed function
            from mlcc.runtime.packed import packed_function_error

            report(packed_function_error(exc), **settings)  # type: ignore[arg-type]
            return EXIT_INPUT
        if "mlcc.plugins" in sys.modules:
            foreign = sys.modules["mlcc.plugins"].failure(exc)
            if foreign is not None:
                foreign.__cause__ = exc
                report(foreign, **settings)
                _show_cause(foreign)
                return EXIT_INPUT
        if isinstance(exc, OSError):
            return _report_system_error(exc, settings)
        return _report_bug(exc, argv)


# ---------------------------------------------------------------- standard streams


_OUTPUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def _prepare_streams() -> None:
    """Prepare the standard streams: reopen closed descriptors, so that no later file takes their numbers.

    Text is UTF-8 whatever the locale; messages escape characters that cannot be encoded.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(
                os.devnull, os.O_WRONLY if number == 0 else os.O_RDONLY
            )  # takes the lowest free number; using it fails
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8" if stream is sys.stdout else None, errors=errors)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _flush_error() -> OSError | None:
    """Flush standard output. Return the error if that fails; None also for a closed pipe."""
    try:
        _flush()
    except BrokenPipeError:
        return None
    except OSError as exc:
        return exc
    return None


def _report_system_error(exc: OSError, settings: dict[str, str]) -> int:
    """Report a system error, such as a full standard output, and return the exit code."""
    failed = _flush_error()
    if failed is not None or (exc.filename is None and exc.errno in _OUTPUT_ERRNOS):
        _drop_output()
        what = f"cannot write standard output: {(failed or exc).strerror or exc}"
        return _fail("E0002", what, "it is full or closed, and the output is incomplete", settings)
    what = "an operating system call failed" if exc.filename is None else f"cannot access {exc.filename}"
    return _fail("E0002", f"{what}: {exc.strerror or exc}", None, settings)


def _drop_failing_output() -> None:
    """Drop buffered output that cannot be written. It has been reported; Python would fail once more at exit."""
    if _flush_error() is not None:
        _drop_output()


def _drop_output() -> None:
    """Redirect standard output to the null device, which drops buffered and later output."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
    except (OSError, ValueError, AttributeError):
        return


def _out_of_memory(settings: dict[str, str]) -> int:
    return _fail("E0016", "out of memory", "raise the limit, or split the module", settings)


def _out_of_memory_again(settings: dict[str, str]) -> int:
    """Report that memory ran out where it also ran out for the report of a failure."""
    try:
        return _out_of_memory(settings)
    except (MemoryError, ImportError):
        os.write(2, b"error[E0016]: out of memory\n")
        return EXIT_INPUT


def _fail(code: str, message: str, help: str | None, settings: dict[str, str]) -> int:
    from mlcc.errors import CompileError, error

    report(CompileError(error(code, message, help=help)), **settings)
    return EXIT_INPUT


# ---------------------------------------------------------------- errors


_ANYWHERE = {"--diagnostics": "style", "--color": "color"}


def _settings(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """The line with the options that shape messages in front of the command, and their values.

    They may stand anywhere before `--`, and are read before click does, so that early errors obey them too.
    """
    settings = {"style": "text", "color": "auto"}
    front: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif option in _ANYWHERE:
            given = value if equals else next(words, None)
            front += [option] if given is None else [option, given]
            settings[_ANYWHERE[option]] = given or ""
        else:
            rest.append(word)
    return front + rest, settings


def _show_usage(exc: click.ClickException, argv: list[str], settings: dict[str, str]) -> None:
    """Report wrong usage: in click's words and with a hint as text, as a diagnostic otherwise."""
    from mlcc.cli import usage
    from mlcc.errors import CompileError

    if settings["style"] in ("json", "sarif"):
        report(CompileError(usage.as_diagnostic(exc, argv)), **settings)
        return
    exc.show()
    hint = usage.usage_hint(exc, argv)
    if hint is not None:
        click.echo(f"  help: {hint}", err=True)


def _show_cause(exc: MlccError) -> None:
    """Print the traceback of an exception of code from outside (`--load`), if MLCC_TRACEBACK asks for it."""
    plugins = sys.modules.get("mlcc.plugins")
    if plugins is not None and isinstance(exc, plugins.PluginError) and exc.__cause__ is not None:
        import traceback

        from mlcc.runtime.settings import is_on

        if is_on("MLCC_TRACEBACK"):
            traceback.print_exception(exc.__cause__)


def _too_deep(settings: dict[str, str]) -> int:
    return _fail("E0007", "the program is nested too deeply", "split it into functions", settings)


def _report_bug(exc: Exception, argv: list[str]) -> int:
    """Report an internal error, and the place where the traceback and the command were saved."""
    import shlex
    import tempfile
    import traceback

    path = getattr(exc, "reproducer", None)
    if path is None:
        text = f"mlcc {shlex.join(argv)}\n\n{''.join(traceback.format_exception(exc))}"
        try:
            with tempfile.NamedTemporaryFile("w", prefix="mlcc-bug-", suffix=".txt", delete=False) as file:
                file.write(text)
                path = file.name
        except OSError:
            click.echo(text, err=True)
            path = "the text above"
    click.echo(f"mlcc: internal error: {type(exc).__name__}: {exc}\nThis is a bug in mlcc; {path} shows it.", err=True)
    reduced = _reduce_bug(exc)
    if path.endswith(".mlc") and reduced is None:
        click.echo(f"For a small program that shows it: mlcc reduce {shlex.quote(path)} --keep crash", err=True)
    from mlcc.runtime.settings import is_on

    if is_on("MLCC_TRACEBACK"):
        traceback.print_exception(exc)
    return EXIT_BUG


def _reduce_bug(exc: Exception) -> str | None:
    """Write a small program that fails likewise, for a failure of a pass or of code generation; return its path."""
    manager = sys.modules.get("mlcc.passes.manage.manager")
    if manager is None or not isinstance(exc, manager.PassFailed):
        return None
    from mlcc.cli.auto_reduce import reduce_failure
    from mlcc.plugins import loaded_paths
    from mlcc.reduce.outcomes import CODE_GENERATION, CRASH, Run

    passes = tuple(map(str, exc.passes.passes))
    command = ["mlcc", "passes", "FILE", "-t", exc.target]
    if exc.in_code_generation:
        command = ["mlcc", "compile", "FILE", "-t", exc.target, "-p", "PASSES", "-o", os.devnull]
    command += [word for path in loaded_paths() for word in ("--load", os.path.abspath(path))]
    run = Run(exc.target, judged_by=CODE_GENERATION if exc.in_code_generation else None)
    return reduce_failure(exc.module, passes if exc.in_code_generation else passes[:1], run, command, sought=CRASH)
