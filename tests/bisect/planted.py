"""Networks of realistic size, and plug-ins that plant faults in their compilation: a pass, a kernel's code, a race."""

from __future__ import annotations


def residual_network(blocks: int = 6, channels: int = 8, size: int = 8) -> str:
    """Return a network of residual blocks, nine bindings each, with a head; one activation is gelu, others relu."""
    params = [f'x: R.Tensor((1, {channels}, {size}, {size}), "float32")']
    lines = []
    last = "x"
    for b in range(blocks):
        for i in (1, 2):
            params.append(f'w{b}_{i}: R.Tensor(({channels}, {channels}, 3, 3), "float32")')
            params.append(f's{b}_{i}: R.Tensor((1, {channels}, 1, 1), "float32")')
        lines += [
            f"a{b} = R.nn.conv2d({last}, w{b}_1, padding=(1, 1))",
            f'b{b} = R.multiply(a{b}, R.const(0.1, "float32"))',
            f"c{b} = R.add(b{b}, s{b}_1)",
            f"d{b} = R.nn.relu(c{b})",
            f"e{b} = R.nn.conv2d(d{b}, w{b}_2, padding=(1, 1))",
            f'f{b} = R.multiply(e{b}, R.const(0.1, "float32"))',
            f"g{b} = R.add(f{b}, s{b}_2)",
            f"h{b} = R.add(g{b}, {last})",
            f"y{b} = R.nn.{'gelu' if b == blocks // 2 else 'relu'}(h{b})",
        ]
        last = f"y{b}"
    params.append(f'v: R.Tensor(({channels}, 10), "float32")')
    lines += [f"p = R.mean({last}, axis=[2, 3])", "q = R.matmul(p, v)", "r = R.nn.softmax(q)", "R.output(r)"]
    body = "\n            ".join(lines)
    return f"""
@I.ir_module
class M:
    @R.function
    def main({", ".join(params)}):
        with R.dataflow():
            {body}
        return r
"""


PERCEPTRON = """
@I.ir_module
class M:
    @R.function
    def main(
        x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32"), v: R.Tensor((64, 64), "float32"),
        s: R.Tensor((64,), "float32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(R.add(a, s))
            c = R.matmul(b, v)
            d = R.nn.softmax(R.tanh(c))
            R.output(d)
        return d
"""

_PASS = """
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes import Pass


def in_kernels(module, rule):
    kernels = {n: rewrite_bottom_up(f, rule) for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    return IRModule({**module.functions, **kernels}, module.attrs)
"""

# erf(x) becomes tanh(x), which is close, in the kernels of gelu
WRONG_PASS = (
    _PASS
    + '''

@dataclass(frozen=True)
class CheapErf(Pass):
    """Compute erf by tanh."""

    name: ClassVar[str] = "cheap-erf"

    def run(self, module, ctx):
        def rule(node):
            is_erf = isinstance(node, tir.Call) and node.op.name == "tir.erf"
            return replace(node, op=tir.Op("tir.tanh")) if is_erf else node

        return in_kernels(module, rule)
'''
)

# relu(x) becomes min(relu(x), 6), which is the same for small numbers
CAPPED_RELU = (
    _PASS
    + '''

@dataclass(frozen=True)
class CapRelu(Pass):
    """Compute maxima that are at most 6."""

    name: ClassVar[str] = "cap-relu"

    def run(self, module, ctx):
        def rule(node):
            return tir.Min(node.dtype, node, tir.FloatImm(node.dtype, 6.0)) if isinstance(node, tir.Max) else node

        return in_kernels(module, rule)
'''
)

# `max` of a float and a constant is compiled as `min`; the IR is right
WRONG_CODE = """
from mlcc.ir import tir
from mlcc.targets.llvm.codegen import arith, emitter


def wrong(e, node):
    is_relu = isinstance(node.rhs, (tir.FloatImm, tir.Broadcast)) and node.dtype.is_float
    return arith.minimum(e, node) if is_relu else arith.maximum(e, node)


emitter._EXPRESSIONS[tir.Max] = wrong
"""

# the wait of threads before they read what others wrote to shared memory
LOST_BARRIER = (
    _PASS
    + '''

@dataclass(frozen=True)
class LoseBarriers(Pass):
    """Remove the barriers of thread blocks."""

    name: ClassVar[str] = "lose-barriers"

    def run(self, module, ctx):
        def rule(node):
            is_barrier = isinstance(node, tir.Evaluate) and isinstance(node.value, tir.Call)
            if is_barrier and node.value.op.name == "tir.tvm_storage_sync":
                return tir.Evaluate(tir.IntImm(DType.of("int32"), 0))
            return node

        return in_kernels(module, rule)
'''
)

# iterations of a sum become parallel
PARALLEL_SUM = (
    _PASS
    + '''

@dataclass(frozen=True)
class ParallelSum(Pass):
    """Make the loops over the channels that a convolution sums up parallel."""

    name: ClassVar[str] = "parallel-sum"

    def run(self, module, ctx):
        def rule(node):
            is_sum = isinstance(node, tir.For) and node.kind is tir.ForKind.SERIAL and node.var.name == "rc"
            return replace(node, kind=tir.ForKind.PARALLEL) if is_sum else node

        return in_kernels(module, rule)
'''
)
