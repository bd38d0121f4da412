"""Cost per line of parsing, verifying and printing modules of growing size (expected constant), against ast.parse."""

from __future__ import annotations

import ast
import time

from bench.measure import machine

FUNCTION = """
    @T.prim_func
    def matmul{n}(
        A: T.Buffer((128, 64), "float32"), B: T.Buffer((64, 96), "float32"), C: T.Buffer((128, 96), "float32")
    ):
        T.func_attr({{"tir.noalias": True}})
        Y = T.alloc_buffer((128, 96), "float32")
        for i, j, k in T.grid(128, 96, 64):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(Y[vi, vj])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(128, 96):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj] * T.float32(0.5) + T.float32({n}), T.float32(0))
"""


def module(lines: int) -> str:
    count = max(1, lines // (FUNCTION.count("\n")))
    return "@I.ir_module\nclass Module:" + "".join(FUNCTION.format(n=n) for n in range(count))


def main() -> None:
    import mlcc
    from mlcc.verify import verify

    print(f"front end, CPU ms (best of 3); {machine()}")
    print(f"{'lines':>7} {'parse':>9} {'verify':>9} {'print':>9} {'ast.parse':>10} {'us/line':>8} {'x ast':>6}")
    mlcc.parse(module(20))
    for lines in (1000, 2500, 5000, 10000):
        text = module(lines)
        rows = []
        for _ in range(3):
            marks = [time.process_time()]
            ast.parse(text)
            marks.append(time.process_time())
            mod = mlcc.parse(text)
            marks.append(time.process_time())
            verify(mod)
            marks.append(time.process_time())
            mlcc.script(mod)
            marks.append(time.process_time())
            rows.append([(b - a) * 1e3 for a, b in zip(marks, marks[1:], strict=False)])
        yardstick, parse, check, show = (min(column) for column in zip(*rows, strict=True))
        count = text.count("\n")
        print(
            f"{count:7} {parse:9.1f} {check:9.1f} {show:9.1f} {yardstick:10.1f} "
            f"{parse * 1e3 / count:8.1f} {parse / yardstick:6.1f}"
        )
