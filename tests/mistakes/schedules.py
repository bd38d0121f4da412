"""Mistakes in schedule scripts."""

from __future__ import annotations

from tests.mistakes.case import Case

_START = 'b = sch.get_block("C")\ni, j, k = sch.get_loops(b)\n'


def steps(name: str, *lines: str) -> Case:
    """A script that has the block and its loops, and then `lines`."""
    return script(name, _START + "".join(f"{line}\n" for line in lines))


def script(name: str, text: str) -> Case:
    return Case(name, "mlcc schedule kernel.mlc --script a.mls -o out.mlc", {"a.mls": text})


CASES = [
    script("block misspelled", 'sch.get_block("D")\n'),
    script("block as an attribute", "b = sch.C\n"),
    script("get_blok", 'b = sch.get_blok("C")\n'),
    script("too few names", 'b = sch.get_block("C")\ni, j = sch.get_loops(b)\n'),
    script("too many names", 'b = sch.get_block("C")\ni, j, k, l = sch.get_loops(b)\n'),
    script("NumPy", 'import numpy as np\nb = sch.get_block("C")\nsch.split(sch.get_loops(b)[0], np.array([2, 8]))\n'),
    script("a kernel for a script", '@T.prim_func\ndef main(A: T.Buffer((8,), "float32")):\n    A[0] = 1.0\n'),
    script("empty", ""),
    steps("product of factors", "sch.split(i, factors=[3, 5])"),
    steps("one number for factors", "sch.split(i, 8)"),
    steps("factor of tensor expressions", "sch.split(i, factor=8)"),
    steps("two computed factors", "sch.split(i, factors=[None, None])"),
    steps("unknown primitive", "sch.tile(i, j, 8, 8)"),
    steps("primitive without sch", "split(i, factors=[4, 8])"),
    steps("primitive of a block", "b.split(i, factors=[4, 8])"),
    steps("unknown handle", "sch.parallel(i0)"),
    steps("name of a loop", 'sch.parallel("i")'),
    steps("block for a loop", "sch.parallel(b)"),
    steps("parallel reduction", "sch.parallel(k)"),
    steps("vectorized reduction", "sch.vectorize(k)"),
    steps("split twice", "sch.split(i, factors=[4, 8])", "sch.parallel(i)"),
    steps("fuse of loops apart", "sch.fuse(i, k)"),
    steps("fuse in another order", "sch.fuse(j, i)"),
    steps("reorder of one loop twice", "sch.reorder(i, i)"),
    steps("unroll of nothing", "sch.unroll()"),
    steps("thread axis", 'sch.bind(i, "threadIdx.w")'),
    steps("thread axis twice", 'sch.bind(i, "threadIdx.x")', 'sch.bind(j, "threadIdx.x")'),
    steps("scope", 'sch.cache_read(b, 0, "shraed")'),
    steps("buffer number", 'sch.cache_read(b, 2, "local")'),
    steps("inline of an output", "sch.compute_inline(b)"),
    steps("compute_at of itself", "sch.compute_at(b, i)"),
    steps("decompose under the reduction", "l, m = sch.split(k, factors=[4, 8])", "sch.decompose_reduction(b, m)"),
    steps("unknown intrinsic", 'sch.tensorize(i, "dot_16x16")'),
    steps("print", "print(sch.mod)"),
    steps("text", "sch.mod.script()"),
    steps("while", "while True:", "    sch.parallel(i)"),
    steps("bracket", "sch.parallel(i"),
]
