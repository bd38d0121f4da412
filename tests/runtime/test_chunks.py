"""Which thread runs which chunks of a parallel loop, and which of several errors it returns."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from mlcc.runtime import elf, externs
from mlcc.runtime.image import Image, link_image
from mlcc.runtime.threads import configure_pool
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.codegen.pool import RUN, SET_THREADS, add_pool
from mlcc.targets.llvm.object.compile import Machine, compile_text

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Run = Callable[[Callable[[int, int], int], int, int], int]
WAIT = 20.0  # seconds


@pytest.fixture(scope="module")
def pool() -> Iterator[Image]:
    """A pool of its own, with two threads, whatever objects the process has loaded before."""
    module = ModuleText(Machine().triple)
    add_pool(module)
    obj = elf.read_object(compile_text(module.text(), Machine()).obj)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlcc.runtime.image._SHARED", {})
        image = link_image(obj, lambda name: externs.address_of(name, externs.ALLOWED | externs.POOL))
        configure_pool()
    ctypes.CFUNCTYPE(None, ctypes.c_int32)(image.functions[SET_THREADS])(2)
    yield image


@pytest.fixture
def run(pool: Image) -> Run:
    """Run a body over `n` indices in chunks of at least `grain`; return its error."""
    call = ctypes.CFUNCTYPE(ctypes.c_int32, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(pool.functions[RUN])

    def run(body: Callable[[int, int], int], n: int, grain: int) -> int:
        return int(call(BODY(lambda _, begin, end: body(begin, end)), None, n, -grain))

    return run


class Meeting:
    """A body whose first chunk of each thread waits until both threads have begun."""

    def __init__(self) -> None:
        self.order: dict[int, list[int]] = {}
        self._both = threading.Barrier(2)

    def __call__(self, begin: int, end: int) -> int:
        seen = self.order.setdefault(threading.get_native_id(), [])
        seen.extend(range(begin, end))
        if len(seen) == end - begin:
            self._both.wait(WAIT)
        return 0


@pytest.mark.parametrize("n", (2, 3, 7, 64, 1000))
def test_each_thread_begins_with_its_own_half(run: Run, n: int) -> None:
    meeting = Meeting()
    assert run(meeting, n, 1) == 0
    caller, worker = (meeting.order.pop(threading.get_native_id()), *meeting.order.values())
    assert caller[0] == 0
    assert abs(worker[0] - n / 2) <= max(n / 32, 1)  # halves are of whole chunks
    assert sorted(caller + worker) == list(range(n))


def test_a_thread_has_the_same_half_in_every_loop(run: Run) -> None:
    first = []
    for _ in range(5):
        meeting = Meeting()
        run(meeting, 64, 1)
        first.append({thread: seen[0] for thread, seen in meeting.order.items()})
    assert all(begun == first[0] for begun in first)


def test_who_is_done_helps_with_the_other_half(run: Run) -> None:
    rest = threading.Semaphore(0)
    ran: list[int] = []

    def body(begin: int, end: int) -> int:
        ran.append(begin)
        if begin == 0:  # the caller is busy until all else is done
            assert rest.acquire(timeout=WAIT)
        elif len(ran) == 32:
            rest.release()
        return 0

    assert run(body, 32, 1) == 0
    assert sorted(ran) == list(range(32))


@pytest.mark.parametrize("failing", ((3, 20), (15, 16), (0, 31), (20,), (31,)))
def test_the_error_is_that_of_the_first_chunk_that_fails(run: Run, failing: tuple[int, ...]) -> None:
    """Both threads begin, so the chunk that fails in the second half may fail before the one in the first."""
    meeting = Meeting()
    ran: set[int] = set()

    def body(begin: int, end: int) -> int:
        meeting(begin, end)
        ran.add(begin)
        return begin + 100 if begin in failing else 0

    assert run(body, 32, 1) == failing[0] + 100
    assert ran >= set(range(failing[0] + 1))  # as in a serial loop
