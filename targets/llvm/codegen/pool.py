"""The thread pool that objects with parallel loops carry: `pool.ll` for an architecture.

Its symbols are weak and versioned: of several objects in one program the first one's pool serves all. `docs/abi.md`
says what a program may do with it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

from mlcc.targets.llvm.codegen.ir_text import ModuleText

VERSION = 1
RUN = "mlcc_pool_v1_run"
RUN_WORK = "mlcc_pool_v1_run_work"
SET_THREADS = "mlcc_pool_v1_set_num_threads"
GET_THREADS = "mlcc_pool_v1_get_num_threads"
SET_PARALLEL_FOR = "mlcc_pool_v1_set_parallel_for"

MOST_THREADS = 1024
LONG = 64_000  # nanoseconds of work for which sleeping threads are woken: there a wake begins to pay
_HANDLER_STACK = 16_384  # bytes, for handlers of faults in a worker
_PROCESS_OFFSET = 400  # of the field in %mlcc_pool that follows the state of the pool
_RANGES = 16  # of chunks that a job has at most, one for each thread
_SLOTS = 4  # of workers that are kept off the caller's CPU when they are woken; the last one is nobody's

_X86_64 = {
    "futex": "202", "sched_yield": "24", "rt_sigprocmask": "14", "sched_getaffinity": "204", "getpid": "39",
    "mmap": "9", "madvise": "28", "munmap": "11", "sigaltstack": "131", "gettid": "186", "sched_setaffinity": "203",
    "pause_declaration": "declare void @llvm.x86.sse2.pause()", "pause": "call void @llvm.x86.sse2.pause()",
}  # fmt: skip
_AARCH64 = {
    "futex": "98", "sched_yield": "124", "rt_sigprocmask": "135", "sched_getaffinity": "123", "getpid": "172",
    "mmap": "222", "madvise": "233", "munmap": "215", "sigaltstack": "132", "gettid": "178", "sched_setaffinity": "122",
    "pause_declaration": "declare void @llvm.aarch64.hint(i32)", "pause": "call void @llvm.aarch64.hint(i32 1)",
}  # fmt: skip
# the same numbers; `pause` is of an extension, and what it encodes to does nothing on most machines
_RISCV64 = {**_AARCH64, "pause_declaration": "", "pause": 'fence syncscope("singlethread") seq_cst'}
# the pool's own time is nothing beside what waits and wakes take; optimised, it would take 40 ms to compile
_ATTRIBUTES = "noinline optnone nounwind"
_SYSTEMS = {"x86_64": _X86_64, "aarch64": _AARCH64, "riscv64": _RISCV64}


def add_pool(module: ModuleText) -> None:
    """Add the thread pool to the module; `RUN_WORK` and the others may be called then."""
    module.helper(RUN, pool_text(module.triple), shared=True)


def carries_pool(module: ModuleText) -> bool:
    return module.has_helper(RUN)


@cache
def pool_text(triple: str) -> str:
    """The pool for a Linux triple as LLVM IR, without its comments."""
    text = (files(__package__) / "pool.ll").read_text()
    lines = (line.partition(";")[0].rstrip() for line in text.splitlines())
    values = {**_SYSTEMS[triple.partition("-")[0]], "process_offset": str(_PROCESS_OFFSET), "most": str(MOST_THREADS)}
    values.update(attributes=_ATTRIBUTES, long=str(LONG), handler_stack=str(_HANDLER_STACK))
    values.update(ranges=str(_RANGES), slots=str(_SLOTS), last_slot=str(_SLOTS - 1), slot_bytes=str(8 * _SLOTS))
    return Template("\n".join(line for line in lines if line)).substitute(values)
