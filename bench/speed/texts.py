"""The texts of the workloads, written out for given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Text:
    """A text and the names of those parameters of its `main` that are weights."""

    source: str
    weights: frozenset[str]


class Writer:
    """Collects the parameters and bindings of one function."""

    def __init__(self) -> None:
        self._params: list[str] = []
        self._weights: list[str] = []
        self._lines: list[str] = []

    def param(self, name: str, *shape: int) -> str:
        self._params.append(f'{name}: R.Tensor({_tuple(shape)}, "float32")')
        return name

    def weight(self, name: str, *shape: int) -> str:
        self._weights.append(name)
        return self.param(name, *shape)

    def let(self, value: str, name: str | None = None) -> str:
        name = name or f"v{len(self._lines)}"
        self._lines.append(f"            {name} = {value}")
        return name

    def linear(self, x: str, name: str, inner: int, outer: int) -> str:
        """Add a product with a weight, and a bias."""
        y = self.let(f"R.matmul({x}, {self.weight(f'{name}_w', inner, outer)})")
        return self.let(f"R.add({y}, {self.weight(f'{name}_b', outer)})")

    def norm(self, x: str, name: str, width: int) -> str:
        gain, shift = self.weight(f"{name}_g", width), self.weight(f"{name}_s", width)
        return self.let(f"R.nn.layer_norm({x}, {gain}, {shift}, axes=-1)")

    def conv_bias(
        self, x: str, name: str, inner: int, outer: int, kernel: int | tuple[int, int], stride: int = 1,
        groups: int = 1, padding: int | tuple[int, int, int, int] | None = None,
    ) -> str:  # fmt: skip
        """Add a convolution with a weight and a bias per channel; the default padding keeps the size.

        The padding is one number, or those of top, left, bottom and right.
        """
        high, wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        pad = high // 2 if padding is None else list(padding) if isinstance(padding, tuple) else padding
        k, b = (
            self.weight(f"{name}_w", outer, inner // groups, high, wide),
            self.weight(f"{name}_b", 1, outer, 1, 1),
        )
        extra = f", groups={groups}" if groups != 1 else ""
        y = self.let(f"R.nn.conv2d({x}, {k}, strides={stride}, padding={pad}{extra})")
        return self.let(f"R.add({y}, {b})")

    def text(self, result: str, shape: Shape) -> Text:
        body = "\n".join(self._lines)
        params = ", ".join(self._params)
        return Text(
            f"@I.ir_module\nclass Module:\n    @R.function\n"
            f'    def main({params}) -> R.Tensor({_tuple(shape)}, "float32"):\n'
            f"        with R.dataflow():\n{body}\n            R.output({result})\n        return {result}\n",
            frozenset(self._weights),
        )


def _tuple(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def matmul(m: int, k: int, n: int, relu: bool = False, transposed: bool = False) -> Text:
    """a @ b of two inputs; if `transposed`, b is stored as (n, k)."""
    w = Writer()
    a = w.param("a", m, k)
    b = w.let(f"R.permute_dims({w.param('b', n, k)})") if transposed else w.param("b", k, n)
    y = w.let(f"R.matmul({a}, {b})")
    return w.text(w.let(f"R.nn.relu({y})") if relu else y, (m, n))


def bmm_relu(batch: int, m: int, k: int, n: int) -> Text:
    w = Writer()
    y = w.let(f"R.matmul({w.param('a', batch, m, k)}, {w.param('b', batch, k, n)})")
    return w.text(w.let(f"R.nn.relu({y})"), (batch, m, n))


def transpose(shape: Shape, axes: Sequence[int]) -> Text:
    w = Writer()
    y = w.let(f"R.permute_dims({w.param('x', *shape)}, axes={list(axes)})")
    return w.text(y, tuple(shape[axis] for axis in axes))


def mlp(batch: int) -> Text:
    """A 784-128-10 perceptron with constant weights."""
    w = Writer()
    x = w.param("x", batch, 784)
    h = w.let(f"R.matmul({x}, {w.weight('w0', 784, 128)})")
    h = w.let(f"R.add({h}, {w.weight('b0', 128)})")
    h = w.let(f"R.nn.relu({h})")
    y = w.let(f"R.matmul({h}, {w.weight('w1', 128, 10)})")
    return w.text(w.let(f"R.add({y}, {w.weight('b1', 10)})"), (batch, 10))


def conv(
    inner: int, outer: int, size: int, kernel: int, stride: int = 1, padding: int | None = None, groups: int = 1
) -> Text:
    """A convolution of one image with constant weights; the default padding keeps the size."""
    pad = kernel // 2 if padding is None else padding
    w = Writer()
    x, k = w.param("x", 1, inner, size, size), w.weight("w", outer, inner // groups, kernel, kernel)
    extra = f", groups={groups}" if groups != 1 else ""
    y = w.let(f"R.nn.conv2d({x}, {k}, strides={stride}, padding={pad}{extra})")
    out = (size + 2 * pad - kernel) // stride + 1
    return w.text(y, (1, outer, out, out))


def softmax(m: int, n: int) -> Text:
    w = Writer()
    return w.text(w.let(f"R.nn.softmax({w.param('x', m, n)}, axis=-1)"), (m, n))


def layer_norm(m: int, n: int) -> Text:
    w = Writer()
    x = w.param("x", m, n)
    return w.text(w.let(f"R.nn.layer_norm({x}, {w.weight('g', n)}, {w.weight('b', n)}, axes=-1)"), (m, n))


def elementwise(m: int, n: int) -> Text:
    """gelu(x * a + b) * c."""
    w = Writer()
    y = w.let(f"R.multiply({w.param('x', m, n)}, {w.weight('a', n)})")
    y = w.let(f"R.add({y}, {w.weight('b', n)})")
    y = w.let(f"R.nn.gelu({y})")
    return w.text(w.let(f"R.multiply({y}, {w.weight('c', n)})"), (m, n))


def resnet18() -> Text:
    """Residual network of 18 layers for one image of 224 x 224, norms folded into weights and biases."""
    w = Writer()
    x = w.let(f"R.nn.relu({w.conv_bias(w.param('x', 1, 3, 224, 224), 'stem', 3, 64, 7, 2)})")
    x = w.let(f"R.nn.max_pool2d({x}, pool_size=3, strides=2, padding=1)")
    inner = 64
    for stage, outer in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            name = f"s{stage}b{block}"
            y = w.let(f"R.nn.relu({w.conv_bias(x, f'{name}_1', inner, outer, 3, stride)})")
            y = w.conv_bias(y, f"{name}_2", outer, outer, 3, 1)
            short = w.conv_bias(x, f"{name}_s", inner, outer, 1, stride) if inner != outer else x
            x = w.let(f"R.nn.relu({w.let(f'R.add({y}, {short})')})")
            inner = outer
    x = w.let(f"R.mean({x}, axis=[2, 3], keepdims=False)")
    return w.text(w.linear(x, "dense", 512, 1000), (1, 1000))


def resnet50() -> Text:
    """Residual network of 50 layers for one image of 224 x 224, norms folded into weights and biases."""
    w = Writer()
    x = w.let(f"R.nn.relu({w.conv_bias(w.param('x', 1, 3, 224, 224), 'stem', 3, 64, 7, 2)})")
    x = w.let(f"R.nn.max_pool2d({x}, pool_size=3, strides=2, padding=1)")
    inner = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride, name, outer = 2 if stage and not block else 1, f"s{stage}b{block}", 4 * width
            y = w.let(f"R.nn.relu({w.conv_bias(x, f'{name}_1', inner, width, 1)})")
            y = w.let(f"R.nn.relu({w.conv_bias(y, f'{name}_2', width, width, 3, stride)})")
            y = w.conv_bias(y, f"{name}_3", width, outer, 1)
            short = w.conv_bias(x, f"{name}_s", inner, outer, 1, stride) if not block else x
            x = w.let(f"R.nn.relu({w.let(f'R.add({y}, {short})')})")
            inner = outer
    x = w.let(f"R.mean({x}, axis=[2, 3], keepdims=False)")
    return w.text(w.linear(x, "dense", inner, 1000), (1, 1000))


def lenet() -> Text:
    """Two convolutions and three products for one image of 28 x 28."""
    w = Writer()
    x = w.param("x", 1, 1, 28, 28)
    for name, inner, outer, padding in (("c1", 1, 6, 2), ("c2", 6, 16, 0)):
        x = w.let(f"R.nn.relu({w.conv_bias(x, name, inner, outer, 5, padding=padding)})")
        x = w.let(f"R.nn.max_pool2d({x}, pool_size=2, strides=2)")
    x = w.let(f"R.reshape({x}, (1, 400))")
    for name, inner, outer in (("d1", 400, 120), ("d2", 120, 84)):
        x = w.let(f"R.nn.relu({w.linear(x, name, inner, outer)})")
    return w.text(w.linear(x, "d3", 84, 10), (1, 10))


MOBILE_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> Text:
    """MobileNetV2 for one image of 224 x 224, norms folded into weights and biases."""
    w = Writer()

    def relu6(x: str) -> str:
        return w.let(f"R.nn.relu6({x})")

    x = relu6(w.conv_bias(w.param("x", 1, 3, 224, 224), "stem", 3, 32, 3, 2))
    inner = 32
    for stage, (times, outer, blocks, first) in enumerate(MOBILE_STAGES):
        for block in range(blocks):
            stride, name, wide = first if not block else 1, f"s{stage}b{block}", inner * times
            y = relu6(w.conv_bias(x, f"{name}_up", inner, wide, 1)) if times != 1 else x
            y = relu6(w.conv_bias(y, f"{name}_each", wide, wide, 3, stride, groups=wide))
            y = w.conv_bias(y, f"{name}_down", wide, outer, 1)
            x = w.let(f"R.add({x}, {y})") if stride == 1 and inner == outer else y
            inner = outer
    x = relu6(w.conv_bias(x, "head", inner, 1280, 1))
    x = w.let(f"R.mean({x}, axis=[2, 3], keepdims=False)")
    return w.text(w.linear(x, "dense", 1280, 1000), (1, 1000))


def encoder(layers: int, width: int, heads: int, hidden: int, length: int, causal: bool = False) -> Text:
    """Transformer encoder, norms before the blocks; `causal`: a mask, here a weight, is added to the scores."""
    w = Writer()
    head = width // heads

    def split(x: str, name: str, axes: str) -> str:
        y = w.linear(x, name, width, width)
        return w.let(f"R.permute_dims({w.let(f'R.reshape({y}, ({length}, {heads}, {head}))')}, axes={axes})")

    scale = w.weight("scale", 1)
    x = w.param("x", length, width)
    for i in range(layers):
        y = w.norm(x, f"l{i}_n1", width)
        q, k = split(y, f"l{i}_q", "[1, 0, 2]"), split(y, f"l{i}_k", "[1, 2, 0]")
        v = split(y, f"l{i}_v", "[1, 0, 2]")
        scores = w.let(f"R.multiply({w.let(f'R.matmul({q}, {k})')}, {scale})")
        if causal:
            scores = w.let(f"R.add({scores}, {w.weight(f'l{i}_mask', length, length)})")
        mixed = w.let(f"R.matmul({w.let(f'R.nn.softmax({scores}, axis=-1)')}, {v})")
        mixed = w.let(f"R.reshape({w.let(f'R.permute_dims({mixed}, axes=[1, 0, 2])')}, ({length}, {width}))")
        x = w.let(f"R.add({x}, {w.linear(mixed, f'l{i}_o', width, width)})")
        y = w.linear(w.norm(x, f"l{i}_n2", width), f"l{i}_up", width, hidden)
        y = w.linear(w.let(f"R.nn.gelu({y})"), f"l{i}_down", hidden, width)
        x = w.let(f"R.add({x}, {y})")
    return w.text(x, (length, width))
