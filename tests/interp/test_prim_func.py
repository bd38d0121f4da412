"""TensorIR functions against NumPy and against plain Python loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CallError
from mlcc.interp import loops, run_prim_func
from mlcc.interp.arithmetic import stored
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import EMPTY
from mlcc.ir.tir import PrimFunc
from mlcc.ops.relations import evaluate
from tests.generate.functions import prim_func

SIZES = st.sampled_from([0, 1, 2, 3, 5, 7, 13, 17])
RANDOM = np.random.default_rng(7)


def parse(text: str) -> PrimFunc:
    """The only function of a text; `T.prim_func` is added."""
    module = mlcc.parse("@T.prim_func\n" + text, name="test.mlc")
    return next(iter(module.functions.values()))  # type: ignore[return-value]


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


@pytest.fixture(params=["side by side", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of running loops."""
    monkeypatch.setattr(loops, "MIN_VECTORIZED", 2 if request.param == "side by side" else 1 << 60)
    yield request.param


def fault(text: str, *args: Any, env: dict[str, Any] | None = None) -> str:
    """The message of the error that running a text ends in."""
    with pytest.raises(CallError) as caught:
        run_prim_func(parse(text), args, env=env)
    return str(caught.value)


# ---------------------------------------------------------------- values

MATMUL_RELU = """
def main(a: T.handle, b: T.handle, d: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (k, m), "float32")
    D = T.match_buffer(d, (n, m), "float32")
    C = T.alloc_buffer((n, m), "float32")
    for i, j, l in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, l])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vl] * B[vl, vj]
    for i, j in T.grid(n, m):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))
"""


@settings(max_examples=25, deadline=None)
@given(n=SIZES, m=SIZES, k=st.sampled_from([1, 2, 5, 13]))
def test_matmul_accumulates_in_order(n: int, m: int, k: int) -> None:
    """The sum along the reduce axis is rounded step by step, in the order of the loop."""
    a, b, d = floats(n, k), floats(k, m), np.zeros((n, m), "float32")
    run_prim_func(parse(MATMUL_RELU), [a, b, d])
    total = np.zeros((n, m), "float32")
    for step in range(k):
        total = total + a[:, step : step + 1] * b[step : step + 1]
    assert np.array_equal(d, np.maximum(total, 0))


def test_reduction_over_nothing_is_its_init() -> None:
    out = np.full((2, 3), 7, "float32")
    run_prim_func(parse(MATMUL_RELU), [floats(2, 0), floats(0, 3), out])
    assert not out.any()


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_elementwise_functions_match_numpy(size: int, way: str) -> None:
    text = """
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = T.exp(A[i]) + T.float32(1)
"""
    a, b = floats(size), np.zeros(size, "float32")
    run_prim_func(parse(text), [a, b])
    assert np.allclose(b, np.exp(a) + 1, rtol=1e-6)


LOOPS = {
    "prefix sum": ("for i in range(1, 40):\n        A[i] = A[i - 1] + A[i]", lambda a: np.cumsum(a)),
    "shift right, in order": ("for i in range(39):\n        A[i + 1] = A[i]", lambda a: np.full(40, a[0])),
    "shift left": ("for i in range(39):\n        A[i] = A[i + 1]", lambda a: np.append(a[1:], a[39])),
    "reverse in place": (
        "for i in range(20):\n        x: T.int32 = A[i]\n        A[i] = A[39 - i]\n        A[39 - i] = x",
        lambda a: a[::-1],
    ),
    "last write wins": ("for i in range(40):\n        A[0] = A[i]", lambda a: np.append(a[39], a[1:])),
    "histogram": (
        "for i in range(40):\n        A[A[i] % 4] = A[A[i] % 4] + 1",
        lambda a: _loop(a, lambda x, i: x.__setitem__(x[i] % 4, x[x[i] % 4] + 1), 40),
    ),
    "sum to one": ("for i in range(1, 40):\n        A[0] = A[0] + A[i]", lambda a: np.append(a.sum(), a[1:])),
    "even from odd": ("for i in range(20):\n        A[2 * i] = A[2 * i + 1]", lambda a: np.repeat(a[1::2], 2)),
    "inner sum": (
        "for i in range(8):\n        for j in range(1, 5):\n            A[i * 5] = A[i * 5] + A[i * 5 + j]",
        lambda a: _columns(a, lambda x: np.concatenate([x.sum(1, keepdims=True), x[:, 1:]], 1)),
    ),
    "outer carried": (
        "for i in range(1, 8):\n        for j in range(5):\n            A[i * 5 + j] = A[i * 5 + j] + A[i * 5 + j - 5]",
        lambda a: _columns(a, lambda x: np.cumsum(x, 0)),
    ),
    "step": ("for i in range(0, 40, 3):\n        A[i] = 0", lambda a: np.where(np.arange(40) % 3 == 0, 0, a)),
    "if": (
        "for i in range(40):\n        if A[i] > 50:\n            A[i] = 1\n        else:\n            A[i] = A[i] * 2",
        lambda a: np.where(a > 50, 1, a * 2),
    ),
    "triangle": (
        "for i in range(8):\n        for j in range(i):\n            A[i] = A[i] + j",
        lambda a: a + np.where(np.arange(40) < 8, np.arange(40) * (np.arange(40) - 1) // 2, 0),
    ),
    "while": (
        "for i in range(40):\n        while A[i] > 10:\n            A[i] = A[i] // 2",
        lambda a: _loop(a, _halve, 40),
    ),
    "break": (
        "for i in range(40):\n        if A[i] > 80:\n            break\n        A[i] = 0",
        lambda a: np.where(np.arange(40) < (np.argmax(a > 80) if (a > 80).any() else 40), 0, a),
    ),
    "continue": (
        "for i in range(40):\n        if A[i] > 50:\n            continue\n        A[i] = 0",
        lambda a: np.where(a > 50, a, 0),
    ),
    "vectorized": ("for i in T.vectorized(40):\n        A[i] = A[i] + 1", lambda a: a + 1),
    "ramp": ("A[T.ramp(1, 3, 4)] = A[T.ramp(0, 3, 4)] + T.broadcast(1, 4)", lambda a: _ramp(a)),
    "thread binding": (
        "for b in T.thread_binding(4, thread='blockIdx.x'):\n"
        "        for t in T.thread_binding(10, thread='threadIdx.x'):\n"
        "            A[b * 10 + t] = b * 100 + t",
        lambda a: np.arange(40) // 10 * 100 + np.arange(40) % 10,
    ),
    "not run": ("for i in range(0):\n        A[100] = 1", lambda a: a),
    "negative extent": ("for i in range(5, 2):\n        A[100] = 1", lambda a: a),
    "short circuit": (
        "for i in range(50):\n        if i < 40 and A[i] > 50:\n            A[i] = 0", lambda a: np.where(a > 50, 0, a),
    ),
    "or": (
        "for i in range(50):\n        if not (i >= 40 or A[i] <= 50):\n            A[i] = 0",
        lambda a: np.where(a > 50, 0, a),
    ),
    "lazy choice": (
        "for i in range(40):\n        A[i] = T.if_then_else(i < 39, A[i + 1], 0)", lambda a: np.append(a[1:], 0),
    ),
    "choice in a choice that none takes": (
        "for i in range(40):\n"
        "        A[i] = T.if_then_else(i > 19, 1, T.if_then_else(i < 0, 2, T.if_then_else(i > 4, 3, 4)))",
        lambda a: np.array([4] * 5 + [3] * 15 + [1] * 20, a.dtype),
    ),
    "select never faults": (
        "for i in range(40):\n        A[i] = T.Select(i < 39, A[i + 1], 0)", lambda a: np.append(a[1:], 0),
    ),
}  # fmt: skip


def _loop(a: np.ndarray, step: Any, count: int) -> np.ndarray:
    made = a.copy()
    for i in range(count):
        step(made, i)
    return made


def _halve(a: np.ndarray, i: int) -> None:
    while a[i] > 10:
        a[i] //= 2


def _columns(a: np.ndarray, rule: Any) -> np.ndarray:
    return rule(a.reshape(8, 5)).reshape(-1)  # type: ignore[no-any-return]


def _ramp(a: np.ndarray) -> np.ndarray:
    made = a.copy()
    made[1:11:3] = a[0:10:3] + 1
    return made


@pytest.mark.parametrize("name", LOOPS)
def test_every_kind_of_loop_matches_the_serial_one(name: str, way: str) -> None:
    """Loops that do and loops that do not depend on their order give what the serial loop gives."""
    body, wanted = LOOPS[name]
    func = parse(f'def main(A: T.Buffer((40,), "int32")):\n    {body}\n')
    a = RANDOM.integers(0, 100, 40).astype("int32")
    made = a.copy()
    run_prim_func(func, [made])
    assert np.array_equal(made, wanted(a))


@pytest.mark.parametrize("seed", range(80))
def test_side_by_side_is_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated functions give the same bits both ways."""
    func = prim_func(seed)
    results = []
    for threshold in (2, 1 << 60):
        monkeypatch.setattr(loops, "MIN_VECTORIZED", threshold)
        made = arguments(func, seed)
        run_prim_func(func, made)
        results.append(made)
    for one, two in zip(*results, strict=True):
        if isinstance(one, np.ndarray):
            assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(two).tobytes()


def arguments(func: PrimFunc, seed: int) -> list[Any]:
    """Random arrays and scalars that fit the parameters; strided where the buffer is."""
    random = np.random.default_rng(seed)
    sizes: dict[tir.Var, int] = {}
    made: list[Any] = []
    for param, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is None:
            made.append(_scalar(param.dtype, random))
            continue
        for part in buffer.shape:
            if isinstance(part, tir.Var):
                sizes.setdefault(part, int(random.integers(0, 9)))
        shape = [_known(part, sizes) for part in buffer.shape]
        if buffer.dtype.lanes > 1:
            shape.append(buffer.dtype.lanes)
        array = _array(buffer.dtype, shape, random)
        made.append(_strided(array, [_known(x, sizes) for x in buffer.strides]) if buffer.strides else array)
    return made


def _known(part: tir.Expr, sizes: dict[tir.Var, int]) -> int:
    value = evaluate(part, sizes)
    assert value is not None
    return value


def _scalar(dtype: DType, random: np.random.Generator) -> Any:
    if dtype.is_bool:
        return bool(random.integers(0, 2))
    return int(random.integers(0, 4)) if dtype.is_int else float(np.float16(random.random()))


def _array(dtype: DType, shape: list[int], random: np.random.Generator) -> np.ndarray:
    kind = stored(dtype)
    if dtype.kind == "bfloat":
        return (random.standard_normal(shape).astype("float32").view("uint32") >> 16).astype("uint16")
    if dtype.is_float and dtype.bits > 8:
        return (random.standard_normal(shape) * 4).astype(kind)
    if dtype.is_bool:
        return random.integers(0, 2, shape).astype(kind)
    bits = dtype.bits - (dtype.kind == "int") if dtype.bits < 8 else dtype.bits - 1
    return random.integers(0, 1 << bits, shape, dtype=np.uint64).astype(kind)


def _strided(array: np.ndarray, strides: list[int]) -> np.ndarray:
    if 0 in array.shape:
        return array
    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    memory = np.zeros(span, array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [s * array.itemsize for s in strides])
    view[...] = array
    return view


# ---------------------------------------------------------------- memory


def test_strided_argument_stays_where_it_is() -> None:
    text = """
def main(a: T.handle, b: T.handle):
    s, t = T.int32(), T.int32()
    A = T.match_buffer(a, (3, 4), "float32", strides=(s, t))
    B = T.match_buffer(b, (3, 4), "float32")
    for i, j in T.grid(3, 4):
        B[i, j] = A[i, j]
        A[i, j] = A[i, j] + T.Cast("float32", s)
"""
    memory = floats(6, 8)
    before = memory.copy()
    b = np.zeros((3, 4), "float32")
    run_prim_func(parse(text), [memory[::2, 1:8:2], b])
    assert np.array_equal(b, before[::2, 1:8:2])
    assert np.array_equal(memory[::2, 1:8:2], before[::2, 1:8:2] + 16)
    assert np.array_equal(memory[1::2], before[1::2])


def test_strided_argument_of_a_compact_buffer_is_written_back() -> None:
    text = """
def main(A: T.Buffer((3, 4), "float32")):
    for i, j in T.grid(3, 4):
        A[i, j] = A[i, j] * T.float32(2)
"""
    memory = floats(4, 3)
    before = memory.copy()
    run_prim_func(parse(text), [memory.T])
    assert np.array_equal(memory, before * 2)


def test_matched_buffers_are_views() -> None:
    text = """
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(2, 2):
        with T.block("tile"):
            vi, vj = T.axis.remap("SS", [i, j])
            S = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), "float32", offset_factor=1)
            D = T.match_buffer(B[vj * 4:vj * 4 + 4, vi * 4:vi * 4 + 4], (4, 4), "float32", offset_factor=1)
            for k, l in T.grid(4, 4):
                with T.block("one"):
                    vk, vl = T.axis.remap("SS", [k, l])
                    D[vl, vk] = S[vk, vl]
"""
    a, b = floats(8, 8), np.zeros((8, 8), "float32")
    run_prim_func(parse(text), [a, b])
    assert np.array_equal(b, a.T)


def test_memory_of_a_block_is_its_own(way: str) -> None:
    """What a block allocates belongs to each of its instances."""
    text = """
def main(A: T.Buffer((16, 4), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("row"):
            vi = T.axis.spatial(16, i)
            C = T.alloc_buffer((4,), "float32")
            for j in range(4):
                with T.block("square"):
                    vj = T.axis.spatial(4, j)
                    C[vj] = A[vi, vj] * A[vi, vj]
            for j in range(4):
                with T.block("sum"):
                    vj = T.axis.reduce(4, j)
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + C[vj]
"""
    a, b = floats(16, 4), np.zeros(16, "float32")
    run_prim_func(parse(text), [a, b])
    assert np.allclose(b, (a * a).sum(1), rtol=1e-6)


def test_shared_memory_and_barriers_are_run() -> None:
    text = """
def main(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4, 32), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.x"):
        S = T.alloc_buffer_stmt((32,), "float32", scope="shared")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            S[t] = A[b, t]
            T.evaluate(T.tvm_storage_sync("shared"))
            B[b, t] = S[31 - t]
"""
    a, b = floats(4, 32), np.zeros((4, 32), "float32")
    run_prim_func(parse(text), [a, b])
    assert np.array_equal(b, a[:, ::-1])


def test_predicates_and_init_are_followed(way: str) -> None:
    text = """
def main(A: T.Buffer((10, 7), "int32"), B: T.Buffer((10,), "int32")):
    for i, j, k in T.grid(3, 4, 7):
        with T.block("b"):
            vi = T.axis.spatial(10, i * 4 + j)
            vk = T.axis.reduce(7, k)
            T.where(i * 4 + j < 10)
            with T.init():
                B[vi] = 100
            B[vi] = B[vi] + A[vi, vk]
"""
    a = RANDOM.integers(0, 9, (10, 7)).astype("int32")
    b = np.zeros(10, "int32")
    run_prim_func(parse(text), [a, b])
    assert np.array_equal(b, 100 + a.sum(1))


def test_bfloat16_accumulates_in_bfloat16() -> None:
    text = """
def main(A: T.Buffer((300,), "bfloat16"), B: T.Buffer((1,), "bfloat16")):
    B[0] = T.bfloat16(0)
    for i in range(300):
        B[0] = B[0] + A[i]
"""
    ones = np.full(300, 0x3F80, "uint16")
    total = np.zeros(1, "uint16")
    run_prim_func(parse(text), [ones, total])
    assert total[0] == 0x4380  # 256: beyond it one more is rounded away


def test_ml_dtypes_arrays_are_accepted() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    text = 'def main(A: T.Buffer((4,), "bfloat16")):\n    for i in range(4):\n        A[i] = A[i] * T.bfloat16(2)\n'
    array = np.array([1, 2, 3, 0.5], ml_dtypes.bfloat16)
    run_prim_func(parse(text), [array])
    assert array.astype("float32").tolist() == [2, 4, 6, 1]


# ---------------------------------------------------------------- calls out

CALLS = """
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.call_extern("float32", "powf", A[i], T.float32(2))
    T.evaluate(T.call_packed("env.double", B.data, 4))
"""


def test_externs_and_packed_functions_are_called() -> None:
    def double(pointer: np.ndarray, count: int) -> None:
        pointer[:count] *= 2

    a, b = np.abs(floats(4)), np.zeros(4, "float32")
    run_prim_func(parse(CALLS), [a, b], env={"env.double": double})
    assert np.allclose(b, a * a * 2, rtol=1e-6)
    assert "env.double" in fault(CALLS, a, b)


def test_functions_call_functions() -> None:
    module = mlcc.parse("""
@I.ir_module
class Module:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), s: T.float32):
        for i in range(4):
            A[i] = A[i] * s

    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        Module.twice(A.data, T.float32(2))
        Module.twice(A.data, T.float32(3))
""")
    a = floats(4)
    made = a.copy()
    run_prim_func(module["main"], [made], module)  # type: ignore[arg-type]
    assert np.array_equal(made, a * 2 * 3)


# ---------------------------------------------------------------- what goes wrong

HEAD = 'def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32")):\n    '
FAULTS = {
    "store outside": (
        "E0870", "for i in range(9):\n        A[i] = T.float32(0)",
        "index 8 is outside dimension 0 of `A`, which has 8",
    ),
    "load outside": ("E0870", "for i in range(8):\n        A[i] = A[i + 1]", "index 8"),
    "negative": ("E0870", "A[I[0] - 1] = T.float32(0)", "index -1"),
    "gathered outside": ("E0870", "for i in range(8):\n        A[i] = A[I[i] + i + 1]", "index 8"),
    "never written": (
        "E0871", "B = T.alloc_buffer_stmt((8,), \"float32\")\n    for i in range(8):\n        A[i] = B[i]",
        "`B` is read where",
    ),
    "written in part": (
        "E0871", "B = T.alloc_buffer_stmt((8,), \"float32\")\n    for i in range(7):\n        B[i] = A[i]\n"
        "    for i in range(8):\n        A[i] = B[i]", "`B` is read where it was never written",
    ),
    "assertion": ("E0813", "assert A[0] > T.float32(100), \"too small\"", "too small"),
    "assertion in a loop": ("E0813", "for i in range(8):\n        assert A[i] < T.float32(-100), \"at all\"", "at all"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported_with_their_place(name: str, way: str) -> None:
    code, body, said = FAULTS[name]
    message = fault(HEAD + body + "\n", floats(8), np.zeros(8, "int32"))
    assert code in message and said in message and "test.mlc:" in message


def test_a_fault_leaves_what_was_done_before() -> None:
    """Iterations before the first fault have run, those after it have not."""
    func = parse(HEAD + "for i in range(8):\n        A[i] = A[I[i]]\n")
    a, index = np.arange(8, dtype="float32"), np.array([1, 2, 3, 9, 0, 0, 0, 0], "int32")
    with pytest.raises(CallError):
        run_prim_func(func, [a, index])
    assert a.tolist() == [1, 2, 3, 3, 4, 5, 6, 7]


def test_arguments_that_do_not_fit() -> None:
    text = """
def main(a: T.handle, b: T.handle, s: T.int8):
    n = T.int32()
    A = T.match_buffer(a, (4, n), "float32")
    B = T.match_buffer(b, (n,), "float32")
    B[0] = A[0, 0] + T.Cast("float32", s)
"""
    a, b = floats(4, 3), floats(3)
    run_prim_func(parse(text), [a, b, 3])
    assert b[0] == a[0, 0] + 3
    assert "E0802" in fault(text, a, b)
    assert "E0804" in fault(text, a.astype("float64"), b, 3)
    assert "E0805" in fault(text, a[0], b, 3)
    assert "E0805" in fault(text, floats(5, 3), b, 3)
    assert "E0805" in fault(text, a, floats(4), 3)
    assert "E0817" in fault(text, a, b, 200)
    assert "E0817" in fault(text, a, b, 0.5)
    assert "E0803" in fault(text, "a", b, 3)


def test_deep_expressions_are_evaluated() -> None:
    buffer = c.make_buffer("A", (1,))
    total: tir.Expr = c.const(0.0, "float32")
    for _ in range(20_000):
        total = tir.Add(total.dtype, total, c.const(1.0, "float32"))
    store = tir.BufferStore(buffer, total, (c.const(0),))
    a = np.zeros(1, "float32")
    run_prim_func(PrimFunc((tir.Var("a", DType.of("handle")),), (buffer,), EMPTY, (store,)), [a])
    assert a[0] == 20_000


def test_blocks_run_alone_after_running_side_by_side(way: str) -> None:
    """The rows depend on one another, which shows only when they have run side by side for a while."""
    text = """
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i in range(16):
        with T.block("outer"):
            vi = T.axis.spatial(16, i)
            for j in range(16):
                with T.block("inner"):
                    vj = T.axis.spatial(16, j)
                    B[vi, vj] = A[vi, vj]
            for j in range(16):
                with T.block("add"):
                    vj = T.axis.spatial(16, j)
                    B[vi, vj] = B[vi, vj] + B[T.max(vi - 1, 0), vj]
"""
    a, b = floats(16, 16), np.zeros((16, 16), "float32")
    run_prim_func(parse(text), [a, b])
    wanted = a.copy()
    for i in range(16):
        wanted[i] += wanted[max(i - 1, 0)]
    assert np.array_equal(b, wanted)


def test_a_view_outside_of_memory_where_the_predicate_does_not_hold(way: str) -> None:
    func = parse("""
def main(A: T.Buffer((48,), "float32"), C: T.Buffer((48,), "float32")):
    for o_0, o_1 in T.grid(2, 2):
        with T.block("outer"):
            vo = T.axis.spatial(3, o_0 * 2 + o_1)
            T.where(o_0 * 2 + o_1 < 3)
            T.reads(A[vo * 16:vo * 16 + 16])
            T.writes(C[vo * 16:vo * 16 + 16])
            X = T.match_buffer(A[vo * 16:vo * 16 + 16], (16,), offset_factor=1)
            Y = T.match_buffer(C[vo * 16:vo * 16 + 16], (16,), offset_factor=1)
            for i in range(16):
                with T.block("inner"):
                    vi = T.axis.spatial(16, i)
                    Y[vi] = X[vi] + T.float32(1)
""")
    data, out = floats(48), np.zeros(48, "float32")
    run_prim_func(func, [data, out])
    np.testing.assert_array_equal(out, data + 1)
