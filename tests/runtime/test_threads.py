"""The threads of parallel loops: how many, in one process with many callers, forks and objects, and in C programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.runtime import cores, image, threads
from mlcc.targets.llvm.artifact import ObjectArtifact
from tests.targets.pools import use_threads

TEXT = """
@T.prim_func
def {name}(A: T.Buffer((64, 4000), "float32"), B: T.Buffer((64, 4000), "float32")):
    T.func_attr({{"tir.noalias": True}})
    for i in T.parallel(64):
        for j in range(4000):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32({by}) + T.float32(1)
"""
CC = shutil.which("cc")


def artifact(name: str = "f", by: float = 2.0) -> mlcc.Artifact:
    return mlcc.build(mlcc.parse(TEXT.format(name=name, by=by)), target="llvm{vector-width=128}")


@pytest.fixture
def exe() -> Iterator[mlcc.runtime.Executable]:
    yield mlcc.load(artifact())
    mlcc.set_num_threads(None)


def older_artifact(name: str = "f", by: float = 2.0) -> mlcc.Artifact:
    """An artifact of the time when pools were not told the work: it has `mlcc_pool_v1_run`, which its kernels call, and
    what went with that."""
    made = artifact(name, by)
    assert isinstance(made, ObjectArtifact)
    later = ("i32 @mlcc_pool_v1_run_work", "void @mlcc_pool_v1_set_shared_run")
    assert all(f"define weak {symbol}(" in made.text for symbol in later)
    for unit in made.units:
        if unit.kernels:
            call = r"(declare|call) i32 @mlcc_pool_v1_run_work\((.*), i64 [^,)]*\)"
            unit.text = re.sub(call, r"\1 i32 @mlcc_pool_v1_run(\2)", unit.text)
            assert "run_work" not in unit.text
        for symbol in later:
            unit.text = unit.text.replace(f"define weak {symbol}(", f"define hidden {symbol}(")
        unit.text = unit.text.replace("@mlcc_pool_v1_shared_run = weak", "@mlcc_pool_v1_shared_run = internal")
        for part in ("run_work", "set_shared_run", "shared_run"):
            unit.text = unit.text.replace(f"@mlcc_pool_v1_{part}", f"@older_{part}")
    made._code = b""
    return made


def check(exe: mlcc.runtime.Executable, name: str = "f", by: float = 2.0, rounds: int = 1) -> None:
    a = np.random.default_rng(0).random((64, 4000), dtype=np.float32)
    b = np.empty_like(a)
    for _ in range(rounds):
        b[:] = 0
        exe[name](a, b)
        np.testing.assert_array_equal(b, a * np.float32(by) + np.float32(1))


def tasks() -> set[str]:
    """The threads of this process; others than the pool's may end at any time."""
    return set(os.listdir("/proc/self/task"))


def pool_size() -> int:
    """The number of threads by the pool itself."""
    import ctypes

    address = image.shared_symbol("mlcc_pool_v1_get_num_threads")
    assert address is not None
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(address)())


def test_number_of_threads_is_checked(exe: mlcc.runtime.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "num_cores", lambda: 4)
    monkeypatch.delenv("MLCC_NUM_THREADS", raising=False)
    assert mlcc.get_num_threads() == 4
    for text, count in (("3", 3), ("9", 4), ("", 4), (" 2 ", 2), ("9" * 30, 4), ("1", 1)):
        monkeypatch.setenv("MLCC_NUM_THREADS", text)
        mlcc.set_num_threads(None)
        assert mlcc.get_num_threads() == pool_size() == count
    for text in ("0", "-1", "two", "1.5", "2,3", "\u0663"):
        monkeypatch.setenv("MLCC_NUM_THREADS", text)
        with pytest.raises(mlcc.CallError, match=r"E0817.*MLCC_NUM_THREADS is"):
            mlcc.set_num_threads(None)
    for wanted, count in ((2, 2), (4, 4), (7, 4), (1, 1)):
        mlcc.set_num_threads(wanted)
        assert mlcc.get_num_threads() == pool_size() == count
        check(exe)
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(mlcc.CallError, match="E0817|number of threads"):
            mlcc.set_num_threads(wrong)  # type: ignore[arg-type]


def test_cores_are_those_of_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores.num_cores() == 1 and mlcc.get_num_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_concurrent_callers_get_their_own_results(exe: mlcc.runtime.Executable) -> None:
    """Threads of the program that call at once; each gets its own results."""
    use_threads(3)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            check(exe, rounds=40)
        except BaseException as exc:
            failed.append(exc)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failed


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 counts the pool's threads
def test_a_forked_child_computes(exe: mlcc.runtime.Executable) -> None:
    use_threads(3)
    check(exe)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                check(exe, rounds=5)
                code = len(os.listdir("/proc/self/task")) == 1  # it starts threads of its own
            finally:
                os._exit(int(code))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        check(exe)


def test_objects_share_one_pool(exe: mlcc.runtime.Executable) -> None:
    use_threads(3)
    check(exe)
    before = tasks()
    for by in (3.0, 4.0):
        other = mlcc.load(artifact("g", by))
        use_threads(3)
        check(other, "g", by, rounds=3)
        assert tasks() <= before


END = """
import sys
import numpy as np
import mlcc
from tests.targets.pools import use_threads
exe = mlcc.load(sys.argv[1])
use_threads(3)
a = np.ones((64, 4000), np.float32)
b = np.empty_like(a)
exe["f"](a, b)
if len(sys.argv) > 2:
    import time
    time.sleep(0.05)
assert b.sum() == 3 * b.size
"""


@pytest.mark.parametrize("asleep", [False, True])
def test_the_interpreter_ends_beside_its_threads(tmp_path: Path, asleep: bool) -> None:
    artifact().save(tmp_path / "m.o")
    command = [sys.executable, "-c", END, str(tmp_path / "m.o"), *(["asleep"] if asleep else [])]
    root = Path(__file__).resolve().parents[2]
    for _ in range(2):
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------- C programs

PROGRAM = """
#include "one.h"
#include "two.h"
#include <stdio.h>
#include <string.h>

static float a[64][4000], b[64][4000];
static int calls;

static int32_t own(int32_t (*body)(void *, int64_t, int64_t), void *context, int64_t n, int64_t grain) {
    calls++;
    for (int64_t end = n; end > 0; end -= grain) {
        int32_t code = body(context, end > grain ? end - grain : 0, end);
        if (code) return code;
    }
    return 0;
}

static int run(int32_t (*f)(const DLTensor *, DLTensor *), float by) {
    int64_t shape[2] = {64, 4000};
    DLTensor x = {a, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0}, y = x;
    y.data = b;
    memset(b, 0, sizeof b);
    if (f(&x, &y)) return 1;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 4000; j++)
            if (b[i][j] != a[i][j] * by + 1) return 2;
    return 0;
}

static int tasks(void) {
    char line[256];
    int count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &count);
    if (status) fclose(status);
    return count;
}

int main(void) {
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 4000; j++) a[i][j] = (float)(i * 4000 + j) / 65536;
    printf("%d ", run(one_f, 2) + run(two_g, 4));
    printf("%d ", tasks());
    one_set_num_threads(3);
    printf("%d ", run(two_g, 4) + run(one_f, 2));
    printf("%d ", tasks());
    two_set_parallel_for(own);
    printf("%d ", run(one_f, 2) + run(two_g, 4));
    printf("%d ", calls);
    one_set_parallel_for(NULL);
    printf("%d %d\\n", run(one_f, 2), calls);
    return 0;
}
"""


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "makers",
    [(artifact, artifact), (older_artifact, artifact), (artifact, older_artifact)],
    ids=lambda m: "+".join(f.__name__ for f in m),
)
def test_c_programs_share_one_pool(tmp_path: Path, shared: bool, makers: tuple[Callable[..., Any], ...]) -> None:
    """Two objects linked together, or as shared libraries: one pool, its number of threads, and its replacement."""
    for name, func, by, make in (("one", "f", 2.0, makers[0]), ("two", "g", 4.0, makers[1])):
        made = make(func, by)
        made.save(tmp_path / f"{name}.o")
        (tmp_path / f"{name}.h").write_text(made.header(f"{name}.o"))
    (tmp_path / "app.c").write_text(PROGRAM)
    cc = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1"]
    parts = ["one.o", "two.o", "-lm"]
    if shared:
        for name in ("one", "two"):
            subprocess.run([*cc, "-shared", f"{name}.o", "-o", f"lib{name}.so", "-lm"], cwd=tmp_path, check=True)
        parts = ["-L.", "-lone", "-ltwo", "-Wl,-rpath,."]
    subprocess.run([*cc, "app.c", *parts, "-o", "app"], cwd=tmp_path, check=True)
    for count in (1, 2):
        env = {**os.environ, "MLCC_NUM_THREADS": str(count)}
        done = subprocess.run(["./app"], cwd=tmp_path, capture_output=True, text=True, check=True, env=env, timeout=60)
        first = min(count, len(os.sched_getaffinity(0)))
        assert done.stdout.split() == ["0", str(first), "0", "3", "0", "2", "0", "2"]


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_shared_libraries_use_the_pool_that_is_there(exe: mlcc.runtime.Executable, tmp_path: Path) -> None:
    use_threads(3)
    check(exe)
    before = tasks()
    artifact("g", 5.0).save(tmp_path / "g.so")
    for _ in range(2):
        library = mlcc.load(tmp_path / "g.so")
        use_threads(3)
        check(library, "g", 5.0, rounds=3)
    assert tasks() <= before


LIBRARY_FIRST = """
import ctypes, os, sys
import numpy as np
import mlcc
from mlcc.runtime import image
a = np.ones((64, 4000), np.float32)
b = np.empty_like(a)
for path in sys.argv[1:]:
    exe = mlcc.load(path)
    ctypes.CFUNCTYPE(None, ctypes.c_int32)(image.shared_symbol("mlcc_pool_v1_set_num_threads"))(3)
    exe["f"](a, b)
    assert b.sum() == 3 * b.size
    print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    "names",
    # behind an old library newer objects have a pool of their own: nothing of theirs asks for the library's
    ["a.so b.o c.so", "a.so old_b.o old_c.so", "old_a.o b.so c.o old_d.so"],
)
def test_objects_use_the_pool_of_a_shared_library(tmp_path: Path, names: str) -> None:
    """Also where some are of the time when pools were not told the work."""
    paths = [str(tmp_path / name) for name in names.split()]
    for path in paths:
        (older_artifact if "old_" in path else artifact)().save(path)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", LIBRARY_FIRST, *paths]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(set(done.stdout.split())) == 1


def test_command_line_sets_the_number_of_threads(tmp_path: Path) -> None:
    artifact().save(tmp_path / "m.o")
    a = np.random.default_rng(0).random((64, 4000), dtype=np.float32)
    np.savez(tmp_path / "in.npz", A=a)
    np.savez(tmp_path / "out.npz", out=a * np.float32(2) + np.float32(1))
    try:
        for count in (1, 2):
            argv = ["run", "m.o", "--func", "f", "--in", "in.npz", "--expect", "out.npz", "--threads", str(count)]
            argv = [str(tmp_path / w) if w.endswith((".o", ".npz")) else w for w in argv]
            assert run(argv) == 0
            assert pool_size() == min(count, cores.num_cores())
    finally:
        mlcc.set_num_threads(None)
