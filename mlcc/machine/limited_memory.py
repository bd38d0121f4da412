"""Load LLVM, and run jobs in a child process where memory is limited, because LLVM aborts when an allocation fails."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn, TypeVar

from mlcc.errors import CompileError, error, is_out_of_memory

T = TypeVar("T")
_SECONDS_TO_LOAD = 20  # of CPU time, where a tenth of a second is usual


def memory_is_limited() -> bool:
    """Return True if this process has a memory limit, such as `ulimit -v` sets: allocations may fail."""
    try:
        import resource
    except ImportError:
        return False
    names = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return hasattr(os, "fork") and any(resource.getrlimit(n)[0] != resource.RLIM_INFINITY for n in names)


@functools.cache
def llvm_library() -> Any:
    """Return llvmlite.binding, loaded. Raises CompileError E0016 if memory is limited and too small for it.

    LLVM aborts if an allocation fails while its library is being loaded, so a child process tries first. CPython 3.11
    may loop forever where it unwinds an exception without memory, so the CPU time of that process is bounded.
    """
    if memory_is_limited() and "llvmlite.binding.ffi" not in sys.modules:
        run_apart(_load_llvm, cpu_seconds=_SECONDS_TO_LOAD)
    _load_llvm()
    return importlib.import_module("llvmlite.binding")


def _load_llvm() -> None:
    importlib.import_module("llvmlite.binding").get_default_triple()


def run_apart(job: Callable[[], T], cpu_seconds: int | None = None) -> T:
    """Run a job in a forked process, which may use so much CPU time; return its result, or raise its exception.

    Raises CompileError E0016 if the process runs out of memory or is ended by a signal.
    """
    import pickle
    import tempfile

    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            _run_job(job, answer, stderr, cpu_seconds)
        try:
            _, status = os.waitpid(child, 0)
        except BaseException:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            raise
        answer.seek(0)
        content = answer.read()
        if status or not content:
            stderr.seek(0)
            raise _out_of_memory_error(status, stderr.read().decode("utf-8", "replace"))
    is_result, value = pickle.loads(content)  # noqa: S301 - what our own child wrote
    if is_result:
        return value  # type: ignore[no-any-return]
    if isinstance(value, MemoryError):
        raise _out_of_memory_error(0, "out of memory")
    raise value


def _run_job(job: Callable[[], Any], answer: BinaryIO, stderr: BinaryIO, cpu_seconds: int | None) -> NoReturn:
    """Run the job in the child and exit: control never returns to the parent's code."""
    try:
        import pickle
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_seconds is not None:
            _limit_cpu_time(cpu_seconds)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(stderr.fileno(), 2)
        try:
            outcome = (True, job())
        except Exception as exc:  # noqa: BLE001 - the parent raises it
            outcome = (False, MemoryError() if is_out_of_memory(exc) else exc)  # a pickle has no cause
        answer.write(pickle.dumps(outcome))
        answer.flush()
        os._exit(0)
    finally:
        os._exit(1)


def _limit_cpu_time(seconds: int) -> None:
    """Have the system end this process, by SIGXCPU, once it has used so much CPU time."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most == resource.RLIM_INFINITY else min(seconds, most), most))


def _out_of_memory_error(status: int, stderr: str) -> CompileError:
    number = os.waitstatus_to_exitcode(status)
    how = f"ended by {signal.Signals(-number).name}" if number < 0 else f"ended with {number}"
    lines = [line for line in stderr.splitlines() if line.strip()]
    why = next((line for line in lines if "LLVM ERROR" in line or "what()" in line), lines[-1] if lines else "")
    text = "LLVM ran out of memory" if "memory" in why or "bad_alloc" in stderr or not why else "LLVM failed"
    help = "raise the memory limit of this process (`ulimit -v`), or split the module"
    return CompileError(error("E0016", f"{text}: {why.strip() or how}", help=help))
