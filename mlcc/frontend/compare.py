"""Compare an imported module with its model, run by the original framework, and find the first node that differs.

A `Runner` runs the model; this module is independent of frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mlcc.errors import CallError, CompileError, error
from mlcc.frontend.location import SourceLocation, location_of
from mlcc.frontend.sampling import decoded_values, format_sizes, random_inputs, sizes_of
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.visit import substitute
from mlcc.relax.construct import make_function, make_seq, make_tuple

if TYPE_CHECKING:
    import numpy as np

    from mlcc.ir.dtypes import DType

TARGET = "llvm{cpu=native}"


class ModelRejected(Exception):
    """Raised when the framework does not run a model, or does not accept inputs."""


class FrameworkRunner(Protocol):
    """A model in its own framework. Arrays are in the order of the inputs, in the storage types of their dtypes."""

    name: str  # of the framework

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results of the model; float dtypes that NumPy lacks become float32. Raises Refused."""

    def node_values(self, inputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the first result of every node by node name, in execution order. Raises Refused."""


@dataclass
class Report:
    """The result of comparing a compiled model with its framework."""

    framework: str
    compared: list[str] = field(default_factory=list)  # sizes, in words
    refused: list[str] = field(default_factory=list)
    worst: dict[int, float] = field(
        default_factory=dict
    )  # largest difference of each result, relative to its largest element
    different: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """True if no result differs."""
        return not self.different

    def lines(self) -> list[str]:
        """Format the report."""
        if self.different:
            return self.different
        sizes = "; ".join(size for size in self.compared if size)
        where = f" for {sizes}" if sizes else ""
        said = ", ".join(f"out{i} {gap:.1e}" for i, gap in sorted(self.worst.items()))
        skipped = [f"note: {reason}" for reason in self.refused]
        return [f"equal to {self.framework}{where}; largest difference: {said or 'none'}", *skipped]


class Comparison:
    """Compares a module with a model. `rtol` is relative to the largest element of a result."""

    def __init__(self, module: IRModule, runner: FrameworkRunner, rtol: float, seed: int = 0) -> None:
        self.module, self.runner, self.rtol, self.seed = module, runner, rtol, seed
        main = module.functions["main"]
        assert isinstance(main, relax.Function)
        self.func = main

    def run(self, given: Mapping[str, int]) -> Report:
        """Compare for several sizes, with `given` ones fixed, until a result differs. Raises CompileError E1077 if the
        framework rejects all of them."""
        import numpy as np

        report = Report(self.runner.name)
        main = _load(self.module)
        rng = np.random.default_rng(self.seed)
        for sizes in sizes_of(self.func, given):
            inputs = random_inputs(self.func, sizes, rng)
            try:
                expected = self.runner.run(inputs)
            except ModelRejected as exc:
                report.refused.append(f"{self.runner.name} rejects {format_sizes(sizes) or 'its inputs'}: {exc}")
                continue
            self._compare(main, inputs, expected, format_sizes(sizes), report)
            report.compared.append(format_sizes(sizes))
            if report.different:
                return report
        if not report.compared:
            help = "state sizes that the model accepts: --size NAME=N"
            raise CompileError([error("E1077", reason, help=help) for reason in report.refused])
        return report

    def _compare(
        self, main: Any, inputs: list[np.ndarray], expected: list[np.ndarray], sizes: str, report: Report
    ) -> None:
        where = f" for {sizes}" if sizes else ""
        try:
            results = _leaves(main(*inputs), self.func.ret_struct_info)
        except CallError as exc:
            report.different.append(
                f"mlcc rejects inputs that {self.runner.name} accepts{where}: {exc.diagnostics[0].message}"
            )
            return
        if len(results) < len(expected):
            report.different.append(f"mlcc returns {len(results)} results, {self.runner.name} {len(expected)}")
            return
        for at, (mine, theirs) in enumerate(zip(results, expected, strict=False)):
            gap, problem = difference(mine, theirs, self.rtol)
            report.worst[at] = max(report.worst.get(at, 0.0), gap)
            if problem:
                report.different.append(f"out{at} differs from {self.runner.name}{where}: {problem}")
        if report.different:
            report.different.append(self._first_difference(inputs))

    def _first_difference(self, inputs: list[np.ndarray]) -> str:
        """Describe the first node whose value differs from the framework's: compile, at -O0, a module of all values."""
        module, places, dtypes = with_node_values(self.module)
        try:
            theirs = self.runner.node_values(inputs)
        except ModelRejected as exc:
            return f"intermediate values are not available: {exc}"
        results = _load(module, opt_level=0)(*inputs)
        for place, dtype, value in zip(places, dtypes, results[1:] if places else (), strict=True):
            want = theirs.get(place.node)
            if want is None:
                continue
            _, problem = difference(decoded_values(value, dtype), want, self.rtol)
            if problem:
                return f"the first node that differs is `{place.node}` ({place.operator}), {place}: {problem}"
        return "every node agrees at -O0, so an optimization is wrong (`mlcc passes --check-each` names the pass)"


def _load(module: IRModule, opt_level: int | None = None) -> Any:
    from mlcc.driver import build
    from mlcc.loading import load

    return load(build(module, TARGET, opt_level))["main"]


def _leaves(value: Any, info: Any) -> list[np.ndarray]:
    """Return the results as a flat list of arrays."""
    import numpy as np

    if isinstance(info, relax.TupleStructInfo):
        return [leaf for part, kind in zip(value, info.fields, strict=True) for leaf in _leaves(part, kind)]
    array = np.asarray(value)
    dtype = getattr(info, "dtype", None)
    return [array if dtype is None else decoded_values(array, dtype)]


def difference(mine: np.ndarray, theirs: np.ndarray, rtol: float) -> tuple[float, str | None]:
    """Return the largest difference, relative to the largest element, and a description of a mismatch: of shapes,
    integers, non-finite elements, or by more than `rtol`."""
    import numpy as np

    if mine.shape != theirs.shape:
        return float("inf"), f"shape {list(mine.shape)}, expected {list(theirs.shape)}"
    if mine.dtype != theirs.dtype:
        return float("inf"), f"dtype {mine.dtype}, expected {theirs.dtype}"
    if not mine.size:
        return 0.0, None
    if mine.dtype.kind not in "fc":
        off = mine != theirs
        return float(off.any()), _describe_worst(off.astype(float), mine, theirs) if off.any() else None
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    other = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    scale = float(np.abs(b[finite]).max(initial=0.0))
    gap = np.where(finite, np.nan_to_num(np.abs(a - np.where(finite, b, 0)), nan=np.inf), np.where(other, np.inf, 0))
    largest = float(gap.max())
    if largest == 0:
        return 0.0, None
    relative = largest / scale if scale else float("inf")
    return relative, _describe_worst(gap, mine, theirs) if relative > rtol else None


def _describe_worst(gap: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> str:
    import numpy as np

    at = np.unravel_index(int(gap.argmax()), gap.shape)
    place = ", ".join(map(str, at))
    return f"{mine[at]!s} at [{place}], expected {theirs[at]!s}"


# ---------------------------------------------------------------- all values


def with_node_values(module: IRModule) -> tuple[IRModule, list[SourceLocation], list[DType]]:
    """Return a module whose `main` returns its result and then the value of every node of the source model, the nodes'
    source locations, and the values' dtypes."""
    func = module.functions["main"]
    assert isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr)
    last: dict[str, tuple[SourceLocation, relax.Var, DType]] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            place = location_of(binding.span) or location_of(getattr(getattr(binding, "value", None), "span", None))
            info = binding.var.struct_info
            if place is not None and place.node and isinstance(info, relax.TensorStructInfo) and info.dtype is not None:
                last[place.node] = (place, binding.var, info.dtype)
    body = func.body
    fresh = {
        b.var: relax.Var(b.var.name, b.var.struct_info)
        for block in body.blocks
        for b in block.bindings
        if isinstance(b.var, relax.DataflowVar)
    }
    blocks = [relax.BindingBlock(block.bindings) for block in body.blocks]
    seq = substitute(make_seq(blocks, make_tuple([body.body, *(var for _, var, _ in last.values())])), fresh)
    done = make_function(func.params, seq, func.attrs, None, func.is_pure)
    copy = module.copy()
    copy.functions["main"] = done
    return copy, [place for place, _, _ in last.values()], [dtype for _, _, dtype in last.values()]
