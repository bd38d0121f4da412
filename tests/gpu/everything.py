"""Kernels that hold every operation of TensorIR on every dtype and number of lanes, and their PTX in a child process.

LLVM ends the process on what it cannot select. So `python -m tests.gpu.everything ARCH SHARE START` (every SHARE-th,
from START on) prints the name of each kernel before it is compiled: the last one printed is the one that it ended on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from mlcc import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.intrinsics import INTRINSICS, Intrinsic, result_dtype
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.targets.cuda.emitter import DeviceEmitter
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.llvm.codegen.calls import _LLVM_INTRINSICS
from mlcc.targets.llvm.codegen.device_externs import EXTERNS

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
LANES = (1, 2, 3, 4, 8, 16)
OPERATORS = (
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ, tir.NE, tir.LT,
    tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)  # fmt: skip
SHUFFLES = ("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down", "tvm_warp_shuffle_xor")


def kernel(name: str, dtype: DType, result: DType, arity: int, make: Callable[..., tir.Expr]) -> DeviceKernel:
    """out[i] = make(in0[i], in1[i], ...) by vectors of the lanes of the dtypes."""
    tx = tir.Var("tx", INT32)
    size = 32 * max(dtype.lanes, result.lanes)
    given = [c.make_buffer(f"A{n}", (size,), dtype.element) for n in range(arity)]
    out = c.make_buffer("B", (size,), result.element)
    values = [tir.BufferLoad(dtype, b, (_index(tx, dtype.lanes),)) for b in given]
    made = make(*values)
    body = (tir.BufferStore(out, made, (_index(tx, result.lanes),)),)
    buffers = (*given, out)
    return DeviceKernel(
        name, tuple(b.data for b in buffers), buffers, {"threadIdx.x": c.const(32)}, {"threadIdx.x": tx}, body,
        c.const(0, "int64"), (), {"tir.noalias": True},
    )  # fmt: skip


def _index(tx: tir.Var, lanes: int) -> tir.Expr:
    return tx if lanes == 1 else tir.Ramp(INT32.with_lanes(lanes), c.mul(tx, lanes), c.const(1), lanes)


def everything(dtypes: Sequence[str] = DTYPES, lanes: Sequence[int] = LANES) -> Iterator[DeviceKernel]:
    """A kernel for each; which of them are refused is for the target to say."""
    for text in dtypes:
        for count in lanes:
            yield from _of(DType.of(text).with_lanes(count))


def _of(dtype: DType) -> Iterator[DeviceKernel]:
    flag = DType.of("bool").with_lanes(dtype.lanes)
    for node in OPERATORS:
        logical = issubclass(node, (tir.And, tir.Or))
        result = flag if logical or issubclass(node, tir.CompareOp) else dtype
        if dtype.is_bool or not logical:
            yield kernel(f"{node.__name__}.{dtype}", dtype, result, 2, lambda a, b, n=node, r=result: n(r, a, b))
    if dtype.is_bool:
        yield kernel(f"Not.{dtype}", dtype, flag, 1, lambda a: tir.Not(flag, a))
    for other in DTYPES:
        target = DType.of(other).with_lanes(dtype.lanes)
        yield kernel(f"Cast.{dtype}.{other}", dtype, target, 1, lambda a, t=target: tir.Cast(t, a))
    yield kernel(f"Select.{dtype}", dtype, dtype, 3, lambda a, b, z: tir.Select(dtype, tir.LT(flag, a, b), b, z))
    for found in INTRINSICS.values():
        if found.name in DeviceEmitter.CALLS or str(dtype) == "float32":
            for arity in (0, 1, 2, 3, 4):
                if found.takes(arity):
                    yield from _calls(found, dtype, arity)
    for name in SHUFFLES:
        for width in (8, 32):
            rest = (c.const(1), c.const(width), c.const(32))
            yield kernel(
                f"{name}.{width}.{dtype}",
                dtype,
                dtype,
                1,
                lambda a, n=name, r=rest: _call(n, dtype, c.const(-1), a, *r),
            )
    for name, arity in _LLVM_INTRINSICS.items():
        make = lambda *args, n=name: _call("call_llvm_pure_intrin", dtype, tir.StringImm(f"llvm.{n}"), *args)  # noqa: E731
        yield kernel(f"llvm.{name}.{dtype}", dtype, dtype, arity, make)
    for name, (_, bits) in EXTERNS.items():
        for arity in (1, 2) if bits == dtype.bits else ():
            make = lambda *args, n=name: _call("call_pure_extern", dtype, tir.StringImm(n), *args)  # noqa: E731
            yield kernel(f"extern.{name}/{arity}.{dtype}", dtype, dtype, arity, make)
    yield kernel(f"atomic_add.{dtype}", dtype, dtype, 1, lambda a: _call("atomic_add", dtype, _address(a), a))


def _calls(of: Intrinsic, dtype: DType, arity: int) -> Iterator[DeviceKernel]:
    """Calls with arguments of one dtype; those that state their result have each one of so many lanes."""
    given = tuple(tir.Var("x", dtype) for _ in range(arity))
    known = None if of.result == "second" and arity < 2 else result_dtype(of, given)
    others = (str(dtype.element), "float32", "int32", "float16")
    results = [known] if known is not None else [DType.of(t).with_lanes(dtype.lanes) for t in others]
    for result in results:
        if result.is_handle or result.is_void:
            continue
        make = lambda *args, n=of.name, r=result: _call(n, r, *args)  # noqa: E731
        yield kernel(f"{of.name}/{arity}.{dtype}.{result}", dtype, result, arity, make)


def _call(name: str, dtype: DType, *args: tir.Expr) -> tir.Call:
    return tir.Call(dtype, tir.Op(f"tir.{name}"), args)


def _address(place: tir.Expr) -> tir.Expr:
    return _call("address_of", DType.of("handle"), place)


def main(arch: str, share: int, start: int) -> None:
    """Print each name, then what became of it: `taken`, `refused`, or what is wrong; ptxas gets all that were taken."""
    taken: list[DeviceKernel] = []
    kinds = [DType.of(text).with_lanes(count) for text in DTYPES for count in LANES]
    coarse = min(share, 18)  # of the dtypes; those that are left out cost no time
    chosen = kinds[start % coarse :: coarse]
    for made in islice(chain.from_iterable(map(_of, chosen)), start % (share // coarse), None, share // coarse):
        print(made.name, end=" ", flush=True)
        try:
            emit_ptx([made], f"cuda{{arch={arch}}}", opt_level=1)
            print("taken")
            taken.append(made)
        except CompileError as exc:
            codes = {d.code for d in exc.diagnostics}
            print("refused" if codes <= {"E0730", "E0732"} else f"wrong: {sorted(codes)}")
        except RuntimeError as exc:
            print(f"wrong: {' '.join(str(exc).split())}")
    if find_ptxas() is not None:
        print(f"{len(assemble(emit_ptx(taken, f'cuda{{arch={arch}}}').text, arch))} assembled")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
