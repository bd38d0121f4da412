"""Random loop nests with vectorized loops whose lanes differ in what they do: guards, padding, ranges that are cut off.

`lanes(seed)` gives a text and the shapes of its arrays for some values of its symbols.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

DTYPES = (
    "float32", "float32", "float64", "int32", "int64", "int8", "uint8", "int16", "float16", "bfloat16", "bool",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 37, 61)


@dataclass(frozen=True)
class Case:
    text: str
    dtype: str
    rows: int
    columns: int
    symbolic: bool


def lanes(seed: int) -> Case:
    """One program over A (input), B (input and output) and S (int32, a few numbers to choose by)."""
    return _Maker(random.Random(seed)).make()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def make(self) -> Case:
        rng = self.rng
        self.dtype = rng.choice(DTYPES)
        self.rows, self.columns = rng.choice(SIZES[1:9]), rng.choice(SIZES)
        symbolic = rng.random() < 0.6
        n, m = ("n", "m") if symbolic else (str(self.columns), str(self.rows))
        self.n, self.m, self.symbolic = n, m, symbolic
        head = ["@T.prim_func(s_tir=False)", "def main(a: T.handle, b: T.handle, s: T.handle):",
                "    T.func_attr({'tir.noalias': True})"]  # fmt: skip
        if symbolic:
            head.append(f"    m, n = T.{self.index()}(), T.{self.index()}()")
        head += [f'    {name.upper()} = T.match_buffer({name}, ({m}, {n}), "{self.dtype}")' for name in "ab"]
        head.append('    S = T.match_buffer(s, (8,), "int32")')
        body: list[str] = []
        for _ in range(rng.randint(1, 2)):
            self.nest(body)
        return Case("\n".join([*head, *body]), self.dtype, self.rows, self.columns, symbolic)

    def index(self) -> str:
        self.kind = getattr(self, "kind", None) or self.rng.choice(["int32", "int64"])
        return self.kind

    def nest(self, out: list[str]) -> None:
        rng = self.rng
        width, unroll = rng.choice([2, 3, 4, 7, 8, 16, 20]), rng.choice([1, 1, 2, 3])
        tile = width * unroll
        kind = rng.choice(["range", "range", "T.parallel", "T.unroll" if not self.symbolic else "range"])
        extra = rng.choice([0, 0, 0, 1])
        rows = rng.choice(["rows", "tiled rows"])
        step = rng.choice([2, 3]) if rows == "tiled rows" else 1
        pad = "    "
        out.append(f"{pad}for i in range(({self.m} + {step - 1}) // {step}):")
        row, pad = "i", pad + "    "
        if step > 1:
            out.append(f"{pad}for i1 in {rng.choice(['T.unroll', 'range'])}({step}):")
            row, pad = f"(i * {step} + i1)", pad + "    "
        out.append(f"{pad}for j in {kind}(({self.n} + {tile - 1}) // {tile} + {extra}):")
        pad += "    "
        column = f"j * {tile}"
        if unroll > 1:
            out.append(f"{pad}for j1 in {rng.choice(['T.unroll', 'range'])}({unroll}):")
            column, pad = f"{column} + j1 * {width}", pad + "    "
        out.append(f"{pad}for v in T.vectorized({width}):")
        pad += "    "
        column = f"({column} + v)"
        at = column if rng.random() < 0.8 else f"({self.n} - 1 - {column})"
        guards = [f"{at} >= 0" if at != column else f"{column} < {self.n}"]
        if step > 1:
            guards.append(f"{row} < {self.m}")
        if rng.random() < 0.25:
            guards.append(rng.choice([f"{column} % 3 != 1", f"S[{row} % 8] > 2", f"S[{column} % 8] > 2", "v != 1"]))
        rng.shuffle(guards)
        if any("S[" in g for g in guards):  # after what it stands under
            guards.sort(key=lambda g: "S[" in g)
        out.append(f"{pad}if {' and '.join(guards)}:")
        pad += "    "
        for _ in range(rng.randint(1, 2)):
            out.append(f"{pad}B[{row}, {at}] = {self.value(row, at, column)}")
        if rng.random() < 0.15:
            out.append(f"{pad[:-4]}else:")
            inside = f"{row} < {self.m} and {at} >= 0 and {at} < {self.n}"
            out.append(f"{pad}if {inside}:")
            out.append(f"{pad}    B[{row}, {at}] = {self.number(1)}")

    def number(self, value: int) -> str:
        return f"T.bool({value % 2 == 0})" if self.dtype == "bool" else f"T.{self.dtype}({value})"

    def value(self, row: str, at: str, column: str) -> str:
        rng, one = self.rng, self.number(2)
        shift = rng.choice([0, 0, 1, 2, 5])
        back = f"{at} - {shift}"
        sources = [
            f"A[{row}, {at}]", f"B[{row}, {at}]",
            f"T.if_then_else({back} >= 0, A[{row}, {back}], {self.number(7)})",
            f"T.if_then_else({row} >= 1 and {at} + {shift} < {self.n}, A[{row} - 1, {at} + {shift}], {self.number(3)})",
            f"T.if_then_else({at} % 2 == 0, A[{row}, {at} // 2], {self.number(4)})",
            f"T.if_then_else({at} * 2 < {self.n}, A[{row}, {at} * 2], A[{row}, 0])",
            f"T.Select({column} % 5 < 2, A[{row}, {at}], {one})",
        ]  # fmt: skip
        first, second = rng.choice(sources), rng.choice(sources)
        if self.dtype == "bool":
            return f"T.Select({first}, {second}, T.bool(True))"
        if self.dtype in ("uint8", "int8", "int16"):
            return f"{first} - {second}"
        return rng.choice([f"{first} + {second}", f"T.max({first}, {second})", f"{first} * {one}", first])
