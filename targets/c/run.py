"""Print `PREFIX_f_run`: the steps of a planned function, with nothing checked again."""

from __future__ import annotations

import re

from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, FLOAT64, INT64, UINT8
from mlcc.targets.c import expressions as ex
from mlcc.targets.c import host_helpers, packed
from mlcc.targets.c.context import Shared
from mlcc.targets.c.dtypes import is_narrow_float, memory_type, register_type, suffix
from mlcc.targets.c.host_writer import CheckedSizes, HostWriter
from mlcc.targets.c.lines import wrapped
from mlcc.targets.plan.prim import offset_bytes
from mlcc.targets.plan.steps import (
    Branch,
    CallKernel,
    CallPacked,
    Check,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    NextIteration,
    ReadSymbol,
    Scalar,
    Shape,
    Step,
    Tensor,
    Text,
    Value,
    tensors_of,
    walk_steps,
)
from mlcc.targets.source.expressions import EQUAL, PRODUCT, UNARY

_EXTENT = (0, (1 << 62) - 1)


def run_text(func: HostFunction, shared: Shared, symbol: str) -> str:
    """Return the run function of one host function."""
    return _Run(func, shared).text(symbol)


class _Run:
    def __init__(self, func: HostFunction, shared: Shared) -> None:
        self.func = func
        self.shared = shared
        self.w = HostWriter(shared)
        self.w.taken |= {"args", "symbols", "workspace", "cells", "room"}
        self._pointers: dict[Memory, str] = {}
        self._leaves = [*func.inputs(), *func.outputs()]

    def text(self, symbol: str) -> str:
        func, w = self.func, self.w
        w.lines.add("const int64_t *cells = (const int64_t *)args;", "cells")
        w.lines.add("unsigned char *room = (unsigned char *)workspace;", "room")
        self._read_symbols()
        for end, expr in func.places:
            printed = w.size(expr)
            name = w.define(end)
            w.lines.add(f"const int64_t {name} = {printed};", name)
        for memory in self._memories():
            self._define_pointer(memory)
        for step in walk_steps(func.steps):
            if isinstance(step, ReadSymbol):
                name = w.define(step.symbol)
                w.lines.add(f"int64_t {name} = 0;", name)
        self._steps(func.steps)
        self._values()
        self._extents()
        w.lines.add("return 0;")
        lines, used = w.lines.finish()
        text = "\n".join(lines)
        words = set(re.findall(r"[a-z]+", text))
        ignored = [f"    (void){name};" for name in ("args", "symbols", "workspace") if name not in words]
        head = f"int32_t {symbol}(const void *args, const int64_t *symbols, void *workspace) {{"
        return "\n".join([head, *ignored, *lines, "}"])

    # ------------------------------------------------------------ entry

    def _read_symbols(self) -> None:
        w = self.w
        for index, symbol in enumerate(self.func.symbols):
            name = w.define(symbol)
            w.lines.add(f"const int64_t {name} = symbols[{index}];", name)
        for leaf in self._leaves:
            for dim in leaf.dims:
                if isinstance(dim, tir.Var):
                    w.ranges.bind(dim, _EXTENT)
        for index, leaf in enumerate(self.func.inputs()):
            if leaf.kind == "scalar" and leaf.dtype is not None and leaf.dtype.is_float:
                assert isinstance(leaf.value, tir.Var)
                w.use("double_of", host_helpers.CELL_FLOAT)
                value = f"double_of({w.cell(index)})"
                if is_narrow_float(leaf.dtype):
                    value = f"{w.helpers.use('odd_from_f64')}({value})"
                    value = f"{w.helpers.use(f'round_{suffix(leaf.dtype)}')}({value})"
                name = w.define(leaf.value)
                type = register_type(leaf.dtype)
                w.lines.add(f"const {type} {name} = {'(float)' if type == 'float' else ''}{value};", name)

    def _memories(self) -> list[Memory]:
        """Return the pieces of memory that the steps use."""
        memories: dict[Memory, None] = {}
        for step in walk_steps(self.func.steps):
            for tensor in tensors_of(step):
                memories.setdefault(tensor.memory.root())
            if isinstance(step, CallPacked):
                memories.update(dict.fromkeys(a.memory.root() for a in step.args if isinstance(a, Tensor)))
        return list(memories)

    def _define_pointer(self, memory: Memory) -> None:
        """Define a pointer to the start of a piece of memory that an argument gives."""
        if memory.place not in (MemoryKind.ARGUMENT, MemoryKind.RESULT):
            return
        w = self.w
        leaf = self._leaves[memory.index]
        cell = w.cell(memory.index)
        if leaf.kind == "pointer":
            w.use("pointer_of", host_helpers.POINTER)
            value = f"(unsigned char *)pointer_of({cell})"
        else:
            w.use("tensor_of", host_helpers.TENSOR)
            w.use("data_of", host_helpers.DATA)
            value = f"data_of({cell})"
            shift = offset_bytes(leaf)
            if tir.const_int(shift) != 0:
                value += f" - {w.size(shift, PRODUCT)}"
        name = self._pointers[memory] = w.fresh(leaf.name or "out")
        w.lines.add(f"unsigned char *{name} = {value};", name)

    # ------------------------------------------------------------ values

    def _address(self, tensor: Tensor, type: str) -> str:
        """Print the address of a tensor's first element as a pointer to `type`."""
        memory = tensor.memory.root()
        w = self.w
        known = tir.const_int(tensor.offset)
        offset = "" if known == 0 else f" + {w.size(tensor.offset, PRODUCT)}"
        star = f"{type}*" if type.endswith("*") else f"{type} *"
        if memory.place is MemoryKind.CONSTANT:
            data = self.shared.constants[memory.index]
            name = constant_name(memory.index)
            if not offset and memory_type(data.dtype) == type:
                return f"({star}){name}"
            return f"({star})(void *)((unsigned char *){name}{offset})"
        if memory.place is MemoryKind.TEMPORARY:
            assert memory.offset is not None
            start = w.size(memory.offset, PRODUCT)
            return f"({star})(void *)({'room'} + {start}{offset})"
        name = self._pointers[memory]
        return f"({star})(void *)({name}{offset})" if offset else f"({star})(void *){name}"

    def _scalar(self, expr: tir.Expr) -> str:
        return self.w.text(expr)

    def _condition(self, condition: Scalar | Tensor) -> str:
        if isinstance(condition, Tensor):
            return f"*{self._address(condition, 'uint8_t')} != 0"
        value = self.w.text(condition.value, EQUAL + 1)
        return value if condition.value.dtype.is_bool else f"{value} != 0"

    # ------------------------------------------------------------ steps

    def _steps(self, steps: list[Step]) -> None:
        w = self.w
        for step in steps:
            match step:
                case CallKernel():
                    self._kernel(step)
                case CallPacked():
                    self._packed(step)
                case Copy(target=target, source=source):
                    places = f"{self._address(target, 'unsigned char')}, {self._address(source, 'unsigned char')}"
                    w.lines.add(f"memmove({places}, (size_t){w.size(target.size, UNARY)});")
                case Check():
                    self._check(step)
                case ReadSymbol(symbol=symbol, source=source, code=code):
                    address = self._address(source, "int64_t")
                    name = w.name(symbol)
                    w.lines.add(f"{name} = *{address};")
                    w.lines.add(f"if ({name} < 0) return {code};")
                case Branch(condition=condition, then_steps=then_steps, else_steps=else_steps):
                    head = f"if ({self._condition(condition)})"
                    with w.lines.block(head, "} else {" if else_steps else "}"):
                        self._steps(then_steps)
                    if else_steps:
                        with w.lines.continued():
                            self._steps(else_steps)
                case Loop(steps=inner):
                    with w.lines.block("for (;;)"):
                        self._steps(inner)
                        w.lines.add("break;")
                case NextIteration():
                    w.lines.add("continue;")

    def _kernel(self, step: CallKernel) -> None:
        w = self.w
        kernel = self.shared.ctx.kernels[step.kernel]
        args: list[str] = []
        for param, arg in zip(kernel.signature.params, step.args, strict=True):
            if isinstance(arg, Tensor):
                dtype = None if param.buffer is None else param.buffer.dtype
                args.append(self._address(arg, "void" if dtype is None else memory_type(dtype)))
            else:
                dtype = param.var.dtype
                args.append(
                    ex.convert(w, arg.value, dtype)[1] if arg.value.dtype is not dtype else self._scalar(arg.value)
                )
        args += [w.size(symbol) for symbol in step.symbols]
        result = kernel.signature.result
        if result is not None:
            name = w.fresh("ignored")
            w.lines.add(f"{memory_type(result)} {name};")
            args.append(f"&{name}")
        if kernel.takes_workspace:
            if step.workspace is None:
                args.append("NULL")
            else:
                offset = step.workspace.root().offset
                assert offset is not None
                args.append(f"{'room'} + {w.size(offset, PRODUCT)}")
        self._call("\n".join(wrapped(f"{kernel.name}(", args, ")")), kernel.fails)

    def _call(self, call: str, fails: bool) -> None:
        """Print a call, and the return of its error code."""
        w = self.w
        if not fails:
            w.lines.add(f"{call};")
            return
        with w.lines.block(""):
            w.lines.add(f"const int32_t code = {call};")
            w.lines.add("if (code != 0) return code;")

    def _packed(self, step: CallPacked) -> None:
        w = self.w
        with w.lines.block(""):
            names = [self._packed_argument(arg) for arg in step.args]
            args = "NULL"
            if names:
                args = w.fresh("tensors")
                w.lines.add(f"DLTensor *{args}[{len(names)}] = {{{', '.join(f'&{n}' for n in names)}}};")
            w.lines.add(f"const int32_t code = {packed.PACKED_CALL}({step.slot}, {args}, {len(names)});")
            w.lines.add("if (code != 0) return code;")

    def _packed_argument(self, arg: Value) -> str:
        """Print the definition of a DLTensor for an argument; return its name."""
        w = self.w
        match arg:
            case Tensor(dims=dims, dtype=dtype):
                shape = self._numbers([self._scalar(d) for d in dims])
                value = packed.tensor(self._address(arg, "void"), dtype, shape, len(dims))
            case Shape(dims=dims):
                data = self._numbers([self._scalar(d) for d in dims])
                value = packed.tensor(data, INT64, self._numbers([str(len(dims))]), 1)
            case Text(value=text):
                length = self._numbers([str(len(text.encode()))])
                value = packed.tensor(ex.string_literal(text), UINT8, length, 1)
            case Scalar(value=expr):
                dtype = BOOL if expr.dtype.is_bool else FLOAT64 if expr.dtype.is_float else INT64
                name = w.fresh("scalar")
                printed = ex.convert(w, expr, dtype)[1]
                w.lines.add(f"{memory_type(dtype)} {name} = {printed};")
                value = packed.tensor(f"&{name}", dtype, "NULL", 0)
            case _:
                raise AssertionError(f"{type(arg).__name__} cannot be an argument")
        name = w.fresh("tensor")
        w.lines.add(f"DLTensor {name} = {value};")
        return name

    def _numbers(self, values: list[str]) -> str:
        if not values:
            return "NULL"
        name = self.w.fresh("dims")
        self.w.lines.add(f"int64_t {name}[{len(values)}] = {{{', '.join(values)}}};")
        return name

    def _check(self, step: Check) -> None:
        w = self.w
        if not step.exact or isinstance(step.condition, Tensor):
            w.lines.add(f"if (!({self._condition(step.condition)})) return {step.code};")
            return
        with w.lines.block(""):
            overflow = "overflow"
            w.lines.add(f"bool {overflow} = false;", overflow)
            value = CheckedSizes(w, self.func.dims).value(step.condition.value)
            holds = w.text(value, UNARY)
            w.lines.add(f"if ({overflow} || !{holds}) return {step.code};")

    # ------------------------------------------------------------ results that are not tensors

    def _values(self) -> None:
        """Store results other than tensors: numbers, and the values of shapes."""
        w = self.w
        last: dict[int, int] = {}
        for leaf, expr in self.func.values:
            element = last[leaf] = last.get(leaf, -1) + 1
            dtype = BOOL if expr.dtype.is_bool else FLOAT64 if expr.dtype.is_float else INT64
            w.use("pointer_of", host_helpers.POINTER)
            type = "bool" if dtype is BOOL else memory_type(dtype)
            target = f"(({type} *)pointer_of({w.cell(leaf)}))[{element}]"
            w.lines.add(f"{target} = {ex.convert(w, expr, dtype)[1]};")

    def _extents(self) -> None:
        """Store data-dependent extents of results to the shapes of their DLTensors."""
        w = self.w
        first = len(self.func.inputs())
        for index, leaf in enumerate(self.func.outputs(), first):
            for axis, dim in enumerate(leaf.actual or ()):
                tensor = w.tensor(index)
                w.lines.add(f"{tensor}->shape[{axis}] = {w.text(dim)};")


def constant_name(number: int) -> str:
    return f"constant_{number}"
