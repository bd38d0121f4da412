"""Random loop nests that write and read temporaries tile by tile: some may move into loops, some may not."""

from __future__ import annotations

import random


class Maker:
    """Random loop nests that write and read temporaries, mostly in tiles."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def program(self) -> str:
        rng = self.rng
        self.outer, self.inner = rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 4, 7])
        self.n = rng.choice([self.outer * self.inner, self.outer * self.inner - rng.randrange(self.inner)])
        for name in "XYZ":
            self.lines.append(f'{name} = T.alloc_buffer(({self.outer * self.inner + 4}, 3), "int32")')
        for name in "XYZ":  # what is read before it is written is the same everywhere
            self.lines.append(f"for a, b in T.grid({self.outer * self.inner + 4}, 3):")
            self.lines.append(f"    {name}[a, b] = a - b")
            if rng.random() < 0.7:
                del self.lines[-2:]
        self.loop("    " if rng.random() < 0.5 else "")
        return "\n".join(self.lines)

    def loop(self, pad: str) -> None:
        if pad:
            self.lines.append("for r in range(2):")
        self.lines.append(f"{pad}for i in range({self.outer}):")
        for name in "XYZ":
            if self.rng.random() < 0.75:
                self.nest(pad + "    ", name)
        for _ in range(self.rng.randint(2, 5)):
            self.nest(pad + "    ")

    def nest(self, pad: str, first: str = "") -> None:
        """Statements in a loop of tiles; with `first`, ones that give that buffer all of its values there."""
        rng = self.rng
        self.count += 1
        j = f"j{self.count}"
        kind = rng.choice(["range", "T.unroll", "range"])
        self.lines.append(f"{pad}for {j} in {kind}({self.inner}):")
        pad += "    "
        at = f"i * {self.inner} + {j}"
        if first:
            self.lines += [f"{pad}{first}[{at}, {k}] = A[T.min({at}, {self.n} - 1)] + {k}" for k in range(3)]
            return
        if rng.random() < 0.3:
            self.lines.append(f"{pad}if {at} < {self.n}:")
            pad += "    "
        elif rng.random() < 0.15:
            self.lines.append(f"{pad}if {j} == {rng.choice([0, 0, 1])}:")
            pad += "    "
        shift = rng.choice([0, 0, 0, 0, 1, 2])
        row = f"{at} + {shift}" if shift else at
        column = rng.choice(["0", "1", f"{j} % 3", f"({at}) % 2"])
        target, source = rng.choice("XYZ"), rng.choice("XYZA")
        read = f"A[T.min({row}, {self.n} - 1)]" if source == "A" else f"{source}[{rng.choice([at, row])}, {column}]"
        if rng.random() < 0.35:
            self.lines.append(f"{pad}B[T.min({at}, {self.n} - 1)] = {read} + {rng.randrange(9)}")
        else:
            again = f" + {target}[{row}, {column}]" if rng.random() < 0.25 else ""
            self.lines.append(f"{pad}{target}[{row}, {column}] = {read}{again} + {rng.randrange(9)}")
