"""Do two programs compute the same? By the reference interpreter, on random inputs."""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import ForKind
from mlcc.ir.visit import Rewriter
from mlcc.verify import verify
from tests.targets.arguments import arguments, assert_alike, duplicate


def inputs(func: tir.PrimFunc, seed: int, most: int = 8) -> list[Any]:
    """Arguments for a generated program; what is used to index stays in bounds, sizes that are not known are at most
    `most`."""
    made, _ = arguments(func, seed, most)
    for i, (buffer, array) in enumerate(zip(func.buffers, made, strict=True)):
        if buffer is not None and buffer.name == "I":  # numbers of rows of `A`
            rows = next(m.shape[0] for b, m in zip(func.buffers, made, strict=True) if b is not None and b.name == "A")
            made[i] = (array % rows).astype(array.dtype)
    return made


def main_of(module: IRModule) -> tir.PrimFunc:
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    return func


def problems(module: IRModule) -> list[str]:
    """What the verifier finds; but for the sizes of kernels, which are judged when they are built."""
    return [d.message for d in verify(module) if "threads here" not in d.message]


def has_threads(func: tir.PrimFunc) -> bool:
    return any(isinstance(n, tir.For) and n.kind is ForKind.THREAD_BINDING for s in func.body for n in walk(s))


class _Serial(Rewriter):
    """Loops bound to threads as plain loops: what a machine with one thread would do."""

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, tir.For) and node.kind is ForKind.THREAD_BINDING:
            return tir.For(
                node.var, node.min, node.extent, ForKind.SERIAL, node.body, None, node.annotations, node.step
            )
        return node


def on_host(func: tir.PrimFunc) -> tir.PrimFunc:
    return _Serial().visit(func) if has_threads(func) else func  # type: ignore[no-any-return]


def _interface(func: tir.PrimFunc) -> tir.PrimFunc:
    return replace(func, body=())  # type: ignore[no-any-return]


def difference(before: IRModule, after: IRModule, seed: int = 0) -> str:
    """What is wrong with a program that should compute what another one does; empty if it does."""
    first, last = main_of(before), main_of(after)
    if not mlcc.structural_equal(_interface(first), _interface(last)):
        return ""  # its callers have to know: no way to compare
    found = problems(after)
    if found:
        return f"it does not verify: {found[0]}"
    given = inputs(first, seed)
    want, have = duplicate(given), duplicate(given)
    run_prim_func(on_host(first), want)
    try:
        run_prim_func(on_host(last), have)
        assert_alike(first, have, want, "")
    except AssertionError:
        return "it gives other numbers"
    except Exception as exc:
        return f"it fails: {str(exc).splitlines()[0]}"
    return ""
