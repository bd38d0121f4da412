"""Random networks over images as text, for tests of passes: every seed gives one program and arrays for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, ...]

UNARY = ("nn.relu", "sigmoid", "tanh", "nn.silu", "negative", "exp")
BINARY = ("add", "multiply", "subtract", "maximum")


def text_of(values: Shape) -> str:
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(map(str, values))})"


@dataclass
class Network:
    """A function `main` of an image and weights, in one dataflow block, in the language that TVM 0.27 reads too."""

    seed: int
    length: int = 8
    params: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, Shape] = field(default_factory=dict)
    tuples: dict[str, tuple[Shape, ...]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.parameter("x", (self.rng.choice([1, 2]), self.rng.choice([2, 4]), 6, self.rng.choice([5, 6])))
        while len(self.lines) < self.length:
            self.step()

    def parameter(self, hint: str, shape: Shape) -> str:
        name = hint if hint == "x" else f"{hint}{len(self.params)}"
        self.params[name] = self.values[name] = shape
        return name

    def bind(self, value: str, shape: Shape) -> str:
        name = f"lv{len(self.lines)}"
        self.lines.append(f"{name} = {value}")
        self.values[name] = shape
        return name

    def bind_tuple(self, value: str, shapes: tuple[Shape, ...]) -> str:
        name = f"lv{len(self.lines)}"
        self.lines.append(f"{name} = {value}")
        self.tuples[name] = shapes
        return name

    def field(self, name: str, at: int) -> str:
        """A field of a tuple, used once: TVM turns whole tuples for results, in a form that its text cannot have."""
        part = self.bind(f"{name}[{at}]", self.tuples[name][at])
        shape = self.values.pop(part)
        return self.bind(f"R.nn.relu({part})", shape)

    def step(self) -> None:
        """One more binding, or a few that belong together."""
        rng = self.rng
        kinds = [
            *["conv"] * 3, "unary", "binary", "bias", "pool", "concat", "split", "reduce", "norm", "shape", "shape",
            "tuple", "softmax", "slice", "dense",
        ]  # fmt: skip
        images = [n for n, s in self.values.items() if len(s) == 4 and min(s[2:]) >= 3]
        kind = rng.choice(kinds)
        recent = list(self.values)[-4:]
        name = rng.choice(recent)
        if kind in ("conv", "pool", "norm") and images:
            getattr(self, kind)(rng.choice(images[-3:]))
        elif kind not in ("conv", "pool", "norm"):
            getattr(self, kind)(name)

    def conv(self, name: str) -> None:
        n, channels, h, w = self.values[name]
        out, size = self.rng.choice([2, 3, 4]), self.rng.choice([1, 3])
        weight = self.parameter("w", (out, channels, size, size))
        pad = self.rng.choice([0, 1])
        stride = self.rng.choice([1, 1, 2])
        options = f"strides=[{stride}, {stride}], padding=[{pad}, {pad}, {pad}, {pad}]"
        made = tuple((d + 2 * pad - size) // stride + 1 for d in (h, w))
        self.bind(f"R.nn.conv2d({name}, {weight}, {options})", (n, out, *made))

    def pool(self, name: str) -> None:
        n, channels, h, w = self.values[name]
        kind = self.rng.choice(["max", "avg", "adaptive"])
        if kind == "adaptive":
            self.bind(f"R.nn.adaptive_avg_pool2d({name}, output_size=[1, 1])", (n, channels, 1, 1))
            return
        value = f"R.nn.{kind}_pool2d({name}, pool_size=[2, 2], strides=[1, 1])"
        self.bind(value, (n, channels, h - 1, w - 1))

    def norm(self, name: str) -> None:
        shape = self.values[name]
        if self.rng.random() < 0.5:
            gamma, beta = (self.parameter(p, (shape[1],)) for p in ("g", "b"))
            mean, var = (self.parameter(p, (shape[1],)) for p in ("m", "v"))
            value = f"R.nn.batch_norm({name}, {gamma}, {beta}, {mean}, {var}, axis=1, training=False)"
            made = self.bind_tuple(value, (shape, (shape[1],), (shape[1],)))
            self.field(made, 0)
        else:
            gamma, beta = (self.parameter(p, shape[2:]) for p in ("g", "b"))
            self.bind(f"R.nn.layer_norm({name}, {gamma}, {beta}, axes=[2, 3])", shape)

    def unary(self, name: str) -> None:
        self.bind(f"R.{self.rng.choice(UNARY)}({name})", self.values[name])

    def binary(self, name: str) -> None:
        shape = self.values[name]
        other = self.rng.choice([n for n, s in self.values.items() if s == shape])
        operand = self.rng.choice([other, other, 'R.const(2.0, "float32")'])
        pair = [name, operand]
        self.rng.shuffle(pair)
        self.bind(f"R.{self.rng.choice(BINARY)}({', '.join(pair)})", shape)

    def bias(self, name: str) -> None:
        shape = self.values[name]
        if len(shape) == 4:
            form = self.rng.choice([(1, shape[1], 1, 1), (shape[3],), (shape[2], 1), shape[1:]])
            self.bind(f"R.add({name}, {self.parameter('b', form)})", shape)

    def concat(self, name: str) -> None:
        shape = self.values[name]
        if len(shape) == 4:
            other = self.rng.choice([n for n, s in self.values.items() if (s[0], *s[2:]) == (shape[0], *shape[2:])])
            made = (shape[0], shape[1] + self.values[other][1], *shape[2:])
            self.bind(f"R.concat(({name}, {other}), axis=1)", made)

    def split(self, name: str) -> None:
        shape = self.values[name]
        if len(shape) == 4 and shape[1] % 2 == 0:
            part = (shape[0], shape[1] // 2, *shape[2:])
            made = self.bind_tuple(f"R.split({name}, indices_or_sections=2, axis=1)", (part, part))
            self.field(made, self.rng.choice([0, 1]))

    def tuple(self, name: str) -> None:
        other = self.rng.choice(list(self.values))
        made = self.bind_tuple(f"({name}, {other})", (self.values[name], self.values[other]))
        at = self.rng.choice([0, 1])
        self.field(made, at)

    def dense(self, name: str) -> None:
        shape = self.values[name]
        if len(shape) > 2:
            return
        weight = self.parameter("w", (shape[-1], self.rng.choice([2, 3])))
        self.bind(f"R.matmul({name}, {weight})", (*shape[:-1], self.values[weight][1]))

    def reduce(self, name: str) -> None:
        shape = self.values[name]
        if len(shape) < 3:
            return
        axes = self.rng.choice([[len(shape) - 1], [len(shape) - 2, len(shape) - 1], [1]])
        keep = self.rng.random() < 0.7
        made = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
        self.bind(f"R.{self.rng.choice(['mean', 'max', 'sum'])}({name}, axis={axes}, keepdims={keep})", made)

    def softmax(self, name: str) -> None:
        op = self.rng.choice(["softmax", "log_softmax"])
        shape = self.values[name]
        self.bind(f"R.nn.{op}({name}, axis={self.rng.choice([-1, min(1, len(shape) - 1)])})", shape)

    def slice(self, name: str) -> None:
        shape = self.values[name]
        axis = self.rng.randrange(len(shape))
        made = tuple(1 if i == axis else d for i, d in enumerate(shape))
        self.bind(f"R.strided_slice({name}, axes=[{axis}], begin=[0], end=[1])", made)

    def shape(self, name: str) -> None:
        shape = self.values[name]
        kind = self.rng.choice(["permute", "expand", "squeeze", "reshape", "flip", "tile", "repeat"])
        axis = self.rng.randrange(len(shape))
        if kind == "permute":
            order = list(range(len(shape)))
            self.rng.shuffle(order)
            self.bind(f"R.permute_dims({name}, axes={order})", tuple(shape[i] for i in order))
        elif kind == "expand" and len(shape) < 5:
            self.bind(f"R.expand_dims({name}, axis=[{axis}])", (*shape[:axis], 1, *shape[axis:]))
        elif kind == "squeeze" and shape[axis] == 1 and len(shape) > 2:
            self.bind(f"R.squeeze({name}, axis=[{axis}])", (*shape[:axis], *shape[axis + 1 :]))
        elif kind == "reshape":
            rest = int(np.prod(shape[1:]))
            self.bind(f"R.reshape({name}, R.shape([{shape[0]}, {rest}]))", (shape[0], rest))
        elif kind == "flip":
            self.bind(f"R.flip({name}, axis={axis})", shape)
        elif kind in ("tile", "repeat") and np.prod(shape) < 1000:
            made = tuple(2 * d if i == axis else d for i, d in enumerate(shape))
            times = [2 if i == axis else 1 for i in range(len(shape))]
            value = (
                f"R.tile({name}, repeats={times})" if kind == "tile" else f"R.repeat({name}, repeats=2, axis={axis})"
            )
            self.bind(value, made)

    @property
    def results(self) -> list[str]:
        """Some of the values; the last one always."""
        made = [n for n in self.values if n not in self.params]
        few = random.Random(self.seed + 1).sample(made[:-1], k=min(len(made) - 1, self.seed % 3))
        return [*sorted(few), made[-1]]

    def text(self) -> str:
        """The module as text."""
        params = ", ".join(f'{n}: R.Tensor({text_of(s)}, "float32")' for n, s in self.params.items())
        outputs = ", ".join(self.results)
        result = outputs if len(self.results) == 1 else f"({outputs})"
        body = "\n".join(f"            {line}" for line in self.lines)
        return (
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main({params}):\n        with R.dataflow():\n{body}\n            R.output({outputs})\n"
            f"        return {result}\n"
        )

    def inputs(self) -> list[np.ndarray]:
        """Arrays for the parameters, variances positive."""
        random_state = np.random.RandomState(self.seed)
        made = {n: random_state.uniform(-1, 1, s).astype("float32") for n, s in self.params.items()}
        return [np.abs(a) + 0.5 if n[0] == "v" else a for n, a in made.items()]

    def tolerance(self, pipeline: str) -> float:
        """Half precision is coarser."""
        return 5e-2 if "to-mixed-precision" in pipeline else 1e-4
