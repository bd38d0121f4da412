"""The number of threads that run the parallel loops of loaded artifacts.

The artifacts of a process share one pool, that of the first one with parallel loops. The pool gets the number whenever
an artifact is loaded or the number is set.
"""

from __future__ import annotations

import ctypes
import os

from mlcc.errors import CallError, error
from mlcc.runtime import image
from mlcc.runtime.cores import num_cores

VARIABLE = "MLCC_NUM_THREADS"
RUN = "mlcc_pool_v1_run"
_SET_THREADS = "mlcc_pool_v1_set_num_threads"
_SET_PARALLEL_FOR = "mlcc_pool_v1_set_parallel_for"
_FUNCTIONS = (RUN, _SET_THREADS, "mlcc_pool_v1_get_num_threads", _SET_PARALLEL_FOR)
# pools that are told how much work a loop is have these, too
RUN_WORK = "mlcc_pool_v1_run_work"
_SET_SHARED_RUN = "mlcc_pool_v1_set_shared_run"

_requested: int | None = None  # what was asked for in this process, before bounds


def set_num_threads(count: int | None) -> None:
    """Use `count` threads for parallel loops, the calling one among them, as far as there are cores; None: the default.

    The default is MLCC_NUM_THREADS, or one for each core that this process may use. Raises CallError (E0817).
    """
    global _requested
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise CallError(error("E0817", f"a number of threads is an integer from 1 on, or None, not {count!r}"))
    _requested = count
    configure_pool()


def get_num_threads() -> int:
    """Return the number of threads that a parallel loop may use: what was set, else MLCC_NUM_THREADS, else all cores.

    It is at most what the affinity and the CPU quota of this process allow. Raises CallError (E0817) if the variable is
    not a number of threads.
    """
    requested = _requested if _requested is not None else threads_from_environment()
    return num_cores() if requested is None else min(requested, num_cores())


def threads_from_environment() -> int | None:
    """MLCC_NUM_THREADS, None where it is not set or empty. Raises CallError (E0817) for what is no number from 1 on."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:20])):
        message = f"{VARIABLE} is `{text[:40]}`: a number of threads is an integer from 1 on"
        raise CallError(error("E0817", message, help=f"unset {VARIABLE} to use all cores"))
    return int(text[:20])


def configure_pool() -> None:
    """Set the number of threads of this process's pool, if an artifact brought a pool."""
    address = image.shared_symbol(_SET_THREADS)
    if address is not None:
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(address)(get_num_threads())


def adopt_library(library: ctypes.CDLL) -> None:
    """A shared library with a pool of its own uses the pool of this process; the first one's serves all.

    Where one of the two is of a time when pools were not told the work, loops of the library are for the shared pool of
    unknown work.
    """
    addresses = {name: _address(library, name) for name in (*_FUNCTIONS, RUN_WORK, _SET_SHARED_RUN)}
    own = {name: address for name, address in addresses.items() if address is not None}
    if not all(name in own for name in _FUNCTIONS):
        return
    shared = image.share_symbols(own)
    if shared[RUN] != own[RUN]:
        if shared.get(RUN_WORK, own.get(RUN_WORK)) != own.get(RUN_WORK):
            setter, run = own[_SET_SHARED_RUN], shared[RUN_WORK]
        else:
            setter, run = own[_SET_PARALLEL_FOR], shared[RUN]
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(setter)(run)
    configure_pool()


def _address(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None
