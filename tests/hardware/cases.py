"""Programs that are run on a GPU and compared with the CPU: small in text, of sizes that fit nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mlcc

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """A graph of one function `main` over float32 parameters, with the sizes of its symbols."""

    params: str
    body: str
    symbols: tuple[tuple[str, int], ...] = ()
    tolerance: float = 2e-5

    @property
    def text(self) -> str:
        names = ", ".join(name for name, _ in self.symbols)
        known = f"        {names} = {', '.join('T.int64()' for _ in self.symbols)}\n" if names else ""
        lines = "".join(f"            {line}\n" for line in self.body.split("; "))
        return (
            f"@I.ir_module\nclass Module:\n    @R.function\n    def main({self.params}):\n{known}"
            f"        with R.dataflow():\n{lines}            R.output(out)\n        return out\n"
        )

    def module(self) -> mlcc.IRModule:
        return mlcc.parse(self.text)

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """An array for each parameter."""
        rng = np.random.default_rng(seed)
        sizes = dict(self.symbols)
        made = []
        for param in self.module()["main"].params:
            dims = [sizes[d.name] if hasattr(d, "name") else int(d.value) for d in param.struct_info.dims]
            made.append(rng.standard_normal(dims).astype(str(param.struct_info.dtype)))
        return made


def tensors(dtype: str = "float32", **shapes: str) -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())


_ROUGH = 1e-4
CASES = {
    "elementwise": Case(
        tensors(x='("n", 37)', y="(37,)"), "a = R.add(x, y); out = R.exp(R.negative(R.abs(a)))", (("n", 101),)
    ),
    "products": Case(
        tensors(x='("n", 67)', w="(67, 53)", b="(53,)"), "a = R.matmul(x, w); out = R.nn.relu(R.add(a, b))",
        (("n", 130),),
    ),
    "batches": Case(tensors(x="(3, 33, 48)", w="(3, 48, 40)"), "out = R.matmul(x, w)"),
    "vectors": Case(tensors(x="(1, 515)", w="(515, 300)"), "out = R.matmul(x, w)", (), _ROUGH),
    "softmax": Case(tensors(x='("n", 1000)'), "out = R.nn.softmax(x, axis=-1)", (("n", 5),)),
    "layer-norm": Case(
        tensors(x="(9, 333)", g="(333,)", b="(333,)"), "out = R.nn.layer_norm(x, g, b, axes=[-1])", (), _ROUGH
    ),
    "sums": Case(
        tensors(x="(129, 517)"), "a = R.sum(x, axis=[0]); out = R.max(a, axis=[0], keepdims=True)", (), _ROUGH
    ),
    "transposes": Case(tensors(x="(65, 130)"), "a = R.permute_dims(x); out = R.multiply(a, a)"),
    "convolutions": Case(
        tensors(x="(2, 5, 19, 19)", w="(7, 5, 3, 3)"),
        "a = R.nn.conv2d(x, w, padding=1, strides=2); out = R.nn.relu(a)", (), _ROUGH,
    ),
    "attention": Case(
        tensors(q="(2, 17, 4, 16)", k="(2, 17, 4, 16)", v="(2, 17, 4, 16)"), "out = R.nn.attention(q, k, v)", (), _ROUGH
    ),
    "empty": Case(tensors(x='("n", 4)', y='("n", 4)'), "a = R.add(x, y); out = R.multiply(a, y)", (("n", 0),)),
    "one": Case(tensors(x='("n", 1)', y='("n", 1)'), "a = R.add(x, y); out = R.multiply(a, y)", (("n", 1),)),
}  # fmt: skip
