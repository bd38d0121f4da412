"""Counter-based random numbers: the generator Philox 4x32-10 of Random123.

The key is two int64: the seed, whose halves are Philox's key, and the number of a stream. Words come four at a time:
number 4 b + i is word i of the counter b (its two low words) in that stream (its two high words). An element depends
only on the key and its row-major index: any thread can compute it, and a key gives the same tensor everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import (
    Tensor,
    fail,
    int64,
    known_different,
    product,
    result,
    result_dims,
    shape_argument,
    shape_text,
    tensor,
)
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the halves of the key in each round
LOW = 0xFFFFFFFF
_WORD = DType.of("uint64")  # a word of 32 bits, with room for a product
BITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
}  # of a uniform number, few enough that none rounds to 1

# ---------------------------------------------------------------- inference


def infer_random(*allowed: str) -> Callable[[relax.Call], Tensor]:
    """The given shape and dtype, which must be one of those allowed; a key of two int64."""

    def infer(call: relax.Call) -> Tensor:
        key, shape, dtype = tensor(call, 0), shape_argument(call, 1), call.attrs["dtype"]
        if key.dtype is not None and key.dtype is not INT64:
            fail(call, "E0444", f"the key must be int64, not {key.dtype}", "convert it with `R.astype`")
        wrong = key.dims is not None and len(key.dims) == 1 and known_different(key.dims[0], int64(2))
        if key.ndim not in (-1, 1) or wrong:
            fail(
                call,
                "E0445",
                f"the key must have shape (2,), a seed and a stream, not {shape_text(key.dims, key.ndim)}",
            )
        if dtype not in allowed:
            fail(call, "E0444", f"`dtype` must be one of {', '.join(allowed)}, it is {dtype}")
        if "low" in call.attrs:
            _check_range(call, call.attrs["low"], call.attrs["high"], DType.of(dtype))
        return result(shape.values, DType.of(dtype), shape.ndim)

    return infer


def _check_range(call: relax.Call, low: int, high: int, dtype: DType) -> None:
    if not 0 < high - low <= 1 << 32:
        fail(call, "E0442", "`high` must be above `low`, by 2**32 at most")
    least, most = tir.const_int(construct.min_value(dtype)), tir.const_int(construct.max_value(dtype))
    if least is None or most is None or low < least or high - 1 > most:
        fail(call, "E0442", f"not every integer from {low} to {high - 1} fits {dtype}")


# ---------------------------------------------------------------- lowering


def _word(value: int) -> Scalar:
    return Scalar(construct.const(value, _WORD))


def _low_word(a: Scalar) -> Scalar:
    return a & _word(LOW)  # type: ignore[no-any-return]


def _shift_right(a: Scalar, count: int) -> Scalar:
    return a >> _word(count)  # type: ignore[no-any-return]


class _Philox:
    """Emit statements that compute the four words of a counter in `words`."""

    def __init__(self) -> None:
        self.words, self.keys, self.products = (
            code.scratch(name, (count,), _WORD, "local") for name, count in (("words", 4), ("keys", 2), ("products", 2))
        )

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        return tuple(c.buffer for c in (self.words, self.keys, self.products))

    def generate(self, key: BufferElements, block: Scalar) -> Any:
        wide, seed, stream = (v.astype(_WORD) for v in (block, key[0], key[1]))
        counter = [
            self.words.set(v, i) for i, v in enumerate((_low_word(wide), _shift_right(wide, 32), _low_word(stream)))
        ]
        begin = [*counter, self.words.set(_shift_right(stream, 32), 3), self.keys.set(_low_word(seed), 0)]
        return begin, self.keys.set(_shift_right(seed, 32), 1), [self._round(n < ROUNDS - 1) for n in range(ROUNDS)]

    def _round(self, more: bool) -> Any:
        words, keys, products = self.words, self.keys, self.products
        multiply = [products.set(_word(m) * words[2 * i], i) for i, m in enumerate(MULTIPLIERS)]
        mix = [
            words.set(_shift_right(products[1], 32) ^ words[1] ^ keys[0], 0),
            words.set(_low_word(products[1]), 1),
            words.set(_shift_right(products[0], 32) ^ words[3] ^ keys[1], 2),
            words.set(_low_word(products[0]), 3),
        ]
        grow = [keys.set(_low_word(keys[i] + _word(w)), i) for i, w in enumerate(WEYL)] if more else ()
        return multiply, mix, grow


Elements = Callable[[relax.Call, BufferElements, DType], list[Scalar]]  # the elements made from four words


def _lowering(elements: Elements, parallel: bool) -> Any:
    def lowering(call: relax.Call, key: te.Tensor, shape: Any) -> te.Tensor:
        dims, dtype, philox = result_dims(call), DType.of(call.attrs["dtype"]), _Philox()
        total = Scalar(product(dims))
        numbers = elements(call, philox.words, dtype)

        def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
            seeds, out = BufferElements(ins[0]), BufferElements(outs[0])

            def block(b: Scalar) -> Any:
                places = [b * len(numbers) + i for i in range(len(numbers))]
                stores = [out.set(v, *_indices(p, dims)) for p, v in zip(places, numbers, strict=True)]
                return philox.generate(seeds, b), [
                    code.if_then(p < total, s) for p, s in zip(places, stores, strict=True)
                ]

            count = (total + (len(numbers) - 1)) // len(numbers)
            return code.thread_loop(count, block) if parallel else code.loop(count, block, "block")

        name = f"T_random_{call.op.name.rpartition('.')[2]}"
        return te.extern(dims, [key], body, name, dtype, scratch=philox.buffers)  # type: ignore[no-any-return]

    return lowering


def _indices(place: Scalar, dims: tuple[tir.Expr, ...]) -> list[Scalar]:
    """Convert a row-major linear index to indices."""
    indices: list[Scalar] = []
    for axis in reversed(range(len(dims))):
        extent = Scalar(
            dims[axis] if tir.const_int(dims[axis]) != 0 else construct.const(1, "int64")
        )  # no division by 0
        indices.insert(0, place % extent if axis else place)
        place = place // extent
    return indices


def _bits(call: relax.Call, words: BufferElements, dtype: DType) -> list[Scalar]:
    if dtype.bits <= 32:
        return [words[i].astype(dtype) for i in range(4)]
    return [(words[2 * i] * _word(1 << 32) + words[2 * i + 1]).astype(dtype) for i in range(2)]


def _fraction(words: BufferElements, at: int, dtype: DType) -> Scalar:
    """Convert the high bits of one or two words to a number in [0, 1)."""
    bits = BITS[str(dtype)]
    if dtype.bits > 32:
        high_bits = _shift_right(words[at] * _word(1 << 32) + words[at + 1], 64 - bits)
    else:
        high_bits = _shift_right(words[at], 32 - bits)
    real = DType.of("float64" if dtype.bits > 32 else "float32")
    return high_bits.astype("int64").astype(real) * te.const(2.0**-bits, real)  # type: ignore[no-any-return]


def _uniform(call: relax.Call, words: BufferElements, dtype: DType) -> list[Scalar]:
    step = 2 if dtype.bits > 32 else 1
    return [_fraction(words, i, dtype).astype(dtype) for i in range(0, 4, step)]


def _normal(call: relax.Call, words: BufferElements, dtype: DType) -> list[Scalar]:
    """Normal numbers in pairs by the Box-Muller transform."""
    real = DType.of("float64" if dtype.bits > 32 else "float32")
    step, one = (2 if dtype.bits > 32 else 1), te.const(1.0, real)
    normals: list[Scalar] = []
    for at in range(0, 4, 2 * step):
        radius = te.sqrt(te.const(-2.0, real) * te.log(one - _fraction(words, at, real)))
        angle = te.const(2 * math.pi, real) * _fraction(words, at + step, real)
        normals += [(radius * te.cos(angle)).astype(dtype), (radius * te.sin(angle)).astype(dtype)]
    return normals


def _integers(call: relax.Call, words: BufferElements, dtype: DType) -> list[Scalar]:
    """Integers in [low, high): the high half of a word times the size of the range."""
    span, low = _word(call.attrs["high"] - call.attrs["low"]), te.const(call.attrs["low"], "int64")
    return [(_shift_right(words[i] * span, 32).astype("int64") + low).astype(dtype) for i in range(4)]


# ---------------------------------------------------------------- NumPy


def np_philox(key: Any, blocks: Any) -> Any:
    """The words (blocks, 4) of some counters, as uint64."""
    u = np.uint64
    low, half = u(LOW), u(32)
    blocks, seed, stream = np.asarray(blocks, u), u(int(key[0]) % 2**64), u(int(key[1]) % 2**64)
    words = [blocks & low, blocks >> half, np.full_like(blocks, stream & low), np.full_like(blocks, stream >> half)]
    keys = [seed & low, seed >> half]
    for _ in range(ROUNDS):
        first, second = u(MULTIPLIERS[0]) * words[0], u(MULTIPLIERS[1]) * words[2]
        words = [
            (second >> half) ^ words[1] ^ keys[0], second & low, (first >> half) ^ words[3] ^ keys[1], first & low,
        ]  # fmt: skip
        keys = [(k + u(w)) & low for k, w in zip(keys, WEYL, strict=True)]
    return np.stack(words, -1)


def _np_fractions(words: Any, wide: bool, bits: int) -> Any:
    combined = (words[:, ::2] << np.uint64(32)) | words[:, 1::2] if wide else words
    real = np.float64 if wide else np.float32
    return (combined >> np.uint64((64 if wide else 32) - bits)).astype(real) * real(2.0**-bits)


def _np_bits(call: relax.Call, words: Any, dtype: str) -> Any:
    return ((words[:, ::2] << np.uint64(32)) | words[:, 1::2] if dtype.endswith("64") else words).astype(dtype)


def _np_uniform(call: relax.Call, words: Any, dtype: str) -> Any:
    return _np_fractions(words, dtype == "float64", BITS[dtype])


def _np_normal(call: relax.Call, words: Any, dtype: str) -> Any:
    wide = dtype == "float64"
    parts = _np_fractions(words, wide, 53 if wide else 24)
    f = parts.dtype.type
    radius, angle = np.sqrt(f(-2) * np.log(f(1) - parts[:, ::2])), f(2 * math.pi) * parts[:, 1::2]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)


def _np_integers(call: relax.Call, words: Any, dtype: str) -> Any:
    span = np.uint64(call.attrs["high"] - call.attrs["low"])
    return ((words * span >> np.uint64(32)).astype(np.int64) + call.attrs["low"]).astype(dtype)


def _reference(elements: Callable[..., Any]) -> Callable[..., Any]:
    def reference(call: relax.Call, key: Any, shape: Any) -> Any:
        total = math.prod(shape)
        numbers = elements(call, np_philox(key, np.arange(-(-total // 2))), call.attrs["dtype"])
        return np.reshape(np.reshape(numbers, -1)[:total], tuple(shape))

    return reference


def _entry(parameters: str, lower: Elements, numpy: Callable[..., Any], *allowed: str) -> Impl:
    return Impl(
        f"key, shape: shape, {parameters}", infer_random(*allowed), _reference(numpy), _lowering(lower, False),
        many=_lowering(lower, True),
    )  # fmt: skip


OPS: dict[str, Impl] = {
    "random.bits": _entry('dtype: dtype = "uint32"', _bits, _np_bits, "uint32", "uint64", "int32", "int64"),
    "random.uniform": _entry('dtype: dtype = "float32"', _uniform, _np_uniform, *BITS),
    "random.normal": _entry('dtype: dtype = "float32"', _normal, _np_normal, *BITS),
    "random.integers": _entry(
        'low: int, high: int, dtype: dtype = "int64"', _integers, _np_integers, "int64", "int32", "int16", "int8",
        "uint64", "uint32", "uint16", "uint8",
    ),
}  # fmt: skip
