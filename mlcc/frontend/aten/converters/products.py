"""Products of vectors, matrices and tensors, einsum included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.frontend.aten.converters.arithmetic import scaled
from mlcc.frontend.aten.converters.joins import roll
from mlcc.frontend.aten.converters.shapes import broadcast, diagonal, permute, same_shape, total_size
from mlcc.frontend.aten.promotion import Value, promote_operands
from mlcc.frontend.aten.table import Converter, converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op


@converts("aten.linear")
def _linear(t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None) -> relax.Expr:
    turned = t.emit(op.permute_dims(weight)) if t.ndim(weight) > 1 else weight
    projected = t.emit(op.matmul(input, turned))
    return projected if bias is None else op.add(projected, bias)


@converts("aten.matmul", "aten.__matmul__", "aten.linalg_matmul")
def _matmul(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    return op.matmul(self, other)


@converts("aten.mm", "aten.bmm", "aten.dot", "aten.vdot")
def _product(
    t: Translator, self: relax.Expr, mat2: relax.Expr | None = None, tensor: relax.Expr | None = None,
    other: relax.Expr | None = None, out_dtype: str | None = None,
) -> relax.Expr:  # fmt: skip
    second = next(x for x in (mat2, tensor, other) if x is not None)
    return op.matmul(self, second, out_dtype=out_dtype)


@converts("aten.inner")
def _inner(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    if not t.ndim(self) or not t.ndim(other):
        return op.multiply(self, other)
    *rest, last = t.shape(other)
    turned = t.emit(op.permute_dims(t.reshape(other, [total_size(rest), last])))
    return t.reshape(t.emit(op.matmul(self, turned)), t.out_shape())


@converts("aten.mv")
def _mv(t: Translator, self: relax.Expr, vec: relax.Expr) -> relax.Expr:
    return op.matmul(self, vec)


# operators that add a product to a tensor: the names of its operands, and the product's operator
_WITH_ADDEND: dict[str, tuple[str, str, Callable[[relax.Expr, relax.Expr], relax.Call]]] = {
    "aten.addmm": ("mat1", "mat2", op.matmul),
    "aten.addmv": ("mat", "vec", op.matmul),
    "aten.baddbmm": ("batch1", "batch2", op.matmul),
    "aten.addbmm": ("batch1", "batch2", lambda a, b: op.sum(op.matmul(a, b), axis=[0])),
    "aten.addr": ("vec1", "vec2", op.outer),
}


def _with_addend(one: str, other: str, times: Callable[[relax.Expr, relax.Expr], relax.Call]) -> Converter:
    def convert(
        t: Translator, self: relax.Expr, beta: Value = 1, alpha: Value = 1, **operands: relax.Expr
    ) -> relax.Expr:
        return _add_scaled(t, self, t.emit(times(operands[one], operands[other])), beta, alpha)

    return convert


for _target, _how in _WITH_ADDEND.items():
    converts(_target)(_with_addend(*_how))


def _add_scaled(t: Translator, addend: relax.Expr, summand: relax.Expr, beta: Value, alpha: Value) -> relax.Expr:
    """Return beta * addend + alpha * summand. With beta = 0 the addend is not read, so that its NaN are ignored."""
    dtype = t.dtype(summand)
    result = scaled(t, summand, alpha, dtype)
    return result if beta == 0 else op.add(result, scaled(t, addend, beta, dtype))


@converts("aten._grouped_mm", "transformers.grouped_mm_fallback")
def _grouped_mm(
    t: Translator, self: relax.Expr | None = None, mat2: relax.Expr | None = None, offs: relax.Expr | None = None,
    bias: relax.Expr | None = None, out_dtype: str | None = None, input: relax.Expr | None = None,
    weight: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    data, weights = (next(x for x in pair if x is not None) for pair in ((self, input), (mat2, weight)))
    if bias is not None or offs is None or (t.ndim(data), t.ndim(weights)) != (2, 3):
        raise Unsupported("only grouped matmuls of 2-D data and 3-D weights without a bias are supported")
    products = op.nn.grouped_matmul(data, weights, offs)
    return products if out_dtype is None else t.cast(products, out_dtype)


@converts("aten.outer", "aten.ger")
def _outer(t: Translator, self: relax.Expr, vec2: relax.Expr) -> relax.Expr:
    return op.outer(*promote_operands(t, self, vec2))


@converts("aten.linalg_vecdot")
def _vecdot(t: Translator, x: relax.Expr, y: relax.Expr, dim: int = -1) -> relax.Expr:
    products = t.emit(op.multiply(x, y))
    return op.sum(products, axis=[t.axis(products, dim)])


@converts("aten.kron")
def _kron(t: Translator, self: relax.Expr, other: relax.Expr) -> relax.Expr:
    rank = max(t.ndim(self), t.ndim(other))
    x: list[Dim] = [*[1] * (rank - t.ndim(self)), *t.shape(self)]
    y: list[Dim] = [*[1] * (rank - t.ndim(other)), *t.shape(other)]
    pairs: list[tuple[Dim, Dim]] = [(extent, 1) for extent in x]
    left = t.reshape(self, [e for pair in pairs for e in pair])
    pairs = [(1, extent) for extent in y]
    right = t.reshape(other, [e for pair in pairs for e in pair])
    return t.reshape(t.emit(op.multiply(left, right)), t.out_shape())


@converts("aten.tensordot")
def _tensordot(
    t: Translator, self: relax.Expr, other: relax.Expr, dims_self: list[int], dims_other: list[int]
) -> relax.Expr:
    mine = [t.axis(self, dim) for dim in dims_self]
    theirs = [t.axis(other, dim) for dim in dims_other]
    letters = [chr(ord("a") + at) for at in range(t.ndim(self))]
    others = [chr(ord("A") + at) for at in range(t.ndim(other))]
    for one, two in zip(mine, theirs, strict=True):
        others[two] = letters[one]
    kept = [letters[a] for a in range(t.ndim(self)) if a not in mine]
    kept += [others[a] for a in range(t.ndim(other)) if a not in theirs]
    return op.einsum([self, other], f"{''.join(letters)},{''.join(others)}->{''.join(kept)}")


@converts("aten.einsum")
def _einsum(t: Translator, equation: str, tensors: list[relax.Expr], path: list[int] | None = None) -> relax.Expr:
    left, _, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    named = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
    result = right if "->" in equation else ("..." if "..." in left else "") + "".join(named)
    ranks = [t.ndim(x) - len(text.replace("...", "")) for x, text in zip(tensors, inputs, strict=True)]
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in left][
        : max(ranks, default=0)
    ]

    def spelled(text: str, count: int) -> str:
        return text.replace("...", "".join(spare[len(spare) - count :]))

    texts = [spelled(text, count) for text, count in zip(inputs, ranks, strict=True)]
    wanted = spelled(result, len(spare))
    operands = [_without_repeats(t, x, text, wanted) for x, text in zip(tensors, texts, strict=True)]
    pair = _as_matmul(t, operands, wanted) if len(operands) == 2 else None
    if pair is not None:
        return pair
    return op.einsum([x for x, _ in operands], f"{','.join(text for _, text in operands)}->{wanted}")


def _without_repeats(t: Translator, value: relax.Expr, text: str, wanted: str) -> tuple[relax.Expr, str]:
    """Take the diagonal of an operand for each letter that occurs twice."""
    for letter in dict.fromkeys(text):
        while text.count(letter) > 1:
            one = text.index(letter)
            two = text.index(letter, one + 1)
            value = diagonal(t, value, 0, one, two, t.shape(value)[one])
            text = text[:one] + text[one + 1 : two] + text[two + 1 :] + letter
    return value, text


def _as_matmul(t: Translator, operands: list[tuple[relax.Expr, str]], wanted: str) -> relax.Expr | None:
    """Emit an einsum of two operands as a batched matmul, if its letters are batch, reduction, row and column axes.
    None for other products, and where extents of a letter differ (an extent of 1 broadcasts)."""
    (x, left), (y, right) = operands
    batch = [c for c in left if c in right and c in wanted]
    summed = [c for c in left if c in right and c not in wanted]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    if not summed or any(c not in wanted for c in rows + columns):
        return None
    extents = {**dict(zip(left, t.shape(x), strict=True)), **dict(zip(right, t.shape(y), strict=True))}
    if not same_shape(t.shape(x), [extents[c] for c in left]):
        return None
    shape = {name: [extents[c] for c in letters] for name, letters in
             (("batch", batch), ("rows", rows), ("summed", summed), ("columns", columns))}  # fmt: skip
    one = permute(t, x, [left.index(c) for c in [*batch, *rows, *summed]])
    two = permute(t, y, [right.index(c) for c in [*batch, *summed, *columns]])
    one = t.reshape(one, [*shape["batch"], total_size(shape["rows"]), total_size(shape["summed"])])
    two = t.reshape(two, [*shape["batch"], total_size(shape["summed"]), total_size(shape["columns"])])
    batched = t.reshape(t.emit(op.matmul(one, two)), [*shape["batch"], *shape["rows"], *shape["columns"]])
    order = [*batch, *rows, *columns]
    return permute(t, batched, [order.index(c) for c in wanted])


@converts("aten.bilinear", "aten._trilinear")
def _bilinear(
    t: Translator, input1: relax.Expr, input2: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    form = t.emit(op.einsum([t.emit(op.einsum([input1, weight], _letters(t, input1))), input2], _second(t, input1)))
    return form if bias is None else op.add(form, bias)


def _letters(t: Translator, value: relax.Expr) -> str:
    rest = "abcdefgh"[: t.ndim(value) - 1]
    return f"{rest}i,oij->{rest}oj"


def _second(t: Translator, value: relax.Expr) -> str:
    rest = "abcdefgh"[: t.ndim(value) - 1]
    return f"{rest}oj,{rest}j->{rest}o"


@converts("aten.chain_matmul", "aten.linalg_multi_dot")
def _chain(t: Translator, matrices: list[relax.Expr] | None = None, tensors: list[relax.Expr] | None = None) -> Any:
    given = matrices or tensors or []
    chained = given[0]
    for each in given[1:]:
        chained = t.emit(op.matmul(chained, each))
    return chained


@converts("aten.cross", "aten.linalg_cross")
def _cross(t: Translator, self: relax.Expr, other: relax.Expr, dim: int = -1) -> relax.Expr:
    shape = t.out_shape()
    x, y = broadcast(t, self, shape), broadcast(t, other, shape)
    axis = t.axis(x, dim)

    def turned(value: relax.Expr, shift: int) -> relax.Expr:
        return roll(t, value, axis, shift)

    return op.subtract(op.multiply(turned(x, -1), turned(y, -2)), op.multiply(turned(x, -2), turned(y, -1)))


@converts("aten.matrix_power", "aten.linalg_matrix_power")
def _matrix_power(t: Translator, self: relax.Expr, n: int) -> relax.Expr:
    if n < 1:
        raise Unsupported(f"the power {n} of a matrix is not supported")
    power = self
    for _ in range(n - 1):
        power = t.emit(op.matmul(power, self))
    return power
