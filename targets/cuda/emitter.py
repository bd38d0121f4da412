"""The emitter for the code of one GPU thread, derived from that of the llvm target.

The differences: pointers have address spaces, a kernel returns nothing, failed checks are stored for the host, and
there are GPU intrinsics in place of calls of packed functions, kernels and C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, ClassVar

from mlcc.arith.modular import Residues
from mlcc.ir import tir
from mlcc.targets.cuda import barriers, bulk, intrinsics, tensor_cores, wgmma
from mlcc.targets.cuda.addresses import split_index
from mlcc.targets.cuda.context import DeviceContext
from mlcc.targets.cuda.storage import ALIGNMENT, DeviceStorage
from mlcc.targets.llvm.codegen import calls
from mlcc.targets.llvm.codegen import gpu_index_checks as noting
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value
from mlcc.targets.llvm.codegen.refuse import unsupported


class DeviceEmitter(Emitter):
    """The emitter of one kernel.

    `error` is the address of the error record; `unrolled` are the variables of loops that LLVM must unroll;
    `accumulators` are those of warpgroup products.
    """

    TARGET: ClassVar[str] = "cuda"
    MASKED_MEMORY: ClassVar[bool] = False  # NVPTX aborts on masked loads whose mask becomes constant
    CALLS: ClassVar[Mapping[str, Callable[[Any, tir.Call], Value]]] = {
        **calls.TABLE,
        **intrinsics.TABLE,
        **tensor_cores.TABLE,
        **barriers.TABLE,
        **bulk.TABLE,
        **wgmma.TABLE,
    }

    def __init__(self, fn: FunctionText, ctx: DeviceContext, storage: DeviceStorage) -> None:
        super().__init__(fn, ctx, storage)
        self.arch = ctx.arch
        self.error = NULL
        self.unrolled: frozenset[tir.Var] = frozenset()
        self.aligned: set[tir.Var] = set()  # memory that starts at a multiple of ALIGNMENT
        self._residues = Residues()
        self.accumulators: Mapping[tir.Var, tir.Buffer] = {}

    def expr(self, node: tir.Expr) -> Value:
        if isinstance(node, (tir.Min, tir.Max)) and self._has_instruction(node):
            name = "llvm.maximum" if isinstance(node, tir.Max) else "llvm.minimum"
            return self.intrinsic(name, self.expr(node.lhs), self.expr(node.rhs))
        return super().expr(node)

    def _has_instruction(self, node: tir.Min | tir.Max) -> bool:
        """Return True if a minimum or maximum is one instruction (`max.NaN`), which takes -0.0 to be less than 0.0:
        one of `T.assume_number`, where the sign of zeros does not count."""
        is_number = any(isinstance(x, tir.Call) and x.op == _ASSUME_NUMBER for x in (node.lhs, node.rhs))
        return is_number and self.arch.number >= _FIRST_WITH_NAN and str(node.dtype) == "float32"

    def needs_isa(self, isa: tuple[int, int]) -> None:
        """Require at least this PTX ISA for the module."""
        assert isinstance(self.ctx, DeviceContext)
        self.ctx.isa = max(self.ctx.isa, isa)

    def body(self, statements: tuple[tir.Stmt, ...]) -> None:
        """Emit statements inline: outlined functions would spill registers to memory."""
        self.plain_body(statements)

    def leave(self, code: Value) -> None:
        """End the thread; store the number of a failed assertion in the error record."""
        if code.ref != "0":
            self.fn.store(code, self.error, 4)
        self.fn.ret()

    def check_index(self, index: Value, place: Value, inside: Value, extent: Value, code: int) -> Value:
        return noting.check_index(self, self.error, index, place, inside, extent, code)

    def allocate(self, buffer: tir.Buffer) -> Value:
        self.aligned.add(buffer.data)
        return super().allocate(buffer)

    def alignment(self, buffer: tir.Buffer, index: tir.Expr) -> int:
        """Return the known alignment of a vector access, derived from the residues of its index.

        LLVM derives little by itself, and splits accesses that are not known to be aligned.
        """
        known = super().alignment(buffer, index)
        if not isinstance(index, tir.Ramp) or tir.const_int(index.stride) != 1 or buffer.data not in self.aligned:
            return known
        divisor = gcd(ALIGNMENT, *(known * part for part in self._residues.of(index.base)))
        return max(divisor & -divisor, known)

    def index_parts(self, node: tir.Expr) -> tuple[Value, ...]:
        parts = split_index(node, self.unrolled)
        return (self.index(node),) if parts is None else tuple(self.index(part) for part in parts)

    def module_function(self, name: str, args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
        raise unsupported(f"a kernel cannot call the PrimFunc `{name}`", node.span, help="inline it")

    def loop_hint(self, stmt: tir.For) -> str:
        if stmt.var not in self.unrolled:
            return ""
        module = self.ctx.module
        return module.metadata(f"!self, {module.metadata(_UNROLL)}", distinct=True)


_ASSUME_NUMBER = tir.Op("tir.assume_number")
_FIRST_WITH_NAN = 80  # first architecture with `max.NaN`
_UNROLL = '!"llvm.loop.unroll.full"'
