"""Signals to real processes: every command ends soon, with one line and its code, and leaves no part of a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTED = """
import mlcc

@mlcc.register_func("t.started", override=True)
def started():
    open("started", "w").close()
"""
ENDLESS = """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    T.evaluate(T.call_packed("t.started"))
    while A[0] < T.float32(10):
        A[1] = A[1] + T.float32(1)
"""
CODES = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated"), signal.SIGHUP: (129, "hung up")}
SOON = 10.0  # seconds; a second on a machine that has nothing else to do


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(STARTED)
    (tmp_path / "m.mlc").write_text(ENDLESS)
    np.savez(tmp_path / "in.npz", A=np.zeros(8, "float32"))
    return tmp_path


def start(folder: Path, *command: str, ignored: tuple[signal.Signals, ...] = ()) -> subprocess.Popen[str]:
    def dispositions() -> None:
        for number in CODES:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=dispositions,  # noqa: PLW1509
    )  # fmt: skip


def stop(process: subprocess.Popen[str], folder: Path, number: int, pause: float = 0.1) -> tuple[int, str, str]:
    """Send a signal once the program says that it runs; its code and what it wrote."""
    end = time.monotonic() + 120
    while not (folder / "started").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(pause)
    process.send_signal(number)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < SOON
    return process.returncode, out, err


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_native_code_ends(folder: Path, command: str, number: signal.Signals) -> None:
    process = start(folder, "-m", "mlcc", command, "m.mlc", "--in", "in.npz", "--env", "env.py")
    before = set(os.listdir(folder))
    code, out, err = stop(process, folder, number)
    assert (code, out, err) == (CODES[number][0], "", f"{CODES[number][1]}\n")
    assert set(os.listdir(folder)) - before <= {"started", "__pycache__"}


def test_a_call_that_goes_back_to_python_ends(folder: Path) -> None:
    """Also where the functions that it calls catch everything."""
    (folder / "m.mlc").write_text(
        ENDLESS.replace("A[1] = A[1] +", 'T.evaluate(T.call_packed("t.rest"))\n        A[1] =')
    )
    (folder / "env.py").write_text(
        f"{STARTED}\nimport time\n\n@mlcc.register_func('t.rest', override=True)\ndef rest():\n"
        "    try:\n        time.sleep(0.02)\n    except BaseException:\n        pass\n"
    )
    process = start(folder, "-m", "mlcc", "run", "m.mlc", "--in", "in.npz", "--env", "env.py", "--out", "out.npz")
    assert stop(process, folder, signal.SIGTERM)[::2] == (143, "terminated\n")
    assert not (folder / "out.npz").exists()


GPU = """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    for i in T.thread_binding(8, thread="threadIdx.x"):
        while A[i] < T.float32(10):
            A[i] = A[i] * T.float32(0.5)
"""


def test_signals_end_emulation(folder: Path) -> None:
    (folder / "m.mlc").write_text(GPU)
    (folder / "started").touch()
    process = start(
        folder, "-m", "mlcc", "run", "--emulate", "--no-check", "-t", "cuda{arch=sm_80}", "m.mlc", "--in", "in.npz"
    )
    assert stop(process, folder, signal.SIGINT, pause=5)[::2] == (130, "interrupted\n")


def test_the_interpreter_ends(folder: Path) -> None:
    (folder / "m.mlc").write_text(ENDLESS.replace('    T.evaluate(T.call_packed("t.started"))\n', ""))
    (folder / "started").touch()
    process = start(
        folder, "-m", "mlcc", "passes", "-p", "lower-loops", "--check-each", "in.npz", "m.mlc", "-o", "out.mlc"
    )
    assert stop(process, folder, signal.SIGTERM, pause=4)[::2] == (143, "terminated\n")
    assert not (folder / "out.mlc").exists()


COMPILE = """
import ctypes, sys
import mlcc.targets.llvm.object.units as units
from mlcc.cli.main import main

def compile_unit(*args):
    open("started", "w").close()
    ctypes.CDLL(None).sleep(100)

units.compile_unit = compile_unit
units.store = lambda: None
main(["compile", "m.mlc", "-o", "m.o", "--header", "m.h"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_code_generation(folder: Path, number: signal.Signals) -> None:
    """Code generation is native code, too."""
    code, _, err = stop(start(folder, "-c", COMPILE), folder, number)
    assert (code, err) == (CODES[number][0], f"{CODES[number][1]}\n")
    assert not {"m.o", "m.h"} & set(os.listdir(folder))


WRITE = """
import ctypes, sys, time
from mlcc.cli import signals
from mlcc.files import write_atomic
import mlcc.cli.main as cli

def pieces():
    yield b"half"
    open("started", "w").close()
    ctypes.CDLL(None).sleep(100) if sys.argv[1] == "native" else time.sleep(100)

cli.run = lambda argv: write_atomic("out", pieces())
cli.main([])
"""


@pytest.mark.parametrize("where", ["native", "python"])
@pytest.mark.parametrize("number", CODES)
def test_no_part_of_a_file_is_left(folder: Path, where: str, number: signal.Signals) -> None:
    (folder / "out").write_text("before")
    code, _, err = stop(start(folder, "-c", WRITE, where), folder, number)
    assert (code, err) == (CODES[number][0], f"{CODES[number][1]}\n")
    assert (folder / "out").read_text() == "before"
    assert set(os.listdir(folder)) == {"env.py", "in.npz", "m.mlc", "out", "started"}


def test_ignored_signals_stay_ignored(folder: Path) -> None:
    """As under nohup."""
    command = ("-m", "mlcc", "run", "m.mlc", "--in", "in.npz", "--env", "env.py")
    process = start(folder, *command, ignored=(signal.SIGHUP,))
    while not (folder / "started").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None
    assert stop(process, folder, signal.SIGTERM)[0] == 143


LIBRARY = """
import os, signal, sys, threading
import numpy as np
import mlcc

def state():
    with open("/proc/self/status") as file:
        found = [line.split() for line in file if line.startswith(("SigIgn", "SigCgt", "SigBlk"))]
    masks = [int(mask, 16) & 0x7fffffff for _, mask in found]  # the C library has some beyond, for threads
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return masks, fd, {n: signal.getsignal(n) for n in signal.valid_signals()}

mine = lambda number, frame: None
if "own" in sys.argv:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGFPE):
        signal.signal(number, mine)
before = state()
text = '''
@T.prim_func
def f(A: T.Buffer((64, 4096), "float32"), B: T.Buffer((64, 4096), "float32")):
    for i in T.parallel(64):
        for j in range(4096):
            B[i, j] = A[i, j] + T.float32(1)
'''
exe = mlcc.load(mlcc.build(mlcc.parse(text)))
a, b = np.ones((64, 4096), "float32"), np.empty((64, 4096), "float32")
bound = exe["f"].bind(a, b)
found = []

def use():
    for call in (lambda: exe["f"](a, b), bound, lambda: exe.time_evaluator("f", number=3)(a, b)):
        call()
        found.append(b.sum())

use()
assert state() == before
thread = threading.Thread(target=use)
thread.start()
thread.join()
assert state() == before and found == [2.0 * b.size] * 6
from mlcc.cli.main import run
open("k.mlc", "w").write(text)
np.savez("k.npz", A=a)
assert run(["run", "k.mlc", "--func", "f", "--in", "k.npz", "--out", "out.npz"]) == 0
assert state() == before
if "own" in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("handlers", ["default", "own"])
def test_programs_that_use_the_library_keep_their_handlers(tmp_path: Path, handlers: str) -> None:
    process = start(tmp_path, "-c", LIBRARY, handlers)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 0


FORKING = """
import os, signal
import mlcc

@mlcc.register_func("t.started", override=True)
def started():
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSEGV if os.path.exists("fault") else signal.SIGTERM)
        os._exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    open("child", "w").write(str(code))
"""


@pytest.mark.parametrize(("fault", "expected"), [(True, -signal.SIGSEGV), (False, -signal.SIGTERM)])
def test_children_have_handlers_of_their_own(folder: Path, fault: bool, expected: int) -> None:
    """What ends a child of an environment does not end the command."""
    (folder / "env.py").write_text(FORKING)
    (folder / "m.mlc").write_text(ENDLESS.replace("    while A[0] < T.float32(10):\n    ", ""))
    if fault:
        (folder / "fault").touch()
    process = start(folder, "-W", "ignore", "-m", "mlcc", "run", "m.mlc", "--in", "in.npz", "--env", "env.py")
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert int((folder / "child").read_text()) == expected


MAIN = """
import signal
from mlcc.cli.main import main

def state():
    with open("/proc/self/status") as file:
        found = [line.split() for line in file if line.startswith(("SigIgn", "SigCgt", "SigBlk"))]
    # the C library has some beyond, for threads; faults are watched for as long as the process lives
    faults = sum(1 << n - 1 for n in (4, 5, 6, 7, 8, 11))
    masks = [int(mask, 16) & 0x7fffffff & ~faults for _, mask in found]
    return masks, {n: signal.getsignal(n) for n in signal.valid_signals()}

before = state()
for argv in (["--version"], ["run", "m.mlc", "--in", "in.npz"], ["check", "absent.mlc"]):
    try:
        main(argv)
    except SystemExit:
        pass
assert state() == before
assert signal.set_wakeup_fd(-1) == -1
"""


def test_handlers_are_as_before_when_a_command_has_ended(folder: Path) -> None:
    (folder / "m.mlc").write_text(
        ENDLESS.replace('    T.evaluate(T.call_packed("t.started"))\n    while A[0] < T.float32(10):\n    ', "")
    )
    process = start(folder, "-c", MAIN)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
