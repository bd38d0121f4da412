"""LLVM that gets no memory ends its process, and that is not ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlcc.errors import CompileError, is_out_of_memory
from mlcc.machine.limited_memory import run_apart

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
COMPILE = """
import resource, sys
import llvmlite.binding
from mlcc.errors import MlccError
from mlcc.targets.llvm.object.compile import Machine, compile_text
compile_text("define i32 @f() { ret i32 0 }", Machine(), 0)
lines = [f"define i32 @f{n}(i32 %x) {{\\n  %y = mul i32 %x, {n}\\n  ret i32 %y\\n}}" for n in range(60_000)]
text = "\\n".join(lines)
del lines
size = int(open("/proc/self/statm").read().split()[0]) * 4096 + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    print(len(compile_text(text, Machine(), 0).obj))
except MlccError as exc:
    print(exc.diagnostics[0].code, exc.diagnostics[0].message)
"""


@pytest.mark.parametrize("megabytes", [2, 20, 40])
def test_too_little_memory_is_a_diagnostic(megabytes: int) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COMPILE, str(megabytes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("E0016 LLVM ran out of memory")


def test_a_limit_that_is_enough() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", COMPILE, "1500"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and int(done.stdout) > 1_000_000, done.stderr


LOAD = """
import ctypes, os, pickle, resource, signal, sys, tempfile
from mlcc.machine import limited_memory
from mlcc.machine.limited_memory import llvm_library
limited_memory._SECONDS_TO_LOAD = 1
size = int(open("/proc/self/statm").read().split()[0]) * 4096

def outcome(extra):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (size + extra, size + extra))
        try:
            llvm_library()
        except Exception:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

low, high = 0, 1 << 30
while high - low > 1 << 18:
    low, high = (low, middle) if outcome(middle := (low + high) // 2) == 0 else (middle, high)
print(low, *(outcome(low + (n << 15)) for n in range(-128, 16)))
"""


def test_a_library_whose_constructors_get_no_memory() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOAD], env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()[1:]) == {"0", "1"}, done.stdout


UNMAPPED = "/x/y.so: failed to map segment from shared object"


def _library_that_fails_to_load() -> None:
    try:
        raise OSError(UNMAPPED)
    except OSError:
        raise OSError("could not find/load a shared object file")  # noqa: B904 - as llvmlite does


def test_a_library_without_room_is_a_lack_of_memory() -> None:
    with pytest.raises(CompileError, match="E0016"):
        run_apart(_library_that_fails_to_load)
    for fault in (MemoryError(), OSError(12, "Cannot allocate memory"), ImportError(UNMAPPED)):
        assert is_out_of_memory(fault)
    assert not is_out_of_memory(OSError(2, "No such file or directory")) and not is_out_of_memory(ImportError("no x"))


def test_results_and_exceptions_come_back() -> None:
    assert run_apart(lambda: [1, 2]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        run_apart(lambda: 1 // 0)
    with pytest.raises(CompileError, match=r"E0016.*SIGKILL"):
        run_apart(lambda: os.kill(os.getpid(), signal.SIGKILL))


def _loop_forever() -> None:
    while True:
        pass


def test_a_job_that_loops_forever_is_ended() -> None:
    with pytest.raises(CompileError, match=r"E0016.*SIGXCPU"):
        run_apart(_loop_forever, cpu_seconds=1)
