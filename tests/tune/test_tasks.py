"""Which kernels of a module become tasks."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.machine.target import Target
from mlcc.tune.roofline import operations, traffic
from mlcc.tune.tasks import ExtractedModule, extract

MODEL = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.nn.relu(R.matmul(a, w))
            c = R.nn.softmax(b)
            R.output(c)
        return c
"""
MM = """
@T.prim_func
def NAME(a: T.Buffer((N, 32), "float32"), b: T.Buffer((32, 16), "float32"), c: T.Buffer((N, 16), "float32")):
    for i, j, k in T.grid(N, 16, 32):
        with T.block("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""
SYMBOLIC = """
@T.prim_func
def scale(p: T.handle, q: T.handle):
    n = T.int64()
    a = T.match_buffer(p, (n,), "float32")
    b = T.match_buffer(q, (n,), "float32")
    for i in range(n):
        with T.block("b"):
            vi = T.axis.spatial(n, i)
            b[vi] = a[vi] * T.float32(2)
"""


def tasks(text: str, **options: object) -> ExtractedModule:
    return extract(mlcc.parse(text), Target.parse("llvm{cpu=native}"), **options)  # type: ignore[arg-type]


def mm(name: str, size: int) -> str:
    return MM.replace("NAME", name).replace("N,", f"{size},")


def code(text: str, **options: object) -> str:
    with pytest.raises(CompileError) as caught:
        tasks(text, **options)
    return caught.value.diagnostics[0].code


def test_kernels_of_a_graph_become_tasks() -> None:
    found = tasks(MODEL)
    softmax, product = found.tasks
    assert "matmul" in product.names[0] and "softmax" in softmax.names[0]
    assert product.calls == 2 and softmax.calls == 1
    assert "auto-schedule" in str(found.left) and "fuse" not in str(found.left)
    assert len(product.key) == 32 and product.key == tasks(MODEL).tasks[1].key


def test_constant_weights_are_another_task() -> None:
    bound = MODEL.replace(', w: R.Tensor((64, 64), "float32")', "").replace(
        "R.matmul(x, w)", 'R.matmul(x, R.ones((64, 64), dtype="float32"))'
    ).replace("R.matmul(a, w)", 'R.matmul(a, R.ones((64, 64), dtype="float32"))')  # fmt: skip
    first, other = tasks(MODEL).tasks[1], tasks(bound).tasks[1]
    assert other.constants == {1} and not first.constants
    assert first.key != other.key


def test_functions_without_a_graph_become_tasks() -> None:
    found = tasks(mm("one", 8) + mm("two", 8) + mm("three", 12))
    assert [t.names for t in found.tasks] == [("one", "two"), ("three",)]
    assert [t.calls for t in found.tasks] == [1, 1]
    assert [t.names for t in tasks(mm("one", 8) + mm("three", 12), kernels="th*").tasks] == [("three",)]


def test_the_key_does_not_know_names() -> None:
    assert tasks(mm("one", 8)).tasks[0].key == tasks(mm("other", 8)).tasks[0].key != tasks(mm("one", 9)).tasks[0].key


def test_what_somebody_scheduled_is_no_task() -> None:
    scheduled = mm("one", 8).replace("for i, j", 'T.func_attr({"tir.is_scheduled": True})\n    for i, j')
    assert code(scheduled) == "E1131"
    assert [t.names for t in tasks(scheduled + mm("two", 8)).tasks] == [("two",)]
    assert code(mm("one", 8), kernels="x*") == "E1131"


def test_symbolic_sizes_must_be_given() -> None:
    assert code(SYMBOLIC) == "E1132"
    assert tasks(SYMBOLIC, sizes={"n": 100, "m": 3}).tasks[0].sizes == {"n": 100}


def test_a_level_that_schedules_nothing() -> None:
    assert code(MODEL, level=1) == "E1130"


def test_calls_through_functions_are_counted() -> None:
    text = """
@I.ir_module
class Module:
    @R.function(private=True)
    def part(x: R.Tensor((64, 64), "float32")) -> R.Tensor((64, 64), "float32"):
        y = R.nn.softmax(x)
        return y

    @R.function
    def main(x: R.Tensor((64, 64), "float32")):
        cls = Module
        a = cls.part(x)
        b = cls.part(a)
        return b
"""
    assert [t.calls for t in tasks(text).tasks] == [2]


LOOKUP = """
@T.prim_func
def main(table: T.Buffer((50000, 8), "float32"), at: T.Buffer((20,), "int64"), y: T.Buffer((20, 8), "float32")):
    for i, j in T.grid(20, 8):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = table[at[vi], vj]
"""


def test_what_is_not_read_is_no_part_of_the_roofline() -> None:
    (lookup,) = mlcc.parse(LOOKUP).functions.values()
    assert isinstance(lookup, tir.PrimFunc)
    assert traffic(lookup) == 20 * 8 * 4 + 20 * 8 + 20 * 8 * 4
    (product,) = mlcc.parse(MM.replace("NAME", "mm").replace("N", "64")).functions.values()
    assert isinstance(product, tir.PrimFunc)
    assert traffic(product) == 4 * (64 * 32 + 32 * 16 + 64 * 16) and operations(product) == 2 * 64 * 32 * 16
