"""Emit `PREFIX_f_query`: check the arguments, bind the symbols, and compute the workspace size.

    i32 query(ptr args, ptr out, i32 results_too)    out: workspace bytes, then the symbols' values

The order is: each parameter by itself, then extents computed from symbols, then the function's constraints, then sizes,
then (if requested) the results, and overlaps of written memory with other arguments.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.runtime.abi import OFFSET
from mlcc.targets.llvm.codegen.context import Shared
from mlcc.targets.llvm.codegen.dim_code import DimCode
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.host.tensor_checks import HELPER as CHECK
from mlcc.targets.llvm.host.tensor_checks import RANGE
from mlcc.targets.llvm.host.tensor_checks import TEXT as CHECK_TEXT
from mlcc.targets.plan.dims import format_dim
from mlcc.targets.plan.steps import HostFunction, Leaf
from mlcc.targets.plan.tensor_rows import row

_MAX_WORKSPACE = 1 << 46  # sums of sizes below it fit 64 bits
OVERLAPS = "mlcc_overlaps"
_OVERLAPS_TEXT = """define internal i1 @mlcc_overlaps(ptr %ranges, i64 %count, i64 %index) nounwind {
entry:
  %mine = getelementptr inbounds { i64, i64 }, ptr %ranges, i64 %index
  %start = load i64, ptr %mine
  %mine.end = getelementptr inbounds { i64, i64 }, ptr %mine, i64 0, i32 1
  %end = load i64, ptr %mine.end
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %go ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %other = getelementptr inbounds { i64, i64 }, ptr %ranges, i64 %i
  %other.start = load i64, ptr %other
  %other.p = getelementptr inbounds { i64, i64 }, ptr %other, i64 0, i32 1
  %other.end = load i64, ptr %other.p
  %a = icmp ult i64 %start, %other.end
  %b = icmp ult i64 %other.start, %end
  %both = and i1 %a, %b
  %self = icmp eq i64 %i, %index
  %not.self = xor i1 %self, true
  %hit = and i1 %both, %not.self
  br i1 %hit, label %found, label %go
go:
  %next = add i64 %i, 1
  br label %head
found:
  ret i1 true
none:
  ret i1 false
}"""


class Query:
    """The emitter of the query function of one host function."""

    def __init__(self, func: HostFunction, shared: Shared, symbol: str) -> None:
        self.func = func
        self.shared = shared
        module = shared.ctx.module
        params = [("ptr", "args"), ("ptr", "out"), ("i32", "results_too")]
        self.fn: FunctionText = module.function(
            "i32", symbol, params, linkage="", attrs=f"noinline {shared.ctx.function_attrs}"
        )
        self.args, self.out, self.results_too = self.fn.params
        self.code = DimCode(self.fn, func.dims, {}, overflow=True)
        self.symbol_sources: dict[
            tir.Var, str
        ] = {}  # symbol -> description of the argument that bound it, for messages
        self._failures: dict[int, str] = {}
        self._deferred: list[tuple[str, tir.Expr, Value]] = []
        self._tensors: list[Leaf] = []  # tensors so far
        self._pending: list[int] = []  # consecutive arguments that are not checked yet
        self._pending_rows: list[int] = []  # their rows of the table
        self._ranges = NULL

    def emit(self) -> None:
        func, fn = self.func, self.fn
        inputs = func.inputs()
        count = sum(leaf.kind == "tensor" for leaf in (*inputs, *func.outputs()))
        if count:
            self._ranges = fn.alloca(RANGE, count, 8, "ranges")
        for index, leaf in enumerate(inputs):
            self._input(leaf, index)
        self._check_pending()
        for what, expr, value in self._deferred:
            self._require_value(what, expr, value)
        for constraint in self.func.constraints:
            equal = fn.icmp("eq", self.code.value(constraint.have), self.code.value(constraint.want))
            self._fail_unless(equal, constraint.code)
        self._sizes()
        results, done = fn.label("results"), fn.label("done")
        fn.cond_br(fn.icmp("ne", self.results_too, integer("i32", 0)), results, done)
        fn.start(results)
        self._deferred.clear()
        for index, leaf in enumerate(func.outputs()):
            self._output(leaf, len(inputs) + index)
        self._check_pending()
        self._overlaps()
        fn.start(done)
        fn.ret(integer("i32", 0))

    # ------------------------------------------------------------ failures

    def _require(self, condition: Value, kind: str, text: str) -> None:
        """Return an error code unless the condition holds."""
        self._fail_unless(condition, self.shared.code(kind, text))

    def _fail_unless(self, condition: Value, code: int) -> None:
        fn = self.fn
        label = self._failures.get(code)
        if label is None:
            label = self._failures[code] = fn.cold("fail", [f"ret i32 {code}"])
        passed = fn.label("ok")
        fn.cond_br(condition, passed, label)
        fn.start(passed)

    def _require_value(self, what: str, expr: tir.Expr, value: Value) -> None:
        """Require an extent to equal an expression whose value is known."""
        expected = self.code.value(expr)
        kind, why = "SHAPE", f"must be {format_dim(expr)}"
        if isinstance(expr, tir.Var):
            kind, why = "SYMBOL", f"must be {expr.name}, which {self.symbol_sources[expr]} gives"
        self._require(self.fn.icmp("eq", value, expected), kind, f"{what} {why}")

    # ------------------------------------------------------------ parameters

    def _input(self, leaf: Leaf, index: int) -> None:
        fn = self.fn
        if leaf.kind == "pointer":
            return
        if leaf.kind == "tensor":
            self._tensor(leaf, index)
            return
        self._check_pending()
        cell = fn.gep("i64", self.args, integer("i64", index))
        if leaf.kind == "scalar":
            self._scalar(leaf, fn.load("i64", cell, 8))
            return
        pointer = fn.load("ptr", cell, 8)
        if leaf.dims:
            self._require(fn.icmp("ne", pointer, NULL), "NULL", f"`{leaf.name}` is null")
        for at, dim in enumerate(leaf.dims):
            value = fn.load("i64", fn.gep("i64", pointer, integer("i64", at)), 8)
            self._extent(f"value {at} of `{leaf.name}`", dim, value)

    def _scalar(self, leaf: Leaf, value: Value) -> None:
        """Check that an integer or bool fits its dtype, and bind its symbol; floats are read where they are used."""
        dtype, fn = leaf.dtype, self.fn
        assert dtype is not None and leaf.value is not None
        if dtype.is_float:
            return
        if dtype.is_bool or dtype.bits < 64:
            low = 0 if dtype.is_bool or dtype.is_uint else -(1 << (dtype.bits - 1))
            span = 2 if dtype.is_bool else 1 << dtype.bits
            shifted = fn.binary("sub", value, integer("i64", low))
            text = f"`{leaf.name}` does not fit {dtype}"
            self._require(fn.icmp("ult", shifted, integer("i64", span)), "VALUE", text)
        self._bind_or_compare(f"`{leaf.name}`", leaf.value, value)

    def _bind_or_compare(self, what: str, expr: tir.Expr, value: Value) -> None:
        if isinstance(expr, tir.Var) and expr not in self.code.symbols:
            self.code.symbols[expr] = value
            self.symbol_sources[expr] = what
        elif isinstance(expr, (tir.Var, tir.IntImm)):
            self._require_value(what, expr, value)
        else:
            self._deferred.append((what, expr, value))

    def _extent(self, what: str, dim: tir.Expr, value: Value) -> None:
        """Check an extent: bind its symbol, or compare it now or when all symbols are known."""
        if isinstance(dim, tir.Var) and dim not in self.code.symbols:
            self._require(self.fn.icmp("sge", value, integer("i64", 0)), "SHAPE", f"{what} is negative")
        self._bind_or_compare(what, dim, value)

    def _tensor(self, leaf: Leaf, index: int) -> None:
        """Check a DLTensor: by a table where no symbols are needed, then extents and strides with symbols."""
        if self._pending and self._pending[-1] != index - 1:
            self._check_pending()
        symbols = set(self.code.symbols)
        binds = []
        for dim in leaf.dims:
            binds.append(isinstance(dim, tir.Var) and dim not in symbols)
            if isinstance(dim, tir.Var):
                symbols.add(dim)
        self._tensors.append(leaf)
        self._pending.append(index)
        self._pending_rows += row(leaf, binds, self.shared)
        open_dims = [i for i, dim in enumerate(leaf.dims) if not isinstance(dim, tir.IntImm)]
        if not open_dims and leaf.strides is None:
            return
        self._check_pending()
        pointer = self.fn.load("ptr", self.fn.gep("i64", self.args, integer("i64", index)), 8)
        shape = self._field("ptr", pointer, "shape")
        for at in open_dims:
            value = self.fn.load("i64", self.fn.gep("i64", shape, integer("i64", at)), 8)
            self._bind_or_compare(f"dimension {at} of `{leaf.name}`", leaf.dims[at], value)
        if leaf.strides is not None:
            self._check_strides(leaf, pointer, shape)

    def _check_pending(self) -> None:
        """Check the pending tensors."""
        if not self._pending:
            return
        fn, module = self.fn, self.shared.ctx.module
        values = ", ".join(f"i64 {v}" for v in self._pending_rows)
        name = f"{fn.symbol}.tensors.{self._pending[0]}"
        kind = f"private unnamed_addr constant [{len(self._pending_rows)} x i64]"
        table = Value("ptr", module.global_(name, f"{kind} [{values}], align 8"))
        first = fn.gep("i64", self.args, integer("i64", self._pending[0]))
        ranges = fn.gep(RANGE, self._ranges, integer("i64", len(self._tensors) - len(self._pending)))
        count = integer("i64", len(self._pending))
        code = fn.call("i32", module.helper(CHECK, CHECK_TEXT, shared=True), [first, count, table, ranges])
        failed, passed = fn.cold("failed", [f"ret {code}"]), fn.label("ok")
        fn.cond_br(fn.icmp("eq", code, integer("i32", 0)), passed, failed)
        fn.start(passed)
        self._pending, self._pending_rows = [], []

    def _field(self, type: str, pointer: Value, name: str) -> Value:
        address = self.fn.gep("i8", pointer, integer("i64", OFFSET[name]))
        return self.fn.load(type, address, 4 if type == "i32" else 8)

    def _check_strides(self, leaf: Leaf, pointer: Value, shape: Value) -> None:
        """Bind or compare declared strides, and compute the range of bytes that they span."""
        fn = self.fn
        assert leaf.strides is not None and leaf.dtype is not None
        count = range(len(leaf.dims))
        dims = [fn.load("i64", fn.gep("i64", shape, integer("i64", i)), 8) for i in count]
        strides = self._strides_of(dims, self._field("ptr", pointer, "strides"))
        zero, one = integer("i64", 0), integer("i64", 1)
        low, high = zero, one
        empty: Value = integer("i1", 0)
        for index, (want, stride, extent) in enumerate(zip(leaf.strides, strides, dims, strict=True)):
            what = f"stride {index} of `{leaf.name}`"
            if isinstance(want, tir.Var) and want not in self.code.symbols:
                self.code.symbols[want] = stride
                self.symbol_sources[want] = what
            else:
                # the stride of a single element is arbitrary: use the declared one
                self._check_stride(what, want, stride, extent)
            reach = fn.binary("mul", stride, fn.binary("sub", extent, one))
            is_negative = fn.icmp("slt", reach, zero)
            low = fn.binary("add", low, fn.select(is_negative, reach, zero))
            high = fn.binary("add", high, fn.select(is_negative, zero, reach))
            empty = fn.binary("or", empty, fn.icmp("eq", extent, zero))
        data = fn.op("i64", f"ptrtoint {self._field('ptr', pointer, 'data')} to i64")
        first = fn.binary("add", data, self._field("i64", pointer, "byte_offset"))
        width = integer("i64", leaf.dtype.bytes * leaf.dtype.lanes)
        range_address = fn.gep(RANGE, self._ranges, integer("i64", len(self._tensors) - 1))
        for offset, bound in ((low, 0), (high, 1)):
            edge = fn.binary("add", first, fn.binary("mul", offset, width))
            cell = fn.gep(RANGE, range_address, integer("i64", 0), integer("i32", bound))
            fn.store(fn.select(empty, zero, edge), cell)

    def _check_stride(self, what: str, want: tir.Expr, stride: Value, extent: Value) -> None:
        fn = self.fn
        if isinstance(want, tir.IntImm):
            trivial = fn.icmp("sle", extent, integer("i64", 1))
            self._require_value(what, want, fn.select(trivial, self.code.value(want), stride))
        else:
            self._deferred.append((what, want, stride))

    def _strides_of(self, dims: list[Value], strides: Value) -> list[Value]:
        """Load the strides of a DLTensor; null stands for compact strides."""
        fn = self.fn
        has_strides = fn.icmp("ne", strides, NULL)
        compact = fn.alloca("i64", max(len(dims), 1), 8)
        step: Value = integer("i64", 1)
        for index in reversed(range(len(dims))):
            fn.store(step, fn.gep("i64", compact, integer("i64", index)))
            step = fn.binary("mul", step, dims[index])
        source = fn.select(has_strides, strides, compact)
        return [fn.load("i64", fn.gep("i64", source, integer("i64", i)), 8) for i in range(len(dims))]

    # ------------------------------------------------------------ sizes, results

    def _sizes(self) -> None:
        """Store workspace bytes and symbols to `out`; overflow of 64 bits is an error."""
        fn, func = self.fn, self.func
        code = self.code
        is_small: Value = integer("i1", 1)
        for workspace_end, expr in func.places:
            value = code.symbols[workspace_end] = code.value(expr)
            is_small = fn.binary("and", is_small, fn.icmp("ult", value, integer("i64", _MAX_WORKSPACE)))
        for leaf in func.outputs():
            for dim in leaf.dims:
                code.value(dim)
        assert code.failed is not None
        is_small = fn.binary("and", is_small, fn.binary("xor", code.failed, integer("i1", 1)))
        self._require(is_small, "MEMORY", "the intermediates or results are too large")
        fn.store(code.value(func.workspace), self.out, 8)
        for index, symbol in enumerate(func.symbols):
            fn.store(code.symbols[symbol], fn.gep("i64", self.out, integer("i64", 1 + index)), 8)

    def _output(self, leaf: Leaf, index: int) -> None:
        fn = self.fn
        if leaf.kind == "tensor":
            self._tensor(leaf, index)
            for what, expr, value in self._deferred:
                self._require_value(what, expr, value)
            self._deferred.clear()
            return
        self._check_pending()
        if leaf.kind != "shape" or leaf.dims:
            pointer = fn.load("ptr", fn.gep("i64", self.args, integer("i64", index)), 8)
            self._require(fn.icmp("ne", pointer, NULL), "NULL", f"`{leaf.name}` is null")

    def _overlaps(self) -> None:
        written = [i for i, leaf in enumerate(self._tensors) if leaf.written]
        count = len(self._tensors)
        if not written or count < 2:
            return
        fn = self.fn
        helper = self.shared.ctx.module.helper(OVERLAPS, _OVERLAPS_TEXT, shared=True)
        for index in written:
            hit = fn.call("i1", helper, [self._ranges, integer("i64", count), integer("i64", index)])
            text = f"`{self._tensors[index].name}` shares memory with another argument"
            self._require(fn.binary("xor", hit, integer("i1", 1)), "OVERLAP", text)
