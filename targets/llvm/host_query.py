"""`PREFIX_f_query`: look at the arguments, find the symbols, say how much workspace a call needs.

    i32 query(ptr args, ptr out, i32 results_too)    out: workspace bytes, then the symbols' values

The order is: each parameter by itself, then extents that are computed from symbols, then sizes, then (if asked) the
results and whether anything that is written overlaps anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.runtime.abi import CPU, CUDA_HOST, OFFSET, dtype_code, dtype_word
from mlcc.targets.llvm.dims import DimCode, plain
from mlcc.targets.llvm.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.plan import HostFunction, Leaf
from mlcc.targets.llvm.shared import Shared

_MOST_BYTES = 1 << 46  # of a workspace; sums of sizes below it fit 64 bits
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


@dataclass(slots=True)
class Loaded:
    """A tensor argument as read: its extents and the addresses of its bytes (0 and 0 if it has none)."""

    leaf: Leaf
    dims: list[Value]
    start: Value
    end: Value


class Query:
    """Emits the query function of one host function."""

    def __init__(self, func: HostFunction, shared: Shared, symbol: str) -> None:
        self.func = func
        self.shared = shared
        module = shared.ctx.module
        params = [("ptr", "args"), ("ptr", "out"), ("i32", "results_too")]
        self.fn: FunctionText = module.function(
            "i32", symbol, params, linkage="", attrs=f"noinline {shared.ctx.function_attrs}"
        )
        self.args, self.out, self.all = self.fn.params
        self.code = DimCode(self.fn, func.dims, {}, overflow=True)
        self.where: dict[tir.Var, str] = {}  # what gave a symbol its value, for messages
        self._failures: dict[int, str] = {}
        self._later: list[tuple[str, tir.Expr, Value]] = []

    def emit(self) -> None:
        func, fn = self.func, self.fn
        inputs = func.inputs()
        loaded = [self._input(leaf, index) for index, leaf in enumerate(inputs)]
        for what, expr, value in self._later:
            self._expect(what, expr, value)
        self._sizes()
        results, done = fn.label("results"), fn.label("done")
        fn.cond_br(fn.icmp("ne", self.all, integer("i32", 0)), results, done)
        fn.start(results)
        self._later.clear()
        loaded += [self._output(leaf, len(inputs) + index) for index, leaf in enumerate(func.outputs())]
        self._overlaps([t for t in loaded if t is not None])
        fn.start(done)
        fn.ret(integer("i32", 0))

    # ------------------------------------------------------------ failures

    def _unless(self, condition: Value, kind: str, text: str) -> None:
        """Return an error code where the condition does not hold."""
        code = self.shared.code(kind, text)
        fn = self.fn
        label = self._failures.get(code)
        if label is None:
            label = self._failures[code] = fn.cold("fail", [f"ret i32 {code}"])
        go_on = fn.label("ok")
        fn.cond_br(condition, go_on, label)
        fn.start(go_on)

    def _expect(self, what: str, expr: tir.Expr, value: Value) -> None:
        """An extent that is known from elsewhere."""
        known = self.code.value(expr)
        kind, why = "SHAPE", f"must be {plain(expr)}"
        if isinstance(expr, tir.Var):
            kind, why = "SYMBOL", f"must be {expr.name}, which {self.where[expr]} gives"
        self._unless(self.fn.icmp("eq", value, known), kind, f"{what} {why}")

    # ------------------------------------------------------------ parameters

    def _input(self, leaf: Leaf, index: int) -> Loaded | None:
        fn = self.fn
        cell = fn.gep("i64", self.args, integer("i64", index))
        if leaf.kind == "pointer":
            return None
        if leaf.kind == "scalar":
            self._scalar(leaf, fn.load("i64", cell, 8))
            return None
        pointer = fn.load("ptr", cell, 8)
        if leaf.kind == "shape":
            if leaf.dims:
                self._unless(fn.icmp("ne", pointer, NULL), "NULL", f"`{leaf.name}` is null")
            for at, dim in enumerate(leaf.dims):
                self._extent(
                    f"value {at} of `{leaf.name}`", dim, fn.load("i64", fn.gep("i64", pointer, integer("i64", at)), 8)
                )
            return None
        return self._tensor(leaf, pointer)

    def _scalar(self, leaf: Leaf, value: Value) -> None:
        """Integers and bools are symbols, checked to fit their dtype; floats are read where they are used."""
        dtype, fn = leaf.dtype, self.fn
        assert dtype is not None and leaf.value is not None
        if dtype.is_float:
            return
        if dtype.is_bool or dtype.bits < 64:
            low = 0 if dtype.is_bool or dtype.is_uint else -(1 << (dtype.bits - 1))
            span = 2 if dtype.is_bool else 1 << dtype.bits
            shifted = fn.binary("sub", value, integer("i64", low))
            text = f"`{leaf.name}` does not fit {dtype}"
            self._unless(fn.icmp("ult", shifted, integer("i64", span)), "VALUE", text)
        self._known_or_bound(f"`{leaf.name}`", leaf.value, value)

    def _known_or_bound(self, what: str, expr: tir.Expr, value: Value) -> None:
        if isinstance(expr, tir.Var) and expr not in self.code.symbols:
            self.code.symbols[expr] = value
            self.where[expr] = what
        elif isinstance(expr, (tir.Var, tir.IntImm)):
            self._expect(what, expr, value)
        else:
            self._later.append((what, expr, value))

    def _extent(self, what: str, dim: tir.Expr, value: Value) -> None:
        """An extent as given: it binds its symbol, or is compared now or when all symbols are known."""
        if isinstance(dim, tir.Var) and dim not in self.code.symbols:
            self._unless(self.fn.icmp("sge", value, integer("i64", 0)), "SHAPE", f"{what} is negative")
        self._known_or_bound(what, dim, value)

    def _tensor(self, leaf: Leaf, pointer: Value) -> Loaded:
        """Everything that one DLTensor can have wrong with it."""
        fn, name = self.fn, leaf.name
        assert leaf.dtype is not None
        self._unless(fn.icmp("ne", pointer, NULL), "NULL", f"`{name}` is null")
        ndim = len(leaf.dims)
        plural = "s" if ndim != 1 else ""
        given = self._field("i32", pointer, "ndim")
        self._unless(fn.icmp("eq", given, integer("i32", ndim)), "NDIM", f"`{name}` must have {ndim} dimension{plural}")
        word = dtype_word(dtype_code(str(leaf.dtype)))
        dtype = self._field("i32", pointer, "dtype")
        self._unless(fn.icmp("eq", dtype, integer("i32", word)), "DTYPE", f"`{name}` must be {leaf.dtype}")
        device = self._field("i32", pointer, "device_type")
        here = [fn.icmp("eq", device, integer("i32", kind)) for kind in (CPU, CUDA_HOST)]
        self._unless(fn.binary("or", *here), "DEVICE", f"`{name}` must be in the memory of the CPU")
        shape = self._field("ptr", pointer, "shape")
        if ndim:
            self._unless(fn.icmp("ne", shape, NULL), "NULL", f"the shape of `{name}` is null")
        dims = [fn.load("i64", fn.gep("i64", shape, integer("i64", i)), 8) for i in range(ndim)]
        for index, (dim, value) in enumerate(zip(leaf.dims, dims, strict=True)):
            self._extent(f"dimension {index} of `{name}`", dim, value)
        strides = self._field("ptr", pointer, "strides")
        empty: Value = integer("i1", 0)
        for value in dims:
            empty = fn.binary("or", empty, fn.icmp("eq", value, integer("i64", 0)))
        data = self._data(leaf, pointer, empty)
        if leaf.strides is None:
            self._compact(leaf, dims, strides, empty)
            low, high = integer("i64", 0), self._count(dims)
        else:
            low, high = self._strided(leaf, dims, strides)
        width = integer("i64", leaf.dtype.bytes * leaf.dtype.lanes)
        start = fn.binary("add", data, fn.binary("mul", low, width))
        end = fn.binary("add", data, fn.binary("mul", high, width))
        zero = integer("i64", 0)
        return Loaded(leaf, dims, fn.select(empty, zero, start), fn.select(empty, zero, end))

    def _field(self, type: str, pointer: Value, name: str) -> Value:
        place = self.fn.gep("i8", pointer, integer("i64", OFFSET[name]))
        return self.fn.load(type, place, 4 if type == "i32" else 8)

    def _data(self, leaf: Leaf, pointer: Value, empty: Value) -> Value:
        """The address of the first element: not null and aligned to the element, unless there are no elements."""
        fn = self.fn
        assert leaf.dtype is not None
        data = fn.op("i64", f"ptrtoint {self._field('ptr', pointer, 'data')} to i64")
        present = fn.binary("or", empty, fn.icmp("ne", data, integer("i64", 0)))
        self._unless(present, "NULL", f"the data of `{leaf.name}` are null")
        first = fn.binary("add", data, self._field("i64", pointer, "byte_offset"))
        mask = leaf.dtype.bytes - 1
        if mask:
            low = fn.binary("and", first, integer("i64", mask))
            aligned = fn.binary("or", empty, fn.icmp("eq", low, integer("i64", 0)))
            self._unless(aligned, "ALIGN", f"`{leaf.name}` must be aligned to {leaf.dtype.bytes} bytes")
        return first

    def _count(self, dims: Sequence[Value]) -> Value:
        made: Value = integer("i64", 1)
        for value in dims:
            made = self.fn.binary("mul", made, value)
        return made

    def _compact(self, leaf: Leaf, dims: list[Value], strides: Value, empty: Value) -> None:
        """Strides, where given, are those of a row-major tensor; those of unit extents mean nothing."""
        if not dims:
            return
        fn = self.fn
        look, done = fn.label("strides"), fn.label("compact")
        fn.cond_br(fn.icmp("eq", strides, NULL), done, look)
        fn.start(look)
        good: Value = integer("i1", 1)
        step: Value = integer("i64", 1)
        for index in reversed(range(len(dims))):
            stride = fn.load("i64", fn.gep("i64", strides, integer("i64", index)), 8)
            fits = fn.binary("or", fn.icmp("eq", stride, step), fn.icmp("eq", dims[index], integer("i64", 1)))
            good = fn.binary("and", good, fits)
            step = fn.binary("mul", step, dims[index])
        self._unless(fn.binary("or", good, empty), "STRIDES", f"`{leaf.name}` must be contiguous")
        fn.start(done)

    def _strided(self, leaf: Leaf, dims: list[Value], strides: Value) -> tuple[Value, Value]:
        """Declared strides: bound or compared; gives the range of elements, as offsets from the first."""
        fn = self.fn
        assert leaf.strides is not None
        given = self._strides_of(dims, strides)
        zero, one = integer("i64", 0), integer("i64", 1)
        low, high = zero, one
        for index, (want, stride, extent) in enumerate(zip(leaf.strides, given, dims, strict=True)):
            what = f"stride {index} of `{leaf.name}`"
            if isinstance(want, tir.Var) and want not in self.code.symbols:
                self.code.symbols[want] = stride
                self.where[want] = what
            else:
                # where there is one element, its stride means nothing: take the declared one
                self._stride_later(what, want, stride, extent)
            reach = fn.binary("mul", stride, fn.binary("sub", extent, one))
            down = fn.icmp("slt", reach, zero)
            low = fn.binary("add", low, fn.select(down, reach, zero))
            high = fn.binary("add", high, fn.select(down, zero, reach))
        return low, high

    def _stride_later(self, what: str, want: tir.Expr, stride: Value, extent: Value) -> None:
        fn = self.fn
        if isinstance(want, tir.IntImm):
            trivial = fn.icmp("sle", extent, integer("i64", 1))
            self._expect(what, want, fn.select(trivial, self.code.value(want), stride))
        else:
            self._later.append((what, want, stride))

    def _strides_of(self, dims: list[Value], strides: Value) -> list[Value]:
        """The strides of a DLTensor; without any it is compact."""
        fn = self.fn
        given = fn.icmp("ne", strides, NULL)
        space = fn.alloca("i64", max(len(dims), 1), 8)
        step: Value = integer("i64", 1)
        for index in reversed(range(len(dims))):
            fn.store(step, fn.gep("i64", space, integer("i64", index)))
            step = fn.binary("mul", step, dims[index])
        source = fn.select(given, strides, space)
        return [fn.load("i64", fn.gep("i64", source, integer("i64", i)), 8) for i in range(len(dims))]

    # ------------------------------------------------------------ sizes, results

    def _sizes(self) -> None:
        """Workspace bytes and symbols to `out`; whatever does not fit 64 bits is an error."""
        fn, func = self.fn, self.func
        code = self.code
        fits: Value = integer("i1", 1)
        for place, expr in func.places:
            value = code.symbols[place] = code.value(expr)
            fits = fn.binary("and", fits, fn.icmp("ult", value, integer("i64", _MOST_BYTES)))
        for leaf in func.outputs():
            for dim in leaf.dims:
                code.value(dim)
        assert code.failed is not None
        fits = fn.binary("and", fits, fn.binary("xor", code.failed, integer("i1", 1)))
        self._unless(fits, "MEMORY", "the intermediates or results are too large")
        fn.store(code.value(func.workspace), self.out, 8)
        for index, symbol in enumerate(func.symbols):
            fn.store(code.symbols[symbol], fn.gep("i64", self.out, integer("i64", 1 + index)), 8)

    def _output(self, leaf: Leaf, index: int) -> Loaded | None:
        fn = self.fn
        pointer = fn.load("ptr", fn.gep("i64", self.args, integer("i64", index)), 8)
        if leaf.kind == "tensor":
            before = len(self._later)
            made = self._tensor(leaf, pointer)
            for what, expr, value in self._later[before:]:
                self._expect(what, expr, value)
            del self._later[before:]
            return made
        if leaf.kind != "shape" or leaf.dims:
            self._unless(fn.icmp("ne", pointer, NULL), "NULL", f"`{leaf.name}` is null")
        return None

    def _overlaps(self, tensors: list[Loaded]) -> None:
        written = [i for i, t in enumerate(tensors) if t.leaf.written]
        if not written or len(tensors) < 2:
            return
        fn = self.fn
        helper = self.shared.ctx.module.helper(OVERLAPS, _OVERLAPS_TEXT)
        pair = "{ i64, i64 }"
        ranges = fn.alloca(pair, len(tensors), 8, "ranges")
        for index, tensor in enumerate(tensors):
            place = fn.gep(pair, ranges, integer("i64", index))
            fn.store(tensor.start, place)
            fn.store(tensor.end, fn.gep(pair, place, integer("i64", 0), integer("i32", 1)))
        for index in written:
            hit = fn.call("i1", helper, [ranges, integer("i64", len(tensors)), integer("i64", index)])
            text = f"`{tensors[index].leaf.name}` shares memory with another argument"
            self._unless(fn.binary("xor", hit, integer("i1", 1)), "OVERLAP", text)
