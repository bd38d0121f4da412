"""Kernels that are products: any einsum of two tensors, in any dtypes, with what may follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

FORMS = (
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm", "km,nk->nm", "k,kn->n", "mk,k->m", "k,nk->n",
    "bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "bsk,kn->bsn", "bsk,nk->bsn", "bhmk,bhnk->bhmn", "bmhk,bnhk->bhmn",
    "bhmk,bnhk->bmhn", "mkl,kln->mn", "mk,khn->mhn", "bk,bkn->bn", "mk,bkn->bmn",
)  # fmt: skip
EPILOGUES = ("", "bias", "relu", "bias-relu", "residual", "twice", "rows", "turned")


@dataclass(frozen=True)
class Product:
    """`form` as NumPy's einsum reads it, extents by letter (a name is a symbolic one), dtypes of operands and sums."""

    form: str
    sizes: Mapping[str, int | str]
    dtype: str = "float32"
    out: str = "float32"
    epilogue: str = ""
    unit: bool = False  # a dimension of 1 in front of the right operand
    other: str = ""  # the dtype of the right operand, if it is another one

    @property
    def letters(self) -> tuple[str, str, str]:
        given, result = self.form.split("->")
        one, other = given.split(",")
        return one, other, result

    def text(self) -> str:
        """The kernel: operands, more inputs of the epilogue, the result."""
        one, other, result = self.letters
        names = sorted({s for s in self.sizes.values() if isinstance(s, str)})
        loops = [*result, *(x for x in one if x not in result)]
        summed = [x for x in loops if x not in result]
        product = f"A[{_axes(one)}]", f"B[{'0, ' * self.unit}{_axes(other)}]"
        lhs, rhs = (p if self.dtype == self.out else f"T.cast({p}, {self.out!r})" for p in product)
        target = "C" if not self.epilogue or self.epilogue == "twice" else "S"
        params = [
            ("A", self.shape(one), self.dtype),
            ("B", (self.one() * self.unit) + self.shape(other), self.other or self.dtype),
        ]
        if "bias" in self.epilogue or self.epilogue == "rows":
            params.append(("D", self.shape(result[-1] if "bias" in self.epilogue else result[0]), self.out))
        if self.epilogue == "residual":
            params.append(("D", self.shape(result), self.out))
        params.append(("C", self.shape(result), self.out))
        if self.epilogue == "twice":
            params.append(("E", self.shape(result), self.out))
        if self.epilogue == "turned":
            params[-1] = ("C", self.shape(result[::-1]), self.out)
        lines = ["@T.prim_func", f"def main({', '.join(f'h{n}: T.handle' for n, *_ in params)}):"]
        lines += ['    T.func_attr({"tir.noalias": True})', *(f"    {n} = T.int64()" for n in names)]
        lines += [f'    {n} = T.match_buffer(h{n}, ({shape}), "{dtype}")' for n, shape, dtype in params]
        if target == "S":
            lines.append(f'    S = T.alloc_buffer(({self.shape(result)}), "{self.out}")')
        zero = f"T.{self.out}(0)"
        place = f"{target}[{_axes(result)}]"
        lines += [
            f"    for {', '.join(loops)} in T.grid({self.shape(''.join(loops))}):",
            '        with T.block("product"):',
            *(
                f"            v{x} = T.axis.{'reduce' if x in summed else 'spatial'}({self.extent(x)}, {x})"
                for x in loops
            ),
            "            with T.init():",
            f"                {place} = {zero}",
            f"            {place} = {place} + {lhs} * {rhs}",
        ]
        source = f"{target}[{_axes(result)}]"
        after = {
            "bias": f"{source} + D[v{result[-1]}]", "relu": f"T.max({source}, {zero})",
            "bias-relu": f"T.max({source} + D[v{result[-1]}], {zero})", "residual": f"{source} + D[{_axes(result)}]",
            "twice": f"{source} * {source}", "rows": f"{source} * D[v{result[0]}]", "turned": f"{source} + {source}",
        }  # fmt: skip
        if self.epilogue:
            into = "E" if self.epilogue == "twice" else "C"
            axes = result[::-1] if self.epilogue == "turned" else result
            lines += [
                f"    for {', '.join(result)} in T.grid({self.shape(result)}):" if len(result) > 1 else
                f"    for {result} in range({self.extent(result)}):",
                '        with T.block("after"):',
                *(f"            v{x} = T.axis.spatial({self.extent(x)}, {x})" for x in result),
                f"            {into}[{_axes(axes)}] = {after[self.epilogue]}",
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def shape(self, letters: str) -> str:
        return ", ".join(self.extent(x) for x in letters) + ("," if len(letters) == 1 else "")

    def one(self) -> str:
        return "T.int64(1), " if any(isinstance(s, str) for s in self.sizes.values()) else "1, "

    def extent(self, letter: str) -> str:
        """As the text has it: int64 where one of the sizes is symbolic, as lowering makes it."""
        size = self.sizes[letter]
        wide = isinstance(size, int) and any(isinstance(s, str) for s in self.sizes.values())
        return f"T.int64({size})" if wide else str(size)

    def arrays(self, known: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
        """Inputs, and zeros for the results."""
        rng = np.random.default_rng(seed)
        sizes = {x: known[s] if isinstance(s, str) else s for x, s in self.sizes.items()}

        def made(letters: str, dtype: str, front: bool = False) -> np.ndarray:
            shape = (1,) * front + tuple(sizes[x] for x in letters)
            if np.dtype(dtype).itemsize == 1:
                info = np.iinfo(dtype)
                values = rng.integers(info.min, info.max + 1, shape)
                return np.where(rng.random(shape) < 0.3, rng.choice([info.min, info.max], shape), values).astype(dtype)
            values = rng.integers(-4, 5, shape) if np.dtype(dtype).kind in "iu" else rng.standard_normal(shape)
            return values.astype(dtype)

        one, other, result = self.letters
        arrays = [made(one, self.dtype), made(other, self.other or self.dtype, self.unit)]
        if "bias" in self.epilogue:
            arrays.append(made(result[-1], self.out))
        if self.epilogue == "rows":
            arrays.append(made(result[0], self.out))
        if self.epilogue == "residual":
            arrays.append(made(result, self.out))
        zeros = np.zeros(tuple(sizes[x] for x in result), self.out)
        arrays += [zeros.T.copy() if self.epilogue == "turned" else zeros]
        return [*arrays, zeros.copy()] if self.epilogue == "twice" else arrays

    def expected(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """What the results are to be."""
        wide = "float64" if np.dtype(self.out).kind == "f" else self.out
        a, b = arrays[0].astype(wide), arrays[1].astype(wide)
        s = np.einsum(self.form, a, b[0] if self.unit else b)
        match self.epilogue:
            case "bias":
                s = s + arrays[2]
            case "relu":
                s = np.maximum(s, 0)
            case "bias-relu":
                s = np.maximum(s + arrays[2], 0)
            case "residual":
                s = s + arrays[2]
            case "rows":
                s = s * arrays[2].reshape(-1, *[1] * (s.ndim - 1))
            case "turned":
                s = (s + s).T
            case "twice":
                return [s, s * s]
        return [s]


def _axes(letters: str) -> str:
    return ", ".join(f"v{x}" for x in letters)
