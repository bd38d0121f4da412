"""Kernels whose design spaces are compared: what operators lower to, alone and fused."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule

# parameters of a graph function, and its bindings; the last one is the result
GRAPHS: dict[str, tuple[str, str]] = {
    "matmul": ("x: R.Tensor((64, 96), 'float32'), w: R.Tensor((96, 128), 'float32')", "y = R.matmul(x, w)"),
    "dense_relu": (
        "x: R.Tensor((64, 96), 'float32'), w: R.Tensor((96, 128), 'float32'), b: R.Tensor((128,), 'float32')",
        "a = R.matmul(x, w); c = R.add(a, b); y = R.nn.relu(c)",
    ),
    "batch_matmul": ("x: R.Tensor((4, 32, 48), 'float32'), w: R.Tensor((4, 48, 40), 'float32')", "y = R.matmul(x, w)"),
    "vector": ("x: R.Tensor((1, 512), 'float32'), w: R.Tensor((512, 10), 'float32')", "y = R.matmul(x, w)"),
    "conv": (
        "x: R.Tensor((1, 16, 14, 14), 'float32'), w: R.Tensor((32, 16, 3, 3), 'float32')",
        "a = R.nn.conv2d(x, w, padding=1); y = R.nn.relu(a)",
    ),
    "depthwise": (
        "x: R.Tensor((1, 16, 14, 14), 'float32'), w: R.Tensor((16, 1, 3, 3), 'float32')",
        "y = R.nn.conv2d(x, w, padding=1, groups=16)",
    ),
    "max_pool": ("x: R.Tensor((1, 8, 16, 16), 'float32')", "y = R.nn.max_pool2d(x, (2, 2), strides=(2, 2))"),
    "softmax": ("x: R.Tensor((12, 80), 'float32')", "y = R.nn.softmax(x)"),
    "sum": ("x: R.Tensor((8, 1000), 'float32')", "y = R.sum(x, axis=1)"),
    "sum_all": ("x: R.Tensor((40, 50), 'float32')", "y = R.sum(x)"),
    "mean_first": ("x: R.Tensor((60, 40), 'float32')", "y = R.mean(x, axis=0)"),
    "layer_norm": (
        "x: R.Tensor((6, 64), 'float32'), g: R.Tensor((64,), 'float32'), b: R.Tensor((64,), 'float32')",
        "y = R.nn.layer_norm(x, g, b, axes=-1)",
    ),
    "elementwise": (
        "x: R.Tensor((33, 70), 'float32'), z: R.Tensor((70,), 'float32')",
        "a = R.multiply(x, z); b = R.exp(a); y = R.add(b, x)",
    ),
    "transpose": ("x: R.Tensor((24, 40, 5), 'float32')", "y = R.permute_dims(x, (1, 2, 0))"),
    "half": ("x: R.Tensor((64, 64), 'float16'), w: R.Tensor((64, 32), 'float16')", "y = R.matmul(x, w)"),
    "unit": ("x: R.Tensor((1, 1), 'float32')", "y = R.nn.relu(x)"),
}

BYTES = """
@T.prim_func
def main(A: T.Buffer((64, 128), "uint8"), B: T.Buffer((8, 32, 16, 4), "int8"), C: T.Buffer((64, 128), "int32")):
    for i, j, k in T.grid(64, 128, 128):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(B[vj // 16, vk // 4, vj % 16, vk % 4], "int32")
"""


def kernel(name: str) -> IRModule:
    """The kernel of that name, as the only function of a module."""
    if name == "bytes":
        return mlcc.parse(BYTES)
    params, bindings = GRAPHS[name]
    lines = "".join(f"            {line.strip()}\n" for line in bindings.split(";"))
    text = (
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n        with R.dataflow():\n{lines}"
        "            R.output(y)\n        return y\n"
    )
    made = mlcc.run_passes(mlcc.parse(text), "fuse,lower-to-tir,fuse-tir,dead-code")
    (func,) = (f for f in made.functions.values() if isinstance(f, tir.PrimFunc))
    return IRModule({"main": func.with_attr("global_symbol", "main")})
