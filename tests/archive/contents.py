"""What the archive keeps of a version: texts in every dialect, scripts, records, and artifacts of every kind."""

from __future__ import annotations

TODAY = """# a model of two layers, and a kernel that it calls
# mlcc.data-file weights.npz

@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6, 8), "float32")):
        # twice everything
        for i, j in T.grid(6, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)  # exact

    @R.function
    def main(x: R.Tensor((6, 16), "float32"), y: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        cls = Module
        w = R.data("w", R.Tensor((16, 8), "float32"))
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.call_tir(cls.scale, (a,), out_sinfo=R.Tensor((6, 8), "float32"))
            c = R.matmul(y, R.permute_dims(b))  # (n, 6)
            d: R.Tensor((n, 6), "float32") = R.nn.softmax(c, axis=-1)
            R.output(d)
        return d
"""
DIALECT_2022 = """# as texts were written in 2022
import tvm
from tvm.script import relax as R, tir as T

@tvm.script.ir_module
class MyModule:
    @T.prim_func
    def linear(x: T.Buffer[(6, 16), "float32"], w: T.Buffer[(16, 8), "float32"], z: T.Buffer[(6, 8), "float32"]):
        T.func_attr({"global_symbol": "linear", "tir.noalias": True})
        for i, j, k in T.grid(6, 8, 16):  # the reduction is innermost
            with T.block("Z"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    z[vi, vj] = T.float32(0)
                z[vi, vj] = z[vi, vj] + x[vi, vk] * w[vk, vj]

    @R.function
    def main(x: Tensor((6, 16), "float32"), w: Tensor((16, 8), "float32")):
        with relax.dataflow():
            lv0 = R.call_tir(linear, (x, w), (6, 8), dtype="float32")  # by a shape and a dtype
            lv1 = relax.multiply(lv0, lv0)
            relax.output(lv1)
        return lv1
"""
DIALECT_TVM = """# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.script import relax as R

# as TVM 0.27 prints
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def add(x: T.Buffer((T.int64(6), T.int64(16)), "float32"), y: T.Buffer((T.int64(6), T.int64(16)), "float32"), z: T.Buffer((T.int64(6), T.int64(16)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        t = T.sblock_alloc_buffer((T.int64(6), T.int64(16)))
        for i, j in T.grid(T.int64(6), T.int64(16)):
            with T.sblock("t"):
                vi, vj = T.axis.remap("SS", [i, j])
                t[vi, vj] = x[vi, vj] + y[vi, vj]
        for i, j in T.grid(T.int64(6), T.int64(16)):
            with T.sblock("z"):
                vi, vj = T.axis.remap("SS", [i, j])
                z[vi, vj] = t[vi, vj] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((6, 16), dtype="float32"), y: R.Tensor((6, 16), dtype="float32")) -> R.Tensor((6, 16), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv: R.Tensor((6, 16), dtype="float32") = R.call_tir(cls.add, (x, y), out_ty=R.Tensor((6, 16), dtype="float32"))  # a mean
            gv: R.Tensor((6, 16), dtype="float32") = R.nn.relu(lv)
            R.output(gv)
        return gv
"""  # noqa: E501 - lines as TVM prints them
KERNEL = """@T.prim_func
def main(A: T.Buffer((32, 24), "float32"), B: T.Buffer((24, 16), "float32"), C: T.Buffer((32, 16), "float32")):
    for i, j, k in T.grid(32, 16, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
SCRIPT = """# tiles of 8 x 8, then the reduction
def apply(sch):
    block = sch.get_block(name="C", func_name="main")
    i, j, k = sch.get_loops(block=block)
    i0, i1 = sch.split(loop=i, factors=[None, 8])  # rows
    j0, j1 = sch.split(loop=j, factors=[None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(loop=j1)
    sch.decompose_reduction(block=block, loop=k)
"""
SCRIPT_TVM = """# from tvm import s_tir
def apply_trace(sch) -> None:
    b0 = sch.get_sblock(name="C", func_name="main")
    l1, l2, l3 = sch.get_loops(block=b0)
    l4, l5 = sch.split(loop=l1, factors=[4, 8], preserve_unit_iters=True)
    sch.reorder(l4, l2, l5)
    sch.annotate(block_or_loop=l4, ann_key="pragma_auto_unroll_max_step", ann_val=64)
"""
