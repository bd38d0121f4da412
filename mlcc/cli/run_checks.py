"""What `mlcc run` does around the call of a function: log it, look at its tensors, compare its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.errors import MlccError
    from mlcc.report.trace_events import Trace

    Call = Callable[[Any, Any, Any], Any]  # of a function of an executable, with arguments


def logging(call: Call, path: str, trace: Trace) -> Call:
    """Return a call that adds what the execution log has to a trace, also if it fails.

    It raises CompileError E0876 for an artifact without a log.
    """

    def logged(exe: Any, callee: Any, arguments: Any) -> Any:
        from mlcc.report.run_trace import add_execution

        log = exe.execution_log()
        if log is None:
            raise not_measurable(path, "has no execution log", "trace")
        trace.when_written(lambda: add_execution(trace, log))
        try:
            with trace.span(f"call {callee.name}"):
                return call(exe, callee, arguments)
        finally:
            log.detach()

    return logged


def checking_nan(call: Call, path: str, allow_infinity: bool) -> Call:
    """Return a call that raises NotFiniteError at the first kernel which makes a NaN or an infinity.

    What it looked at is said on stderr. It raises CompileError E0876 for an artifact that was not built for that.
    """

    def checked(exe: Any, callee: Any, arguments: Any) -> Any:
        import numpy as np

        from mlcc.cli.options import echo_stderr
        from mlcc.report.nan_check import NanCheck, describe_bad
        from mlcc.runtime import observer

        sites = observer.sites(exe.manifest)
        if sites is None:
            raise not_measurable(path, "does not show its tensors", "check")
        check = NanCheck(sites, allow_infinity, texts_of(site.file for site in sites))
        for param, array in zip(callee.spec.params, arguments, strict=False):
            if isinstance(array, np.ndarray) and not check.is_good(array):
                echo_stderr(f"note: the argument `{param.name}` has {describe_bad(array)}")
        with observer.observing(check):
            result = call(exe, callee, arguments)
        what = "a NaN" if allow_infinity else "a NaN or an infinity"
        echo_stderr(f"check-nan: none of {check.calls} calls of kernels makes {what} out of inputs without")
        return result

    return checked


def texts_of(paths: Iterable[str | None]) -> dict[str, str]:
    """Return the texts of files that can be read."""
    texts = {}
    for path in dict.fromkeys(p for p in paths if p is not None):
        with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    return texts


def not_measurable(path: str, why: str, to: str) -> MlccError:
    """Return the error for an artifact that a text should be named in place of."""
    from mlcc.errors import CompileError, error

    text = f"{path} is compiled already, and {why}"
    return CompileError(error("E0876", text, help=f"{to} the text that it was compiled from: FILE.mlc"))


class Comparison:
    """A comparison of a function's results with those of a reference (`mlcc.frontend.reference_run`)."""

    def __init__(self, kind: str, path: str) -> None:
        """Raises CompileError E1077 where there is no reference."""
        from mlcc.cli.options import is_artifact
        from mlcc.errors import CompileError, error
        from mlcc.frontend.reference_run import INTERPRETER, reference_run

        if kind == INTERPRETER and is_artifact(path):
            text = f"{path} is compiled already: the interpreter runs texts"
            raise CompileError(error("E1077", text, help="run the text that it was compiled from: FILE.mlc"))
        self.kind = kind
        self.name, self._run = reference_run(kind, path)
        self._callee: Any = None
        self._arguments: list[Any] = []
        self._results: list[Any] = []

    def keeping_arguments(self, call: Call) -> Call:
        """Return a call whose arguments and results are kept for the comparison."""

        def kept(exe: Any, callee: Any, arguments: Any) -> Any:
            import numpy as np

            from mlcc.cli.cmd_run import flatten

            given = callee.signature.with_fresh_outputs(arguments) if callee.written_names else list(arguments)
            self._arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
            self._callee = callee
            result = call(exe, callee, arguments)
            self._results = [np.array(a) for a in flatten(result)]
            return result

        return kept

    def show(self, rtol: float, atol: float, output: str | None) -> bool:
        """Run the reference, and print the differences; on stderr if results go to stdout. Return True if all pass."""
        import click

        from mlcc.cli.cmd_run import flatten, result_names
        from mlcc.frontend.reference_run import INTERPRETER
        from mlcc.ir.dtypes import DType
        from mlcc.outputs import is_stream
        from mlcc.report.numeric_difference import decoded, numeric_difference, rows

        callee = self._callee
        returned = self._run(callee.name, self._arguments)
        written = callee.written_names
        if written and self.kind == INTERPRETER:
            pairs = zip(callee.spec.params, self._arguments, strict=True)
            expected = [array for param, array in pairs if param.name in written]
        else:
            expected = flatten(tuple(returned))
        leaves = [p for p in callee.spec.params if p.name in written] if written else callee.spec.results.leaves()
        dtypes = [DType.of(leaf.dtype or "int64") for leaf in leaves]
        lines = [f"compared with {self.name}: rtol {rtol:g}, atol {atol:g}"]
        good = len(expected) == len(self._results)
        if not good:
            lines.append(f"FAIL: {len(self._results)} results, {self.name} has {len(expected)}")
        names = result_names(callee, len(self._results))
        found = [
            numeric_difference(name, decoded(got, dtype), decoded(want, dtype), dtype, rtol, atol)
            for name, dtype, got, want in zip(names, dtypes, self._results, expected, strict=False)
        ]
        for line in [*lines, *rows(found)]:
            click.echo(line, err=output is not None and is_stream(output))
        return good and all(one.passes for one in found)
