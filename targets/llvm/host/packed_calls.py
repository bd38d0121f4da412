"""Emit calls of packed functions from the graph: every argument as a DLTensor, all in one stack allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, FLOAT64, INT64, UINT8
from mlcc.targets.llvm.codegen import casts, packed
from mlcc.targets.llvm.codegen.context import PACKED_CALL
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import NULL, integer
from mlcc.targets.llvm.codegen.ir_text import Value as Operand
from mlcc.targets.plan.steps import CallPacked, Scalar, Shape, Step, Tensor, Text, Value, walk_steps

_TENSOR_CELLS = 6  # 64-bit words of a DLTensor


class PackedCalls:
    """The emitter of calls in one function.

    `address` returns the memory of a tensor, `scalar` the value of an expression.
    """

    def __init__(
        self, emitter: Emitter, steps: list[Step], address: Callable[[Tensor], Operand],
        scalar: Callable[[tir.Expr], Operand],
    ) -> None:  # fmt: skip
        self.e = emitter
        self.fn = emitter.fn
        self.address = address
        self.scalar = scalar
        needs = [_cell_count(step) for step in walk_steps(steps) if isinstance(step, CallPacked)]
        self.area = self.fn.alloca("i64", max(needs), 8, "packed") if needs else NULL
        self._used = 0

    def call(self, step: CallPacked) -> Operand:
        """Call the function of a slot; return its error code."""
        fn = self.fn
        self._used = 0
        pointers = self._allocate_cells(len(step.args))
        for index, arg in enumerate(step.args):
            fn.store(self._tensor(arg), fn.gep("ptr", pointers, integer("i64", index)))
        callee = fn.module.declare(PACKED_CALL, "i32", ["i32", "ptr", "i32"])
        return fn.call("i32", callee, [integer("i32", step.slot), pointers, integer("i32", len(step.args))])

    def _allocate_cells(self, cells: int) -> Operand:
        """Return the address of the next free words of the area."""
        offset = self._used
        self._used += cells
        return self.fn.gep("i64", self.area, integer("i64", offset))

    def _store_cells(self, values: Sequence[Operand]) -> Operand:
        if not values:
            return NULL
        address = self._allocate_cells(len(values))
        for index, value in enumerate(values):
            self.fn.store(value, self.fn.gep("i64", address, integer("i64", index)), 8)
        return address

    def _tensor(self, arg: Value) -> Operand:
        fn = self.fn
        address = self._allocate_cells(_TENSOR_CELLS)
        match arg:
            case Tensor(dims=dims, dtype=dtype):
                shape = self._store_cells([self.scalar(d) for d in dims])
                packed.fill_tensor(fn, address, self.address(arg), dtype, len(dims), shape)
            case Shape(dims=dims):
                data = self._store_cells([self.scalar(d) for d in dims])
                packed.fill_tensor(fn, address, data, INT64, 1, self._store_cells([integer("i64", len(dims))]))
            case Text(value=text):
                raw = text.encode()
                packed.fill_tensor(
                    fn, address, fn.module.string(raw), UINT8, 1, self._store_cells([integer("i64", len(raw))])
                )
            case Scalar(value=expr):
                dtype = BOOL if expr.dtype.is_bool else FLOAT64 if expr.dtype.is_float else INT64
                value = self.scalar(expr)
                if dtype is FLOAT64:
                    value = casts.cast(self.e, value, expr.dtype, FLOAT64)
                elif dtype is BOOL:
                    value = fn.convert("zext", value, "i8")
                data = self._allocate_cells(1)
                fn.store(value, data)
                packed.fill_tensor(fn, address, data, dtype, 0, NULL)
            case _:
                raise AssertionError(f"{type(arg).__name__} cannot be an argument")
        return address


def _cell_count(step: CallPacked) -> int:
    """Return the number of 64-bit words for the arguments of a call."""
    total = len(step.args)
    for arg in step.args:
        match arg:
            case Tensor(dims=dims):
                total += _TENSOR_CELLS + len(dims)
            case Shape(dims=dims):
                total += _TENSOR_CELLS + len(dims) + 1
            case _:
                total += _TENSOR_CELLS + 1
    return max(total, 1)
