"""The affinity of the pool's threads: they wake off the caller's CPU, and have what the program gave them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlcc

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

TEXT = """
@T.prim_func
def wide(A: T.Buffer((64, 4000), "float32"), B: T.Buffer((64, 4000), "float32")):
    T.func_attr({"tir.noalias": True})
    for i in T.parallel(64):
        for j in range(4000):
            B[i, j] = A[i, j] * T.float32(2) + T.float32(1)

@T.prim_func
def narrow(A: T.Buffer((2, 128000), "float32"), B: T.Buffer((2, 128000), "float32")):
    T.func_attr({"tir.noalias": True})
    for i in T.parallel(2):
        for j in range(128000):
            B[i, j] = A[i, j] * T.float32(2) + T.float32(1)
"""


def run_program(program: str, folder: Path) -> str:
    """What a Python program prints that is given an object with `wide` and `narrow`, and two threads unless it says
    otherwise."""
    mlcc.build(mlcc.parse(TEXT), target="llvm{vector-width=128}").save(folder / "f.o")
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "f.o"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        env={**os.environ, "MLCC_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


_BESIDE = """
import os, sys, time
import numpy as np
import mlcc

def cpu(task):
    return int(open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[36])

a = np.ones((64, 4000), np.float32)
allowed = set(sorted(os.sched_getaffinity(0))[:2])
os.sched_setaffinity(0, allowed)
call = mlcc.load(sys.argv[1])["wide"].bind(a, np.empty_like(a))
before = set(os.listdir("/proc/self/task"))
call()
(worker,) = map(int, set(os.listdir("/proc/self/task")) - before)
met = rounds = 0
for at in sorted(allowed):
    for other in (at, next(iter(allowed - {at}))):
        os.sched_setaffinity(0, {at})
        for _ in range(10):
            os.sched_setaffinity(worker, {other})
            time.sleep(2e-3)  # it moves there and falls asleep
            if other == at:
                call()  # it may run nowhere else, and is left alone
            os.sched_setaffinity(worker, allowed)
            time.sleep(2e-3)
            end = time.monotonic() + 2e-3
            while time.monotonic() < end:
                call()
            met += cpu(worker) == at
            rounds += 1
        patience = time.monotonic() + 10
        while os.sched_getaffinity(worker) != allowed:  # until it has run
            assert time.monotonic() < patience
            time.sleep(2e-3)
print(met, rounds)
"""


def test_workers_wake_beside_the_caller(tmp_path: Path) -> None:
    """A worker that slept on the caller's CPU wakes on another, and its affinity is as before in the end.

    What else runs here may move it back now and then.
    """
    met, rounds = map(int, run_program(_BESIDE, tmp_path).split())
    assert rounds == 40 and met <= 10


_SEVERAL = """
import os, sys, time
import numpy as np
import mlcc
from tests.targets.pools import use_threads

exe = mlcc.load(sys.argv[1])
a, n = (np.ones(shape, np.float32) for shape in ((64, 4000), (2, 128000)))
wide = exe["wide"].bind(a, np.empty_like(a))
narrow = exe["narrow"].bind(n, np.empty_like(n))
allowed = set(sorted(os.sched_getaffinity(0))[:2])
os.sched_setaffinity(0, allowed)
before = set(os.listdir("/proc/self/task"))
use_threads(4)
wide()
workers = [int(task) for task in set(os.listdir("/proc/self/task")) - before]
assert len(workers) == 3

def fall_asleep():
    end = time.monotonic() + 10
    while any(" S " not in open(f"/proc/self/task/{w}/stat").read() for w in workers):
        assert time.monotonic() < end
        time.sleep(1e-3)
    time.sleep(2e-3)

def check(wanted):
    fall_asleep()
    found = [os.sched_getaffinity(worker) for worker in workers]
    assert found == [wanted] * len(workers), (found, wanted)

fall_asleep()
"""

_RETURNED = """
for _ in range(20):
    for job in (narrow, narrow, wide, narrow):
        job()
        check(allowed)
"""

_SET = """
for _ in range(5):
    for cpu in allowed:
        for first in (narrow, wide):
            first()
            fall_asleep()
            for task in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(task), {cpu})
            for job in (wide, narrow, wide):
                job()
                check({cpu})
            for task in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(task), allowed)
            wide()
            check(allowed)
"""

_DENIED = """
import ctypes, platform, struct

def deny(action):
    # a filter of system calls (seccomp): `action` for sched_setaffinity, all others are allowed
    number = 203 if platform.machine() == "x86_64" else 122
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, action), (6, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None).prctl
    if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0):
        print("cannot filter")
        sys.exit()

deny(0x00050001)  # EPERM
for _ in range(10):
    wide()
    check(allowed)
deny(0x80000000)  # the end of the process
for _ in range(10):
    wide()
    check(allowed)
print("done")
"""


def test_affinities_are_as_before_once_all_sleep(tmp_path: Path) -> None:
    """Also after jobs that need fewer workers than there are asleep."""
    run_program(_SEVERAL + _RETURNED, tmp_path)


def test_affinities_that_the_program_sets_stay(tmp_path: Path) -> None:
    run_program(_SEVERAL + _SET, tmp_path)


def test_affinities_that_may_not_be_set_are_left_alone(tmp_path: Path) -> None:
    """One refusal is enough: the next attempt would end the process."""
    if "cannot filter" in run_program(_SEVERAL + _DENIED, tmp_path):
        pytest.skip("the kernel has no filters of system calls")
