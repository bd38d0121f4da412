"""Tensor-expression programs that run with mlcc's `te` and with TVM's alike: each takes the module, gives the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any], list[Any]]


def matmul(te: Any) -> list[Any]:
    a, b = te.placeholder((6, 5), "float32", name="A"), te.placeholder((5, 7), "float32", name="B")
    k = te.reduce_axis((0, 5), "k")
    return [a, b, te.compute((6, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def matmul_relu(te: Any) -> list[Any]:
    a, b, c = matmul(te)
    return [a, b, te.compute((6, 7), lambda i, j: te.max(c[i, j], 0), name="D")]


def exposed(te: Any) -> list[Any]:
    a, b, c = matmul(te)
    return [a, b, c, te.compute((6, 7), lambda *i: te.max(c(*i), 0), name="D")]


def results_before_what_they_need(te: Any) -> list[Any]:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((4,), lambda i: b[i] * 2.0, name="C")
    return [c, a, b]


def two_users(te: Any) -> list[Any]:
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[j, i], name="B")
    c = te.compute((4, 4), lambda i, j: te.exp(b[i, j]), name="C")
    d = te.compute((4, 4), lambda i, j: b[i, j] - c[i, j], name="D")
    return [a, d]


def symbolic(te: Any) -> list[Any]:
    n, m = te.var("n", "int64"), te.var("m", "int64")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")]


def variable_parameter(te: Any) -> list[Any]:
    n = te.var("n", "int64")
    a = te.placeholder((8,), name="A")
    return [a, n, te.compute((n,), lambda i: a[i] + 1.0, name="B")]


def scalar_result(te: Any) -> list[Any]:
    a = te.placeholder((3, 4), name="A")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 4), "j")
    return [a, te.compute((), lambda: te.max(a[i, j], axis=[i, j]), name="B")]


def no_axes_at_all(te: Any) -> list[Any]:
    a, b = te.placeholder((), name="A"), te.placeholder((), name="B")
    return [a, b, te.compute((), lambda: a() * b(), name="C")]


def range_from_one(te: Any) -> list[Any]:
    a = te.placeholder((3, 8), name="A")
    k = te.reduce_axis((1, 7), "k")
    return [a, te.compute((3,), lambda i: te.min(a[i, k], axis=k), name="B")]


def window(te: Any) -> list[Any]:
    a = te.placeholder((12,), name="A")
    k = te.reduce_axis((0, 3), "k")
    return [a, te.compute((5,), lambda i: te.sum(a[i * 2 + k], axis=k), name="B")]


def gather(te: Any) -> list[Any]:
    a, i = te.placeholder((8, 4), name="A"), te.placeholder((5,), "int32", name="I")
    return [a, i, te.compute((5, 4), lambda x, y: a[i[x], y], name="B")]


def padded(te: Any) -> list[Any]:
    a = te.placeholder((6,), name="A")
    return [a, te.compute((8,), lambda i: te.if_then_else(te.all(i >= 1, i < 7), a[i - 1], 0.0), name="B")]


def integers(te: Any) -> list[Any]:
    a = te.placeholder((9,), "int32", name="A")

    def element(i: Any) -> Any:
        return (a[i] // 3) * 2 + te.truncdiv(a[i], 3) - te.floormod(a[i], 5) + te.abs(a[i])

    return [a, te.compute((9,), element, name="B")]


def reshaped(te: Any) -> list[Any]:
    a = te.placeholder((4, 6), name="A")
    return [a, te.compute((24,), lambda i: a[i // 6, i % 6], name="B")]


def mathematics(te: Any) -> list[Any]:
    a = te.placeholder((5,), name="A")

    def element(i: Any) -> Any:
        return te.exp(a[i]) + te.sqrt(te.abs(a[i])) * te.tanh(a[i]) - te.sigmoid(a[i]) / te.power(a[i], 2.0)

    return [a, te.compute((5,), element, name="B")]


def tests_of_floats(te: Any) -> list[Any]:
    a = te.placeholder((5,), "float16", name="A")
    return [a, te.compute((5,), lambda i: te.isnan(a[i]), name="B")]


def several_results(te: Any) -> list[Any]:
    a = te.placeholder((5,), name="A")
    return [a, *te.compute((5,), lambda i: (a[i], a[i] * 2.0), name="B")]


def product(te: Any) -> list[Any]:
    a = te.placeholder((5, 3), "float64", name="A")
    k = te.reduce_axis((0, 3), "k")
    reducer = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t), name="prod")
    return [a, te.compute((5,), lambda i: reducer(a[i, k], axis=k), name="B")]


def annotated(te: Any) -> list[Any]:
    a, b = te.placeholder((4, 5), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 5), "k")
    marks = {"layout_free_placeholders": [b], "note": "x", "number": 3}
    return [a, b, te.compute((4, 6), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C", attrs=marks)]


def half(te: Any) -> list[Any]:
    a = te.placeholder((4, 5), "float16", name="A")
    k = te.reduce_axis((0, 5), "k")
    return [a, te.compute((4,), lambda i: te.sum(a[i, k].astype("float32"), axis=k), name="B")]


def triangle(te: Any) -> list[Any]:
    a = te.placeholder((6, 6), name="A")

    def element(i: Any) -> Any:
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(a[i, k], axis=k)

    return [a, te.compute((6,), element, name="B")]


PROGRAMS: list[Program] = [
    matmul, matmul_relu, exposed, results_before_what_they_need, two_users, symbolic, variable_parameter, scalar_result,
    no_axes_at_all, range_from_one, window, gather, padded, integers, reshaped, mathematics, tests_of_floats,
    several_results, product, annotated, half, triangle,
]  # fmt: skip
