"""Random graph-level programs as text, for tests of passes: every seed gives one program and arrays for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, ...]

UNARY = ("nn.relu", "sigmoid", "tanh", "negative", "abs")
BINARY = ("add", "multiply", "subtract", "maximum")


@dataclass
class Program:
    """A function `main` of some tensors, in the part of the language that TVM 0.27 reads too."""

    seed: int
    length: int = 8
    values: dict[str, Shape] = field(default_factory=dict)
    params: dict[str, Shape] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        rows, columns = self.rng.choice([1, 2, 3, 5]), self.rng.choice([1, 2, 4, 7])
        for number in range(self.rng.randint(1, 3)):
            shape = self.rng.choice([(rows, columns), (columns,), (rows, 1), (rows, columns)])
            self.params[f"x{number}"] = shape
        self.params["w"] = (columns, self.rng.choice([1, 3, 4]))
        self.values.update(self.params)
        for number in range(self.length):
            self.step(f"lv{number}")

    def step(self, name: str) -> None:
        """One more binding."""
        rng = self.rng
        first = rng.choice(list(self.values))
        shape = self.values[first]
        kind = rng.choice(["unary", "binary", "binary", "binary", "matmul", "reduce", "shape", "constant"])
        if kind == "matmul":
            fits = [n for n, s in self.values.items() if len(shape) == 2 and len(s) == 2 and s[0] == shape[1]]
            others = [n for n in fits if n != first]
            if others:
                second = rng.choice(others)
                self.bind(name, f"R.matmul({first}, {second})", (shape[0], self.values[second][1]))
                return
        if kind == "binary":
            second = rng.choice([n for n, s in self.values.items() if broadcast(shape, s) is not None])
            made = broadcast(shape, self.values[second])
            assert made is not None
            self.bind(name, f"R.{rng.choice(BINARY)}({first}, {second})", made)
        elif kind == "constant":
            operand = rng.choice(['R.const(2.0, "float32")', f'R.const({[0.5] * shape[-1]}, "float32")'])
            self.bind(name, f"R.{rng.choice(BINARY)}({first}, {operand})", shape)
        elif kind == "reduce" and len(shape) == 2:
            keep = rng.random() < 0.7
            made = (shape[0], 1) if keep else (shape[0],)
            self.bind(name, f"R.{rng.choice(['sum', 'max'])}({first}, axis=[1], keepdims={keep})", made)
        elif kind == "shape" and len(shape) == 2:
            if rng.random() < 0.5:
                self.bind(name, f"R.permute_dims({first}, axes=[1, 0])", (shape[1], shape[0]))
            else:
                made = (shape[0] * shape[1],)
                self.bind(name, f"R.reshape({first}, R.shape([{made[0]}]))", made)
        else:
            self.bind(name, f"R.{rng.choice(UNARY)}({first})", shape)

    def bind(self, name: str, value: str, shape: Shape) -> None:
        self.lines.append(f"{name} = {value}")
        self.values[name] = shape

    @property
    def results(self) -> list[str]:
        """Some of the values; the last one always."""
        made = [n for n in self.values if n not in self.params]
        few = random.Random(self.seed + 1).sample(made[:-1], k=min(len(made) - 1, self.seed % 3))
        return [*sorted(few), made[-1]]

    def text(self) -> str:
        """The module as text."""
        params = ", ".join(f'{n}: R.Tensor({shape_text(s)}, "float32")' for n, s in self.params.items())
        outputs = ", ".join(self.results)
        result = outputs if len(self.results) == 1 else f"({outputs})"
        body = "\n".join(f"            {line}" for line in self.lines)
        return (
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main({params}):\n        with R.dataflow():\n{body}\n            R.output({outputs})\n"
            f"        return {result}\n"
        )

    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays for the parameters."""
        random_state = np.random.RandomState(self.seed)
        return {n: random_state.uniform(-1, 1, s).astype("float32") for n, s in self.params.items()}


def shape_text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The shape that two broadcast to."""
    try:
        return tuple(np.broadcast_shapes(a, b))
    except ValueError:
        return None
