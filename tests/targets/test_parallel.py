"""Parallel loops as native code: every iteration once, the same results on any number of threads, errors, memory."""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Iterator

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import ForKind
from mlcc.runtime import elf, externs
from mlcc.runtime.image import link_image
from mlcc.runtime.threads import RUN, RUN_WORK
from mlcc.targets.llvm.codegen import parallel
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.codegen.pool import add_pool
from mlcc.targets.llvm.object.compile import Machine, compile_text
from tests.generate.functions import Options, prim_func
from tests.targets.arguments import arguments, assert_alike, duplicate
from tests.targets.build import func, loop, var
from tests.targets.harness import Native
from tests.targets.pools import pool_address, share_any_work, use_threads

THREADS = (1, 2, 3)


@pytest.fixture(autouse=True)
def shared_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    share_any_work(monkeypatch)
    yield
    use_threads(0)


@pytest.fixture
def one_pool(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Kernels of the harness use the pool of the process, and bring none."""
    address = pool_address()
    params = ["ptr", "ptr", "i64", "i64", "i64"]
    monkeypatch.setattr(parallel, "add_pool", lambda module: module.declare(RUN_WORK, "i32", params))
    return {RUN_WORK: address}


@pytest.mark.parametrize("batch", range(2))
def test_generated_functions_match_the_interpreter(batch: int, one_pool: dict[str, int], all_cases: bool) -> None:
    """What the interpreter computes, with 1, 2 and 3 threads bit for bit alike."""
    shared = 0
    for seed in range(20000 + batch * 500, 20000 + batch * 500 + (500 if all_cases else 80)):
        made = prim_func(seed, Options(asserts=False))
        if not any(isinstance(n, tir.For) and n.kind is ForKind.PARALLEL for n in walk(made)):
            continue
        native = Native(made, options=EmitOptions(contract=False), machine=Machine(), level=1, externs=one_pool)
        shared += RUN_WORK in native.text
        args, symbols = arguments(made, seed)
        expected = duplicate(args)
        run_prim_func(made, expected)
        found = []
        for count in THREADS:
            use_threads(count)
            found.append(duplicate(args))
            assert native(*found[-1], symbols=symbols) == 0
        assert_alike(made, found[0], expected, f"native code of {seed}")
        for other in found[1:]:
            assert_alike(made, other, found[0], f"{seed} on several threads", exact=True)
    assert shared > 4


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_every_iteration_runs_once(dtype: str, one_pool: dict[str, int]) -> None:
    """Whatever the start, the step, the direction and the number of iterations."""
    hits = c.make_buffer("H", (256,), "int32")
    start, extent, step, i = (var(name, dtype) for name in ("start", "extent", "step", "i"))
    once = c.store(hits, c.add(c.load(hits, c.cast("int32", i)), 1), c.cast("int32", i))
    native = Native(
        func([hits, start, extent, step], loop(i, extent, once, ForKind.PARALLEL, start, step)), externs=one_pool
    )
    assert RUN_WORK in native.text
    cases = [(0, 0, 1), (0, 1, 1), (5, 2, 1), (0, 250, 1), (3, 200, 7), (1, 100, 100), (0, 9, 0)]
    if dtype != "uint8":
        cases += [(255, -256, -1), (100, -99, -2), (7, -5, 1), (0, 5, -1)]
    for count in THREADS:
        use_threads(count)
        for low, size, by in cases:
            found = np.zeros(256, "int32")
            assert native(found, low, size, by) == 0
            places = range(low, low + size, by) if by else ()
            assert found.tolist() == [int(n in places) for n in range(256)], (low, size, by)


_IDS = """
@T.prim_func
def f(A: T.Buffer((16,), "int64")):
    for i in T.parallel(16):
        T.evaluate(T.call_extern("int32", "usleep", T.uint32(2000)))
        A[i] = T.call_extern("int64", "pthread_self")
"""


def test_threads_take_part() -> None:
    allowed = ("usleep", "pthread_self")
    exe = mlcc.load(mlcc.build(mlcc.parse(_IDS), allow_extern=allowed), allow_extern=allowed)
    ids = np.zeros(16, "int64")
    for count in (1, 3, 2):
        use_threads(count)
        exe["f"](ids)
        assert (len(set(ids)) > 1) == (count > 1) and len(set(ids)) <= count


def test_cores_of_the_target_bound_the_threads() -> None:
    allowed = ("usleep", "pthread_self")
    ids = np.zeros(16, "int64")
    use_threads(4)
    for cores in (1, 2):
        made = mlcc.build(mlcc.parse(_IDS), target=f"llvm{{num_cores={cores}}}", allow_extern=allowed)
        mlcc.load(made, allow_extern=allowed)["f"](ids)
        assert len(set(ids)) <= cores
        assert made.manifest["pool"] == int(cores > 1)


_ERRORS = """
@T.prim_func
def f(A: T.Buffer((64,), "int32"), first: T.int32):
    for i in T.parallel(64):
        if i == first:
            T.evaluate(T.call_extern("int32", "usleep", T.uint32(3000)))
            assert i < 0, "the first"
        if i >= 40:
            assert i < 0, "a later one"
        A[i] = i
"""


def test_the_error_of_the_first_iteration_that_fails() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(_ERRORS), allow_extern=("usleep",)), allow_extern=("usleep",))
    found = np.zeros(64, "int32")
    for count in THREADS:
        use_threads(count)
        for first, message in ((20, "the first"), (39, "the first"), (64, "a later one"), (40, "the first")):
            with pytest.raises(mlcc.CallError, match=message):
                exe["f"](found, first)
        found[:] = -1
        with pytest.raises(mlcc.CallError):
            exe["f"](found, 63)
        assert found[:40].tolist() == list(range(40)), "what comes before it is done"


_MEMORY = """
@T.prim_func
def f(a: T.handle, b: T.handle, small: T.int32):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i in T.parallel(n):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            fixed = T.alloc_buffer((9000,), "float32")
            row = T.alloc_buffer((m,), "float32")
            tiny = T.alloc_buffer((4,), "float32")
            some = T.alloc_buffer((vi + 1,), "float32")
            for j in range(m):
                with T.block("fill"):
                    vj = T.axis.spatial(m, j)
                    fixed[vj * 3] = A[vi, vj] + T.float32(1)
                    row[m - 1 - vj] = A[vi, vj] * T.float32(2)
                    tiny[vj % 4] = T.float32(3)
            with T.block("some"):
                some[vi] = T.cast(vi, "float32")
            for j in range(m):
                with T.block("use"):
                    vj = T.axis.spatial(m, j)
                    B[vi, vj] = fixed[vj * 3] + row[m - 1 - vj] + tiny[vj % 4] + some[vi]
"""


def test_iterations_have_memory_of_their_own() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(_MEMORY)))
    a = np.random.default_rng(0).random((41, 300), dtype=np.float32)
    expected = (a + 1) + a * 2 + 3 + np.arange(41, dtype=np.float32)[:, None]
    for count in THREADS:
        use_threads(count)
        b = np.zeros_like(a)
        exe["f"](a, b, 0)
        np.testing.assert_allclose(b, expected, rtol=1e-6)


_CALLEE = """
@I.ir_module
class Module:
    @T.prim_func
    def row(A: T.Buffer((5000,), "float32"), B: T.Buffer((5000,), "float32")):
        T.func_attr({"tir.noalias": True})
        W = T.alloc_buffer((5000,), "float32")
        for j in T.parallel(5000):
            with T.block("W"):
                vj = T.axis.spatial(5000, j)
                W[vj] = A[vj] + T.float32(1)
        for j in T.parallel(5000):
            with T.block("B"):
                vj = T.axis.spatial(5000, j)
                B[vj] = W[4999 - vj]

    @T.prim_func
    def f(A: T.Buffer((24, 5000), "float32"), B: T.Buffer((24, 5000), "float32")):
        for i in T.parallel(24):
            T.evaluate(T.call_extern("int32", "row", A.access_ptr("r", offset=i * 5000),
                                     B.access_ptr("w", offset=i * 5000)))
"""


def test_called_kernels_have_memory_of_their_own_and_run_serially() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(_CALLEE)))
    a = np.random.default_rng(0).random((24, 5000), dtype=np.float32)
    for count in THREADS:
        use_threads(count)
        b = np.zeros_like(a)
        exe["f"](a, b)
        np.testing.assert_array_equal(b, (a + np.float32(1))[:, ::-1])


def test_a_loop_of_unknown_extent_is_looked_at_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the pool from 10 us on by the estimate."""
    from mlcc.passes.lowering import parallel as choice

    monkeypatch.setattr(choice, "LEAST_WORK", 10_000_000)
    text = _IDS.replace('A: T.Buffer((16,), "int64")', "a: T.handle").replace("parallel(16)", "parallel(n)")
    head, loop_text = text.split("    for i", 1)
    matched = f'{head}    n = T.int64()\n    A = T.match_buffer(a, (n,), "int64")\n    for i{loop_text}'
    allowed = ("usleep", "pthread_self")
    exe = mlcc.load(mlcc.build(mlcc.parse(matched), allow_extern=allowed), allow_extern=allowed)
    use_threads(3)
    few, many = np.zeros(50, "int64"), np.zeros(150, "int64")
    exe["f"](few)
    exe["f"](many)
    assert len(set(few)) == 1 and len(set(many)) > 1


_HEAVY = """
@T.prim_func
def f(ids: T.Buffer((64,), "int64"), X: T.Buffer((64,), "float32"), n: T.int32, steps: T.int32):
    for i in T.parallel(n):
        for k in range(steps):
            X[i] = X[i] * T.float32(0.5) + T.float32(1)
        ids[i] = T.call_extern("int64", "pthread_self")
"""


class Takers:
    """Calls a loop of `n` iterations of `steps` multiply-adds, and tells how many threads took part."""

    def __init__(self, text: str = _HEAVY, emit: str = "obj") -> None:
        made = mlcc.build(mlcc.parse(text), allow_extern=("pthread_self",))
        self.function = mlcc.load(made.emit(emit), allow_extern=("pthread_self",))["f"]

    def __call__(self, n: int, steps: int, pause: float) -> int:
        ids, x = np.zeros(64, "int64"), np.zeros(64, "float32")
        time.sleep(pause)
        self.function(ids, x, n, steps)
        return len(set(ids[:n]))


@pytest.mark.parametrize("emit", ["obj", "shared"])
@pytest.mark.parametrize(("n", "steps"), [(10, 1_000_000), (3, 3_000_000), (60, 200_000)])
def test_long_work_wakes_sleeping_threads(monkeypatch: pytest.MonkeyPatch, n: int, steps: int, emit: str) -> None:
    """However few the iterations are, and also by way of a library's own copy of the pool."""
    monkeypatch.undo()
    if emit == "shared" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    takers = Takers(emit=emit)
    use_threads(3)
    assert any(takers(n, steps, 0.03) > 1 for _ in range(30))


def test_short_work_does_not_wake_threads_unless_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many the iterations are: 10 of 3 us, or 60 of 0.5 us."""
    monkeypatch.undo()
    takers = Takers()
    use_threads(3)
    for n, steps in ((10, 10_000), (60, 2_000)):
        alone = 0  # calls in a row; threads that are awake from before take a while to sleep on a busy machine
        for _ in range(300):
            alone = alone + 1 if takers(n, steps, 0.02) == 1 else 0
            if alone == 5:
                break
        assert alone == 5
        assert any(takers(n, steps, 0) > 1 for _ in range(200_000))  # on a busy machine another core is rare


_NATIVE = """
@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    for i in T.parallel(64, annotations={"pragma_import_llvm": "define float @twice(float %x) {\\n  %y = fadd float %x, %x\\n  ret float %y\\n}"}):
        A[i] = T.call_extern("float32", "twice", A[i])
"""  # noqa: E501


_TRIANGLE = """
@T.prim_func
def f(A: T.Buffer((40, 40), "float32")):
    for i in T.parallel(40):
        for j in range(i + 1):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = A[vi, vj] * T.float32(2)
"""


def test_iterations_of_unlike_lengths_match_numpy() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(_TRIANGLE)))
    for count in THREADS:
        use_threads(count)
        a = np.ones((40, 40), np.float32)
        exe["f"](a)
        np.testing.assert_array_equal(a, np.tril(np.ones_like(a)) + 1)


def test_native_kernels_in_parallel_loops() -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(_NATIVE), allow_native=True))
    for count in THREADS:
        use_threads(count)
        a = np.arange(64, dtype=np.float32)
        exe["f"](a)
        assert a.tolist() == [2.0 * n for n in range(64)]


def test_only_objects_with_parallel_loops_have_a_pool() -> None:
    plain = _MEMORY.replace("T.parallel", "T.serial")
    for text, has in ((_MEMORY, True), (plain, False)):
        data = mlcc.build(mlcc.parse(text), "llvm{cpu=x86-64}").emit("obj")  # versions keep which one was chosen
        obj = elf.read_object(data)
        written = [s.name for s in obj.sections if s.is_loaded and s.flags & elf.WRITE and s.size]
        names = {s.name for s in obj.symbols}
        assert bool(written) == has and (RUN in names) == has
        assert ("mlcc_set_parallel_for" in names) == has and ("pthread_create" in names) == has


@pytest.mark.parametrize("cpu", ["generic", "neoverse-v1"])
def test_pool_compiles_for_aarch64(cpu: str) -> None:
    """It compiles, needs what is allowed and no helper functions for atomics."""
    target = f"llvm{{triple=aarch64-linux-gnu cpu={cpu}}}"
    obj = elf.read_object(mlcc.build(mlcc.parse(_MEMORY), target=target).emit("obj"))
    outside = {s.name for s in obj.symbols if s.section == elf.UNDEFINED and s.type != elf.FILE and s.name}
    pool = {"pthread_create", "sched_getcpu", "syscall", "getenv", "clock_gettime"}
    assert pool <= outside <= {*pool, "aligned_alloc", "malloc", "free", "memset", "memcpy"}  # fmt: skip


_COUNTING = """
define i32 @count(ptr %hits, i64 %begin, i64 %end) {
entry:
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %head ]
  %at = getelementptr i64, ptr %hits, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %head, label %done
done:
  ret i32 0
}
define void @jobs(ptr %hits, i64 %number) {
entry:
  call void @own_pool_v1_set_num_threads(i32 3)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %code = call i32 @own_pool_v1_run(ptr @count, ptr %hits, i64 64, i64 0)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %number
  br i1 %more, label %head, label %done
done:
  ret void
}
"""


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("advice", ["i32 18", "i32 9999"])
def test_every_index_runs_once_in_forks_too(advice: str) -> None:
    """Every index once per job, in forked children too; also where the kernel refuses to wipe pages for a child."""
    module = ModuleText(Machine().triple)
    add_pool(module)
    text = module.text().replace("@mlcc_pool_v1", "@own_pool_v1")
    assert text.count("i32 18)") == 1
    obj = elf.read_object(compile_text(text.replace("i32 18)", f"{advice})") + _COUNTING, Machine()).obj)
    image = link_image(obj, lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL))
    jobs = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(image.functions["jobs"])

    def wrong(number: int) -> bool:
        hits = np.zeros(64, "int64")
        jobs(hits.ctypes.data, number)
        return bool((hits != number).any())

    assert not wrong(20_000)
    for _ in range(20):
        child = os.fork()
        if child == 0:
            os._exit(int(wrong(50)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not wrong(100)


_PIECES = """
define i32 @note(ptr %sizes, i64 %begin, i64 %end) {
  %size = sub i64 %end, %begin
  %at = getelementptr i64, ptr %sizes, i64 %begin
  store i64 %size, ptr %at
  ret i32 0
}
define void @divide(ptr %sizes, i64 %n, i64 %grain, i32 %threads) {
  call void @own_pool_v1_set_num_threads(i32 %threads)
  %code = call i32 @own_pool_v1_run_work(ptr @note, ptr %sizes, i64 %n, i64 %grain, i64 1000000000)
  ret void
}
"""


def test_pieces_are_as_many_for_each_thread() -> None:
    """At least `grain` indices each but the last; where there are few, no thread has a round more than another."""
    module = ModuleText(Machine().triple)
    add_pool(module)
    text = module.text().replace("@mlcc_pool_v1", "@own_pool_v1")
    obj = elf.read_object(compile_text(text + _PIECES, Machine()).obj)
    image = link_image(obj, lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL))
    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
    divide = ctypes.CFUNCTYPE(None, *types)(image.functions["divide"])

    def pieces(n: int, grain: int, threads: int) -> list[int]:
        sizes = np.zeros(n, "int64")
        divide(sizes.ctypes.data, n, grain, threads)
        return [int(size) for size in sizes if size]

    assert pieces(16, 5, 2) == [8, 8]
    assert pieces(34, 1, 2) == [1] * 34
    assert pieces(13, 1, 2) == [1] * 13
    assert pieces(7, 4, 2) == [4, 3]
    assert pieces(100, 30, 3) == [34, 34, 32]
    assert pieces(80, 9, 3) == [14, 14, 14, 14, 14, 10]
    for n in (2, 3, 17, 64, 257, 5000):
        for grain in (1, 2, 7, 100):
            for threads in (2, 3, 4):
                sizes = pieces(n, grain, threads)
                assert sum(sizes) == n
                if n > grain:
                    assert min(sizes[:-1]) >= grain and len(sizes) <= 32 * threads
                    assert len(sizes) >= 16 * threads or n // grain < 16 * threads


def test_the_state_of_the_pool_has_the_size_it_says() -> None:
    """What a fork wipes is all before the field of the process."""
    text = ModuleText("x86_64-unknown-linux-gnu")
    add_pool(text)
    probe = """
define i64 @process() {
  ret i64 ptrtoint (ptr getelementptr (%mlcc_pool, ptr null, i64 0, i32 23) to i64)
}
define i64 @size() {
  ret i64 ptrtoint (ptr getelementptr (%mlcc_pool, ptr null, i64 1) to i64)
}
"""
    made = compile_text(text.text() + probe, Machine(), 1, frozenset({"asm"})).asm
    process, size = (int(made.split(f"{name}:")[1].split("movl\t$")[1].split(",")[0]) for name in ("process", "size"))
    assert "i64 400, i1 false" in text.text() and process == 400 and size <= 4096


INIT_OF_LOOPS = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (m, n, 64), "float32")
    B = T.match_buffer(b, (m, 64), "float32")
    for p in T.parallel(m):
        for k in range(n):
            with T.block("outer"):
                vp, vk = T.axis.remap("SR", [p, k])
                T.reads(A[vp, vk, 0:64])
                T.writes(B[vp, 0:64])
                with T.init():
                    for i in range(64):
                        with T.block("init"):
                            vi = T.axis.spatial(64, i)
                            B[vp, vi] = T.float32(0)
                for i in range(64):
                    with T.block("update"):
                        vi = T.axis.spatial(64, i)
                        B[vp, vi] = B[vp, vi] + A[vp, vk, vi]
"""


@pytest.mark.parametrize("level", range(4))
def test_an_init_that_holds_loops(level: int) -> None:
    """What runs where there is nothing to reduce has variables of its own: those of the parallel loop stay inside."""
    run = mlcc.load(mlcc.build(mlcc.parse(INIT_OF_LOOPS), "llvm{num-cores=2}", opt_level=level))["main"]
    for n in (0, 3):
        a, b = np.random.default_rng(1).random((5, n, 64), np.float32), np.full((5, 64), 7, np.float32)
        run(a, b)
        np.testing.assert_allclose(b, a.sum(1), rtol=1e-6)
