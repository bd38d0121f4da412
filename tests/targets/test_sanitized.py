"""Sanitized code: faults are found as the interpreter finds them, and what is sound computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, MlccError
from mlcc.interp import run_function, run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.verify import check, verify
from tests.generate.faults import planted
from tests.generate.functions import prim_func
from tests.targets.arguments import arguments, assert_alike, duplicate


def build(text: str, level: int = 2, func: str = "main") -> Any:
    module = mlcc.parse(text, name="k.mlc")
    return mlcc.load(mlcc.build(module, "llvm{cpu=native}", level, sanitize=True))[func]


def fault(func: Any, *args: Any) -> tuple[str, str]:
    """The code and the message, without the function's name."""
    with pytest.raises(CallError) as raised:
        func(*args)
    (found,) = raised.value.diagnostics
    return found.code, found.message.partition(": ")[2]


def outcome(run: Any) -> str:
    try:
        run()
    except MlccError as exc:
        return exc.diagnostics[0].code
    return "ok"


@pytest.mark.parametrize("batch", range(4))
def test_sanitized_code_finds_what_the_interpreter_finds(batch: int, all_cases: bool) -> None:
    """Of faults that no verifier sees, the interpreter and sanitized code find the same; clean functions have none."""
    for seed in range(batch * 1000, batch * 1000 + (60 if all_cases else 6)):
        func = prim_func(seed)
        for made in (func, planted(func, 10 * seed), planted(func, 10 * seed + 1)):
            if any(d.severity.value == "error" for d in verify(made)):
                continue
            args, _ = arguments(func, seed)
            mine, theirs = duplicate(args), duplicate(args)
            wanted = outcome(lambda f=made, a=theirs: run_prim_func(f, a))
            artifact = mlcc.build(IRModule({"main": made}), "llvm{cpu=native}", 0, pipeline="", sanitize=True)
            native = mlcc.load(artifact)["main"]
            got = outcome(lambda f=native, a=mine: f(*a))
            if got == "E0805":  # strides of arrays with one element along an axis, which a call refuses
                continue
            assert got == wanted, seed
            if wanted == "ok":
                assert_alike(made, mine, theirs, str(seed))
            assert made is not func or wanted == "ok", seed


GATHER = """
@T.prim_func
def main(a: T.handle, I: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (n, 3), "float32")
    for i in range(4):
        B[i] = A[I[i], 2]
"""


@pytest.mark.parametrize("n", [1, 2, 7, 97])
def test_an_index_from_the_data(n: int) -> None:
    func = build(GATHER)
    rows = np.arange(3 * n, dtype="float32").reshape(n, 3)
    assert func(rows, np.array([0, n - 1, 0, 0], "int32")).tolist() == [2, 3 * n - 1, 2, 2]
    for wrong in (n, -1, 2**31 - 1, -(2**31)):
        found = fault(func, rows, np.array([0, 0, wrong, 0], "int32"))
        assert found == ("E0870", f"k.mlc:7:16: index {wrong} is outside dimension 0 of `A`, which has {n}")


def test_indices_into_empty_buffers_are_found() -> None:
    found = fault(build(GATHER), np.zeros((0, 3), "float32"), np.zeros(4, "int32"))
    assert found == ("E0870", "k.mlc:7:16: index 0 is outside dimension 0 of `A`, which has 0")


def test_within_the_memory_but_outside_a_dimension() -> None:
    """A flat address inside of the buffer does not make an index right."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), k: T.int32, B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[0, i + k]
"""
    func, a = build(text), np.zeros((4, 4), "float32")
    func(a, 0)
    assert fault(func, a, 1) == ("E0870", "k.mlc:5:16: index 4 is outside dimension 1 of `A`, which has 4")


def test_a_write_outside() -> None:
    text = """
@T.prim_func
def main(k: T.int32, B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i + k] = T.float32(1)
"""
    func, out = build(text), np.zeros(12, "float32")
    assert fault(func, -5, out[4:8])[1] == "k.mlc:5:9: index -5 is outside dimension 0 of `B`, which has 4"
    assert fault(func, 1, out[4:8])[0] == "E0870"
    assert out.tolist() == [0] * 5 + [1] * 3 + [0] * 4


def test_guarded_accesses_are_fine() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), k: T.int32, B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = T.if_then_else(i + k < 4, A[T.max(i + k, 0)], T.float32(0)) + T.Select(i < 4, A[i], T.float32(1))
"""
    made = build(text)(np.arange(4, dtype="float32"), 2)
    assert made.tolist() == [2, 4, 2, 3, 1, 1, 1, 1]


def test_a_read_of_what_nothing_wrote() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), k: T.int32, B: T.Buffer((8,), "float32")):
    L = T.alloc_buffer((8,), "float32")
    for i in range(k):
        L[i] = A[i]
    for i in range(8):
        B[i] = L[7 - i]
"""
    func, a = build(text), np.arange(8, dtype="float32")
    assert func(a, 8).tolist() == a[::-1].tolist()
    assert fault(func, a, 7) == ("E0871", "k.mlc:8:16: `L` is read where it was never written, at element 7")


def test_memory_in_a_loop_is_new_in_each_iteration() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        L = T.decl_buffer((1,), "float32")
        if i == 0:
            L[0] = A[0]
        B[i] = L[0]
"""
    assert fault(build(text), np.zeros(8, "float32"))[1] == (
        "k.mlc:8:16: `L` is read where it was never written, at element 0"
    )


PARALLEL = """
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in T.parallel({n}):
        {body}
"""


@pytest.mark.parametrize("n", [2, 7, 64])
@pytest.mark.parametrize(
    ("body", "where", "how"),
    [
        ("B[0] = A[i]", "5:9: element 0", "written in two iterations"),
        ("B[i] = A[i] + B[T.max(i - 1, 0)]", "5:23: element 0", "read in one iteration and written in another"),
        ("B[i] = A[i] + B[T.min(i + 1, %d)]", "5:9: element 1", "read in one iteration and written in another"),
        ("B[i // 2] = A[i]", "5:9: element 0", "written in two iterations"),
    ],
)
def test_races_are_found(n: int, body: str, where: str, how: str) -> None:
    text = PARALLEL.format(n=n, body=body % (n - 1) if "%" in body else body)
    found = fault(build(text), np.arange(n, dtype="float32"), np.zeros(n, "float32"))
    assert found == ("E0873", f"k.mlc:{where} of `B` is {how} of the parallel loop `i`")


@pytest.mark.parametrize("n", [0, 1, 7, 64])
@pytest.mark.parametrize("body", ["B[i] = A[i] + B[i]", "B[i] = A[0]"])
def test_loops_without_races_have_no_findings(n: int, body: str) -> None:
    if n == 0 and "A[0]" in body:
        return
    a = np.arange(n, dtype="float32")
    b = np.ones(n, "float32")
    build(PARALLEL.format(n=n, body=body))(a, b)
    assert b.tolist() == ((a + 1).tolist() if "+" in body else [0] * n)


def test_the_same_value_from_all_iterations_is_no_race() -> None:
    b = np.zeros(8, "float32")
    build(PARALLEL.format(n=8, body="B[0] = T.float32(3)"))(np.zeros(8, "float32"), b)
    assert b[0] == 3


def test_loops_one_after_the_other_do_not_meet() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for k in range(3):
        for i in T.parallel(8):
            B[i] = A[i] + T.Cast("float32", k)
        for i in T.parallel(8):
            A[i] = B[7 - i]
"""
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    build(text)(a, b)
    assert a.tolist() == (np.arange(8)[::-1] + 3).tolist()


@pytest.mark.parametrize(
    ("index", "loop"), [("i * 4 + j", None), ("i", "j"), ("j", "i"), ("T.min(i * 4 + j, 14)", "i")]
)
def test_races_of_nested_parallel_loops_are_found(index: str, loop: str | None) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.parallel(4):
        for j in T.parallel(4):
            B[{index}] = A[i * 4 + j]
"""
    func, a = build(text), np.arange(16, dtype="float32")
    if loop is None:
        assert func(a).tolist() == a.tolist()
        return
    code, message = fault(func, a)
    assert code == "E0873"
    if "min" not in index:
        assert message.endswith(f"of the parallel loop `{loop}`")


def test_temporaries_of_an_iteration_do_not_meet() -> None:
    """Each iteration of a loop that a stage was computed at has memory of its own, wherever the text allocates it."""
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((18,), "float32")
    for i in T.parallel(4):
        for j in range(6):
            S[i * 4 + j] = T.float32(0)
            S[i * 4 + j] = S[i * 4 + j] + A[T.min(i * 4 + j, 15)]
        for j in range(4):
            B[i * 4 + j] = S[i * 4 + j] + S[i * 4 + j + 2]
"""
    a = np.arange(16, dtype="float32")
    wide = np.concatenate([a, [15, 15]])
    assert build(text)(a).tolist() == (a + wide[2:]).tolist()


GRAPH = """
@T.prim_func
def total(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i, k in T.grid(n, 4):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            {init}C[vi] = C[vi] + A[vi, vk]
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    n = T.int64()
    with R.dataflow():
        y = R.nn.relu(x)
        z = R.call_tir(total, (y,), R.Tensor((n,), "float32"))
        R.output(z)
    return z
"""


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [1, 7])
def test_functions_that_a_graph_calls(level: int, n: int) -> None:
    """What a call writes to is new memory, at every level."""
    x = np.ones((n, 4), "float32")
    code, message = fault(build(GRAPH.format(init=""), level), x)
    assert code == "E0871" and message.startswith("k.mlc:10:21: `C")
    module = mlcc.parse(GRAPH.format(init=""))
    assert outcome(lambda: run_function(module, "main", [x])) == "E0871"
    init = "with T.init():\n                C[vi] = T.float32(0)\n            "
    assert build(GRAPH.format(init=init), level)(x).tolist() == [4] * n


def test_a_prim_func_called_directly_may_add_to_what_it_is_given() -> None:
    out = np.array([1, 2], "float32")
    build(GRAPH.format(init=""), 0, "total")(np.ones((2, 4), "float32"), out)
    assert out.tolist() == [5, 6]


@pytest.mark.parametrize("level", [0, 2, 3])
def test_sound_operators_have_no_faults(level: int) -> None:
    """A network of operators has no faults at any level, symbolic shapes and all, and the same numbers."""
    text = """
@R.function
def main(x: R.Tensor(("n", 3, 9, 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
    with R.dataflow():
        a = R.nn.conv2d(x, w, padding=(1, 1), strides=(2, 2))
        b = R.nn.max_pool2d(R.nn.relu(a), pool_size=(2, 2), strides=(2, 2), padding=(1, 1))
        c = R.nn.softmax(R.mean(b, axis=[2, 3]), axis=-1)
        d = R.concat((c, R.reshape(R.sum(b, axis=[2, 3]), R.shape_of(c))), axis=1)
        R.output(d)
    return d
""".replace("R.reshape(R.sum(b, axis=[2, 3]), R.shape_of(c))", "R.sum(b, axis=[2, 3])")
    rng = np.random.default_rng(1)
    for n in (1, 3):
        args = [rng.normal(size=s).astype("float32") for s in ((n, 3, 9, 9), (4, 3, 3, 3))]
        module = mlcc.parse(text)
        wanted = mlcc.load(mlcc.build(module, "llvm{cpu=native}", 0))["main"](*args)
        np.testing.assert_allclose(build(text, level)(*args), wanted, rtol=1e-4, atol=1e-5)


def test_lanes_are_checked_one_by_one() -> None:
    """Of code that is lowered already, lane by lane; lanes that are off touch nothing."""
    text = """
@T.prim_func
def main(A: T.Buffer((10,), "float32"), k: T.int32, B: T.Buffer((10,), "float32")):
    for i in range(3):
        for j in T.vectorized(4):
            if i * 4 + j < k:
                B[i * 4 + j] = A[i * 4 + j]
"""
    module = mlcc.run_passes(mlcc.parse(text), "lower-loops")
    assert any(isinstance(n, tir.Ramp) for n in _nodes(module["main"]))
    func = mlcc.load(mlcc.build(module, "llvm{cpu=native}", pipeline="", sanitize=True))["main"]
    a, b = np.arange(10, dtype="float32"), np.zeros(10, "float32")
    func(a, 10, b)
    assert b.tolist() == a.tolist()
    code, message = fault(func, a, 12, b)
    assert code == "E0870" and "index 10 is outside dimension 0" in message


def _nodes(func: Any) -> list[Any]:
    from mlcc.ir.node import walk

    return [n for stmt in func.body for n in walk(stmt)]


@pytest.mark.parametrize("seed", range(8))
def test_the_text_of_sanitized_code(seed: int) -> None:
    """It reads back, verifies, and computes the same in the interpreter."""
    func = prim_func(seed)
    printed = mlcc.script(mlcc.run_passes(IRModule({"main": func}), "sanitize"))
    module = mlcc.parse(printed)
    check(module)
    assert mlcc.script(module) == printed and "T.sanitize_" in printed
    args, _ = arguments(func, seed)
    mine, theirs = duplicate(args), duplicate(args)
    run_prim_func(module["main"], mine)
    run_prim_func(func, theirs)
    assert_alike(func, mine, theirs, str(seed))


@pytest.mark.parametrize(
    "call",
    [
        "sanitize_index(i, 8, i)",
        "sanitize_index(T.float32(1), 8, 't')",
        "sanitize_read(i, A.data, A.data, 4, 4, A.data, 't')",
        "sanitize_write(T.int64(0), A.data, A.data, 4, i, A.data)",
        "sanitize_view(T.int64(0), i, A.data, 4, T.int64(4), 't')",
    ],
)
def test_checks_of_other_arguments(call: str) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    for i in range(8):
        A[T.Cast("int64", T.{call})] = T.float32(1)
"""
    for target, what in (("llvm", "of these arguments"), ("cuda", "has no `T.sanitize_")):
        with pytest.raises(mlcc.CompileError, match=what):
            mlcc.build(mlcc.parse(text), target)


def test_only_cpus_are_sanitized() -> None:
    with pytest.raises(mlcc.CompileError, match="E0736"):
        mlcc.build(mlcc.parse(GATHER), "cuda{arch=sm_80}", sanitize=True)


@pytest.mark.parametrize("n", [1, 97, 5000])
def test_shadow_memory_outlives_the_statements_that_clear_it(n: int) -> None:
    """It shares no bytes with temporaries, however large."""
    text = f"""
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in T.parallel({n}):
        B[i] = A[i]
    L = T.decl_buffer(({n},), "float32")
    for i in range({n}):
        L[i] = B[i] + T.float32(1)
    M = T.decl_buffer(({n},), "float32")
    for i in T.parallel({n}):
        M[i] = L[i] * T.float32(2)
    for i in T.parallel({n}):
        B[i] = M[i] + L[i]
"""
    a = np.arange(n, dtype="float32")
    assert build(text)(a).tolist() == (3 * (a + 1)).tolist()


def test_what_has_no_native_form_is_refused_as_ever() -> None:
    text = """
@T.prim_func
def main(B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = T.call_extern("float32", "no_such_function", i)
"""
    with pytest.raises(mlcc.CompileError, match="no_such_function"):
        mlcc.build(mlcc.parse(text), sanitize=True)


@pytest.mark.parametrize(
    "view",
    [
        '(16,), "float32"',
        '(8,), "float32", elem_offset=4',
        '(2, 8), "float32"',
        '(8,), "float64"',
        '(5, 2), "float32", strides=(2, 1)',
    ],
)
@pytest.mark.parametrize("memory", ["B", "D"])
def test_views_that_reach_beyond_their_memory(view: str, memory: str) -> None:
    """Whether a parameter or an allocation has fewer elements than a buffer that is declared on its data."""
    rank, dtype = view.partition(")")[0].count(" ") + 1, "float64" if "64" in view else "float32"
    dims = [int(n) for n in view.partition(")")[0].strip("(").split(",") if n]
    names = ["i", "j"][:rank]
    text = f"""
@T.prim_func
def main(B: T.Buffer((8,), "float32")):
    D = T.alloc_buffer((8,), "float32")
    for i in range(8):
        D[i] = T.float32(1)
        B[i] = D[i]
    C = T.decl_buffer({view}, data={memory}.data)
    for {", ".join(names)} in T.grid({", ".join(map(str, dims))}):
        C[{", ".join(names)}] = T.{dtype}(0)
"""
    code, message = fault(build(text), np.zeros(8, "float32"))
    assert code == "E0870"
    assert f"of `C` is outside the memory of `{memory}`" in message
