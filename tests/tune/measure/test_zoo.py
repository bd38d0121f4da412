"""Candidates that misbehave harm nobody: they are told apart, and nothing of them is left."""

from __future__ import annotations

import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.process import Worker, WorkerDied
from mlcc.tune.measure.protocol import Answer, MeasureRequest, PrepareRequest, ResourceLimits
from tests.tune.measure.zoo import ARGUMENTS, DOUBLED, machine_code

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls of x86-64")
LIMITS = ResourceLimits(seconds=2.0, memory=1 << 30, silence=4.0)

ZOO = {
    "endless": ("for (volatile int i = 0;; i++);", "timeout", "CPU time"),
    "asleep": ("long t[2] = {1000, 0}; raw(35, (long)t, 0, 0);", "timeout", "hangs"),
    "null": ("*(volatile int *)0 = 1;", "crash", "SIGSEGV"),
    "trap": ("__builtin_trap();", "crash", "SIG"),
    "abort": ("raw(62, raw(39, 0, 0, 0), 6, 0);", "crash", "SIGABRT"),
    "killed": ("raw(62, raw(39, 0, 0, 0), 9, 0);", "crash", "SIGKILL"),
    "division": ("volatile int one = 1, zero = 0; one = one / zero;", "crash", "SIGFPE"),
    "stack": ("volatile char big[1 << 26]; for (int i = 0; i < 1 << 26; i += 4096) big[i] = 1;", "crash", "SIGSEGV"),
    "leaves": ("raw(231, 0, 0, 0);", "crash", "exit code 0"),
    "wrong": (DOUBLED + "y[7] += 1;", "wrong", "1 of 64 elements differ"),
    "nothing": ("", "wrong", "64 of 64"),
    "NaN": (DOUBLED + "y[3] = 0.0f / 0.0f;", "wrong", "1 of 64"),
    "behind": (DOUBLED + "y[64] = 0;", "wrong", "outside of `Y`"),
    "before": (DOUBLED + "y[-1] = 0;", "wrong", "outside of its tensors"),
    "far before": (DOUBLED + "y[-2000] = 0;", "wrong", "outside of `Y`"),
    "input": (DOUBLED + "*(volatile float *)x = 1;", "wrong", "outside of `X`"),
    "reads behind": (DOUBLED + "*(volatile float *)&x[64];", "wrong", "outside of `X`"),
    "error": ("return 77;", "wrong", "0x4d"),
    "prints": ('raw(1, 1, (long)"noise\\n", 6); raw(1, 2, (long)"noise\\n", 6);' + DOUBLED, "ok", ""),
    "forks": ("if (!raw(57, 0, 0, 0)) for (;;) raw(34, 0, 0, 0);" + DOUBLED, "ok", ""),
    "hoards": ("for (;;) if (raw(9, 0, 1 << 28, 3) < 0) break;", "wrong", ""),
}


@pytest.fixture
def zygote() -> Iterator[Worker]:
    worker = Worker("mlcc.tune.measure.zygote")
    yield worker
    worker.close()


def ask(worker: Worker, request: PrepareRequest | MeasureRequest, seconds: float = 60) -> Answer:
    answer: Answer = pickle.loads(worker.ask(pickle.dumps(request), seconds))
    return answer


def descendants(of: int) -> set[int]:
    """The processes that a process started, directly or not, and those of their sessions."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if words[0] != "Z":
                parents[int(name)] = int(words[1])
    found, grown = {of}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found - {of}


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_misbehaving_candidates_are_told_apart(zygote: Worker, tmp_path: Path) -> None:
    good = machine_code(DOUBLED, tmp_path)
    prepare = PrepareRequest(ARGUMENTS, good, ErrorBound(), limits=LIMITS)
    assert ask(zygote, prepare).status == "ok"
    assert ask(zygote, MeasureRequest(good, good, 2, limits=LIMITS)).status == "ok"
    assert zygote.pid is not None
    before = open_files(zygote.pid), os.listdir(tmp_path), os.listdir("/dev/shm")
    for name, (body, status, why) in ZOO.items():
        candidate = machine_code(body, tmp_path)
        answer = ask(zygote, MeasureRequest(good, candidate, 2, limits=LIMITS))
        assert (answer.status, why in answer.why) == (status, True), (name, answer)
        again = ask(zygote, MeasureRequest(good, good, 2, limits=LIMITS))
        assert again.status == "ok", (name, again)
    assert zygote.started == 1
    assert (open_files(zygote.pid), os.listdir(tmp_path), os.listdir("/dev/shm")) == before
    time.sleep(0.2)
    assert not descendants(zygote.pid)
    pid = zygote.pid
    zygote.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_workspace_that_no_machine_has(zygote: Worker, tmp_path: Path) -> None:
    good = machine_code(DOUBLED, tmp_path)
    assert ask(zygote, PrepareRequest(ARGUMENTS, good, ErrorBound(), limits=LIMITS)).status == "ok"
    for size in (20 << 30, 1 << 60):
        answer = ask(zygote, MeasureRequest(good, machine_code(DOUBLED, tmp_path, size), 2, limits=LIMITS))
        assert answer.status == "refused" and "memory" in answer.why


def test_what_nobody_wrote_is_not_zero(zygote: Worker, tmp_path: Path) -> None:
    """A sum in a temporary that is not initialized is right by luck, on fresh pages."""
    good = machine_code(DOUBLED, tmp_path)
    assert ask(zygote, PrepareRequest(ARGUMENTS, good, ErrorBound(), limits=LIMITS)).status == "ok"
    sums = machine_code("float *t = (float *)workspace;" + DOUBLED + "y[5] += t[3];", tmp_path, 64)
    answer = ask(zygote, MeasureRequest(good, sums, 2, limits=LIMITS))
    assert answer.status == "wrong" and "1 of 64 elements differ" in answer.why


def test_a_zygote_that_is_killed_is_started_again(zygote: Worker, tmp_path: Path) -> None:
    good, endless = machine_code(DOUBLED, tmp_path), machine_code(ZOO["endless"][0], tmp_path)
    limits = ResourceLimits(seconds=600)
    prepare = PrepareRequest(ARGUMENTS, good, ErrorBound(), limits=limits)
    assert ask(zygote, prepare).status == "ok"
    assert zygote.pid is not None
    timer = threading.Timer(0.5, os.kill, (zygote.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(WorkerDied):
        ask(zygote, MeasureRequest(good, endless, 2, limits=limits))
    timer.join()
    assert ask(zygote, prepare).status == "ok"
    assert zygote.started == 2


_TUNER = """
import pickle, sys, time
from pathlib import Path
from mlcc.tune.measure.process import Worker
requests = pickle.loads(Path(sys.argv[1]).read_bytes())
zygote, builder = Worker("mlcc.tune.measure.zygote"), Worker("mlcc.tune.measure.builder")
builder.start()
zygote.ask(requests[0], 60)
print(zygote.pid, builder.pid, flush=True)
zygote.ask(requests[1], 600)
"""


def test_all_processes_end_with_the_tuner(tmp_path: Path) -> None:
    good, endless = machine_code(DOUBLED, tmp_path), machine_code(ZOO["endless"][0], tmp_path)
    limits = ResourceLimits(seconds=600)
    requests = [
        PrepareRequest(ARGUMENTS, good, ErrorBound(), limits=limits),
        MeasureRequest(good, endless, 2, limits=limits),
    ]
    path = tmp_path / "requests"
    path.write_bytes(pickle.dumps([pickle.dumps(r) for r in requests]))
    tuner = subprocess.Popen([sys.executable, "-c", _TUNER, str(path)], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    pids = [int(word) for word in tuner.stdout.readline().split()]
    deadline = time.monotonic() + 20
    while not (forked := descendants(pids[0])) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert forked
    tuner.kill()
    tuner.wait()
    tuner.stdout.close()
    while any(is_running(pid) for pid in (*pids, *forked)):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupted_request_leaves_no_answer_behind(
    zygote: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What answers the next request is not the answer to the one before."""
    good = machine_code(DOUBLED, tmp_path)

    def interrupted(seconds: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(zygote, "_answers_within", interrupted)
        zygote.ask(b"no message at all", 60)
    answer = ask(zygote, MeasureRequest(good, good, 1))
    assert answer.why == "there are no arguments"


def test_a_process_that_cannot_be_started_leaves_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="no more processes"):
        Worker("mlcc.tune.measure.zygote").start()
    assert os.listdir("/proc/self/fd") == before
