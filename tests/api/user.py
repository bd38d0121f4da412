"""A user's file: what docs/python.md shows, with types. mypy --strict finds nothing wrong in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import mlcc
from mlcc import relax, te


def matmul(A: te.Tensor, B: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, A.shape[1]), name="k")
    C: te.Tensor = te.compute((A.shape[0], B.shape[1]), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="matmul")
    return C


def module() -> mlcc.IRModule:
    n = te.var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 8), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((8, 4), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y: relax.Var = bb.emit_te(matmul, x, w)
            out = bb.emit_output(bb.call_te(lambda a: te.compute(a.shape, lambda *i: te.max(a(*i), 0)), y))
        bb.emit_func_output(out)
    return bb.get()


def layer(bb: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, b: np.ndarray) -> relax.Var:
    call: relax.Call = relax.op.nn.relu(relax.op.matmul(x, w) + b)
    return bb.emit(call)


def layers() -> mlcc.IRModule:
    x = relax.Var("x", relax.TensorStructInfo((1, 8), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = layer(bb, x, relax.const(np.full((8, 4), 0.5, "float32")), np.zeros(4, "float32"))
            pair = bb.emit((y, relax.op.sum(y, axis=[1])))
            out = bb.emit_output(pair[1])
        bb.emit_func_output(out)
    return bb.get()


class FuseMultiplyAdd(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        found: relax.Expr = self.visit_expr_post_order(call)
        if not isinstance(found, relax.Call) or found.op != relax.Op.get("relax.add"):
            return found
        value = self.lookup_binding(found.args[0])
        if not isinstance(value, relax.Call) or value.op != relax.Op.get("relax.multiply"):
            return found
        return relax.op.ewise_fma(value.args[0], value.args[1], found.args[1])

    def transform(self, mod: mlcc.IRModule) -> mlcc.IRModule:
        for gv in mod.get_global_vars():
            func = mod[gv]
            if isinstance(func, relax.Function):
                made = self.visit_expr(func)
                assert isinstance(made, relax.Function)
                self.builder_.update_func(gv, relax.analysis.remove_all_unused(made))
        return self.builder_.get()


def tiled(mod: mlcc.IRModule) -> mlcc.IRModule:
    sch = mlcc.Schedule(mod, seed=0)
    block = sch.get_block("matmul", func_name="matmul")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, factors=[None, 4])
    sch.reorder(outer, k, inner)
    sch.vectorize(inner)
    init = sch.decompose_reduction(block, k)
    sch.annotate(sch.get_loops(init)[0], "note", 1)
    print(sch.trace, sch.nest(), i)
    return sch.mod


def run(mod: mlcc.IRModule, path: str) -> list[float]:
    target = mlcc.Target.parse("llvm")
    lowered: mlcc.IRModule = mlcc.run_passes(mod, "fuse,lower-to-tir,fuse-tir", target=target)
    artifact: mlcc.Artifact = mlcc.build(lowered, target="llvm", opt_level=2)
    artifact.save(path)
    print(artifact.manifest["target"], artifact.emit(), artifact.header(), mlcc.script(mod), mod.script())
    exe: mlcc.Executable = mlcc.load(path)
    call: Callable[..., object] = exe["main"].bind(np.ones((3, 8), "float32"), np.ones((8, 4), "float32"))
    call()
    gpu = mlcc.load(mlcc.build(mod, "cuda{arch=sm_80}"), emulate=True)
    print(gpu["main"].parameter_names, mlcc.lint(mod), mlcc.get_num_threads())
    return [float(t) for t in exe.time_evaluator("main", number=3)(np.ones((3, 8), "float32")).times]


@mlcc.register_func
def twice(x: np.ndarray, y: np.ndarray) -> None:
    y[...] = 2 * np.asarray(x)


if __name__ == "__main__":
    first = mlcc.parse("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return R.add(x, x)\n")
    mlcc.assert_structural_equal(first, mlcc.parse(str(first)))
    try:
        run(tiled(module()), "m.o")
    except mlcc.CompileError as exc:
        print(exc.diagnostics)
