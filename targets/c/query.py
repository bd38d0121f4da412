"""Print `PREFIX_f_query`: check the arguments, bind the symbols, and compute the workspace size.

The order of the checks is that of the object's (`mlcc.targets.llvm.host.query`).
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.targets.c import host_helpers
from mlcc.targets.c.context import Shared
from mlcc.targets.c.host_writer import CheckedSizes, HostWriter
from mlcc.targets.plan.dims import format_dim
from mlcc.targets.plan.steps import HostFunction, Leaf
from mlcc.targets.plan.tensor_rows import row
from mlcc.targets.source.expressions import CHOICE, EQUAL, ORDER

_MAX_WORKSPACE = 1 << 46  # sums of sizes below it fit 64 bits


def query_text(func: HostFunction, shared: Shared, symbol: str) -> str:
    """Return the query function of one host function."""
    return _Query(func, shared).text(symbol)


class _Query:
    def __init__(self, func: HostFunction, shared: Shared) -> None:
        self.func = func
        self.shared = shared
        self.w = HostWriter(shared)
        self.w.taken |= {"args", "out", "results_too", "cells", "overflow", "ranges", "code"}
        self.sizes = CheckedSizes(self.w, func.dims)
        self.sources: dict[tir.Var, str] = {}  # what bound a symbol, for messages
        self._deferred: list[tuple[str, tir.Expr, str]] = []
        self._tensors: list[Leaf] = []

    def text(self, symbol: str) -> str:
        func, w = self.func, self.w
        inputs, outputs = func.inputs(), func.outputs()
        count = sum(leaf.kind == "tensor" for leaf in (*inputs, *outputs))
        w.lines.add("const int64_t *cells = (const int64_t *)args;", "cells")
        if count:
            w.use("memory_range", host_helpers.RANGE)
            w.lines.add(f"memory_range ranges[{count}];", "ranges")
            w.lines.add("int32_t code;", "code")
        w.lines.add("bool overflow = false;", "overflow")
        for index, leaf in enumerate(inputs):
            self._input(leaf, index)
        self._settle_deferred()
        for constraint in func.constraints:
            have, want = (self._value(side, EQUAL + 1) for side in (constraint.have, constraint.want))
            w.lines.add(f"if ({have} != {want}) return {constraint.code};")
        self._sizes()
        with w.lines.block("if (results_too != 0)"):
            for index, leaf in enumerate(outputs, len(inputs)):
                self._output(leaf, index)
            self._overlaps()
        w.lines.add("return 0;")
        lines, used = w.lines.finish()
        ignored = ["    (void)args;"] * ("cells" not in used)
        head = f"int32_t {symbol}(const void *args, int64_t *out, int32_t results_too) {{"
        return "\n".join([head, *ignored, *lines, "}"])

    # ------------------------------------------------------------ checks

    def _value(self, expr: tir.Expr, precedence: int = CHOICE) -> str:
        return self.w.text(self.sizes.value(expr), precedence)

    def _fail_if(self, condition: str, kind: str, text: str) -> None:
        self.w.lines.add(f"if ({condition}) return {self.shared.code(kind, text)};")

    def _require_value(self, what: str, expr: tir.Expr, value: str) -> None:
        """Require an extent to equal an expression whose value is known."""
        kind, why = "SHAPE", f"must be {format_dim(expr)}"
        if isinstance(expr, tir.Var):
            kind, why = "SYMBOL", f"must be {expr.name}, which {self.sources[expr]} gives"
        expected = self._value(expr, EQUAL + 1)
        self.w.lines.add(f"if ({value} != {expected}) return {self.shared.code(kind, f'{what} {why}')};")

    def _settle_deferred(self) -> None:
        for what, expr, value in self._deferred:
            self._require_value(what, expr, value)
        self._deferred.clear()

    def _bind_or_compare(self, what: str, expr: tir.Expr, value: str) -> None:
        if isinstance(expr, tir.Var) and expr not in self.w.names:
            name = self.w.define(expr)
            self.w.lines.add(f"const int64_t {name} = {value};", name)
            self.sources[expr] = what
        elif isinstance(expr, (tir.Var, tir.IntImm)):
            self._require_value(what, expr, value)
        else:
            name = self.w.fresh("extent")
            self.w.lines.add(f"const int64_t {name} = {value};")
            self._deferred.append((what, expr, name))

    # ------------------------------------------------------------ parameters

    def _input(self, leaf: Leaf, index: int) -> None:
        w = self.w
        if leaf.kind == "pointer":
            return
        if leaf.kind == "tensor":
            self._tensor(leaf, index)
            return
        if leaf.kind == "scalar":
            self._scalar(leaf, index)
            return
        if not leaf.dims:
            return
        w.use("pointer_of", host_helpers.POINTER)
        values = w.fresh(leaf.name)
        w.lines.add(f"const int64_t *{values} = (const int64_t *)pointer_of({w.cell(index)});")
        self._fail_if(f"{values} == NULL", "NULL", f"`{leaf.name}` is null")
        for at, dim in enumerate(leaf.dims):
            what = f"value {at} of `{leaf.name}`"
            if isinstance(dim, tir.Var) and dim not in w.names:
                self._fail_if(f"{values}[{at}] < 0", "SHAPE", f"{what} is negative")
            self._bind_or_compare(what, dim, f"{values}[{at}]")

    def _scalar(self, leaf: Leaf, index: int) -> None:
        """Check that an integer or bool fits its dtype, and bind its symbol; floats are read where they are used."""
        dtype, w = leaf.dtype, self.w
        assert dtype is not None and leaf.value is not None
        if dtype.is_float:
            return
        if dtype.is_bool or dtype.bits < 64:
            low = 0 if dtype.is_bool or dtype.is_uint else -(1 << (dtype.bits - 1))
            high = low + (2 if dtype.is_bool else 1 << dtype.bits) - 1
            cell = w.cell(index)
            least, most = (w.text(tir.IntImm(INT64, v), ORDER + 1) for v in (low, high))
            self._fail_if(f"{cell} < {least} || {cell} > {most}", "VALUE", f"`{leaf.name}` does not fit {dtype}")
        self._bind_or_compare(f"`{leaf.name}`", leaf.value, w.cell(index))

    def _tensor(self, leaf: Leaf, index: int) -> None:
        """Check a DLTensor: by a row of numbers where no symbols are needed, then extents and strides with symbols."""
        w = self.w
        for name, text in (("tensor_of", host_helpers.TENSOR), ("check_tensor", host_helpers.CHECK_TENSOR)):
            w.use(name, text)
        known = set(w.names)
        binds = []
        for dim in leaf.dims:
            binds.append(isinstance(dim, tir.Var) and dim not in known)
            if isinstance(dim, tir.Var):
                known.add(dim)
        number = len(self._tensors)
        self._tensors.append(leaf)
        numbers = w.fresh(f"{leaf.name}_row")
        words = ", ".join(map(str, row(leaf, binds, self.shared)))
        with w.lines.block(""):
            w.lines.add(f"static const int64_t {numbers}[] = {{{words}}};")
            w.lines.add(f"code = check_tensor({w.cell(index)}, {numbers}, &ranges[{number}]);")
            w.lines.add("if (code != 0) return code;")
        for at, dim in enumerate(leaf.dims):
            if not isinstance(dim, tir.IntImm):
                self._bind_or_compare(f"dimension {at} of `{leaf.name}`", dim, f"{w.tensor(index)}->shape[{at}]")
        if leaf.strides is not None:
            self._strides(leaf, index, number)

    def _strides(self, leaf: Leaf, index: int, number: int) -> None:
        """Bind or compare declared strides, and compute the range of bytes that they span."""
        w = self.w
        assert leaf.strides is not None and leaf.dtype is not None
        w.use("strides_of", host_helpers.STRIDES)
        strides = w.fresh(f"{leaf.name}_strides")
        w.lines.add(f"int64_t {strides}[{max(len(leaf.dims), 1)}] = {{0}};")
        w.lines.add(f"strides_of({w.cell(index)}, {strides});")
        for axis, want in enumerate(leaf.strides):
            what, value = f"stride {axis} of `{leaf.name}`", f"{strides}[{axis}]"
            if isinstance(want, tir.IntImm):  # the stride of a single element is arbitrary
                extent = f"{w.tensor(index)}->shape[{axis}]"
                self._fail_if(f"{extent} > 1 && {value} != {want.value}", "SHAPE", f"{what} must be {format_dim(want)}")
            elif isinstance(want, tir.Var) and want not in w.names:
                name = w.define(want)
                w.lines.add(f"const int64_t {name} = {value};", name)
                self.sources[want] = what
            else:
                self._deferred.append((what, want, value))
        width = leaf.dtype.bytes * leaf.dtype.lanes
        w.lines.add(f"strided_range({w.cell(index)}, {strides}, {width}, &ranges[{number}]);")

    # ------------------------------------------------------------ sizes, results

    def _sizes(self) -> None:
        """Store workspace bytes and symbols to `out`; overflow of 64 bits is an error."""
        func, w = self.func, self.w
        large: list[str] = []
        for end, expr in func.places:
            printed = self._value(expr)
            name = w.define(end)
            w.lines.add(f"const int64_t {name} = {printed};")
            large += [f"{name} < 0", f"{name} >= INT64_C({_MAX_WORKSPACE})"]
        for leaf in func.outputs():
            for dim in leaf.dims:
                self.sizes.value(dim)
        text = "the intermediates or results are too large"
        if self.sizes.computed:
            large.insert(0, "overflow")
        if large:
            self._fail_if(" || ".join(large), "MEMORY", text)
        w.lines.add(f"out[0] = {self._value(func.workspace)};")
        for index, symbol in enumerate(func.symbols, 1):
            w.lines.add(f"out[{index}] = {w.name(symbol)};")

    def _output(self, leaf: Leaf, index: int) -> None:
        if leaf.kind == "tensor":
            self._tensor(leaf, index)
            self._settle_deferred()
        elif leaf.kind != "shape" or leaf.dims:
            self._fail_if(f"{self.w.cell(index)} == 0", "NULL", f"`{leaf.name}` is null")

    def _overlaps(self) -> None:
        count = len(self._tensors)
        for number, leaf in enumerate(self._tensors):
            if leaf.written and count > 1:
                self.w.use("overlaps", host_helpers.OVERLAPS)
                text = f"`{leaf.name}` shares memory with another argument"
                self._fail_if(f"overlaps(ranges, {count}, {number})", "OVERLAP", text)
