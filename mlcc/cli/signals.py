"""End a command within a second of SIGINT, SIGTERM or SIGHUP, even if native code does not return.

Python's handlers run between two bytecodes, so not while the main thread is in native code. But Python writes the
signal to a pipe at once (`signal.set_wakeup_fd`), where a thread waits: it lets the main thread unwind if possible, and
otherwise ends the process itself. Only `mlcc.cli.main.main` installs this: programs that use mlcc as a library keep
their handlers.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from mlcc.temporaries import remove_temporaries

MESSAGES = {
    number: word
    for name, word in (("SIGINT", "interrupted"), ("SIGTERM", "terminated"), ("SIGHUP", "hung up"))
    if (number := getattr(signal, name, None)) is not None
}
NOTICE_SECONDS = 0.25  # seconds until the main thread must have run its handler; it has not if it is in native code
UNWIND_SECONDS = 0.5  # further seconds until it must have ended


class Stopped(BaseException):
    """Raised in the main thread by a signal that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(MESSAGES[number])
        self.number = number


class _State:
    watching = False
    patient = False
    waived = False  # the first signal inside `patient` was received
    noticed = False
    said = False


_state = _State()
_last: list[Callable[[], None]] = []  # registered by `at_end`


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """End this process on a signal inside the block, unless it ignores the signal. Restores the handlers after it.

    Does nothing outside the main thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        former_pipe = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    except ValueError:  # not the main thread
        os.close(reading)
        os.close(writing)
        yield
        return
    former = {n: signal.getsignal(n) for n in MESSAGES if signal.getsignal(n) not in (signal.SIG_IGN, None)}

    def restore() -> None:
        if _state.watching:
            _state.watching = False
            signal.set_wakeup_fd(former_pipe)
            for number, handler in former.items():
                signal.signal(number, handler)

    os.register_at_fork(after_in_child=restore)
    for number in former:
        signal.signal(number, _handle)
    _state.watching, _state.noticed, _state.said, _state.waived = True, False, False, False
    with contextlib.suppress(RuntimeError):  # no thread can be started; handlers still run between bytecodes
        _thread.start_new_thread(_watch, (reading,))
    try:
        yield
    finally:
        restore()
        os.close(writing)  # ends the thread


@contextlib.contextmanager
def graceful_first_signal() -> Iterator[None]:
    """Give the main thread unlimited time after the first signal inside the `with`; a second one ends the command."""
    _state.patient = True
    try:
        yield
    finally:
        _state.patient = False


@contextlib.contextmanager
def at_end(last: Callable[[], None]) -> Iterator[None]:
    """Call `last` if the process is ended inside the `with` without unwinding the main thread."""
    _last.append(last)
    try:
        yield
    finally:
        _last.remove(last)


def end_process(code: int) -> NoReturn:
    """End the process without unwinding: first what `at_end` registered, then temporary files are removed."""
    for last in reversed(_last):
        with contextlib.suppress(Exception):
            last()
    remove_temporaries()
    os._exit(code)


def is_watching() -> bool:
    """Return True if mlcc is the process's own command line and handles its signals."""
    return _state.watching


def print_message(number: int) -> None:
    """Write the signal's message to stderr, once."""
    if not _state.said:
        _state.said = True
        with contextlib.suppress(OSError):
            os.write(2, f"{MESSAGES[number]}\n".encode())


def exit_code(number: int) -> int:
    """Return the exit code by which a shell reports a command that a signal ended."""
    return 128 + number


def _handle(number: int, frame: FrameType | None) -> None:
    """Handle a signal in the main thread: raise Stopped, once."""
    if not _state.noticed:
        _state.noticed = True
        raise Stopped(number)


def _watch(reading: int) -> None:
    """Run as a thread: at the first signal, give the main thread time to unwind, then end the process."""
    received: list[int] = []
    while not received:
        numbers = os.read(reading, 64)
        if not numbers:
            os.close(reading)
            return
        received = [n for n in numbers if n in MESSAGES]
        if received and _state.patient and not _state.waived:
            _state.waived, received = True, []
    end = time.monotonic() + NOTICE_SECONDS
    while not _state.noticed and time.monotonic() < end:
        time.sleep(0.005)
    if _state.noticed:
        time.sleep(UNWIND_SECONDS)
    _end(received[0])


def _end(number: int) -> None:
    if not _state.watching:
        return  # the command has already ended
    print_message(number)
    end_process(exit_code(number))
