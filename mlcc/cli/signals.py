"""End a command within a second of SIGINT, SIGTERM or SIGHUP, also while native code runs that never comes back.

Python's handlers run between two bytecodes, so not while the main thread is in native code. But Python notes the signal
in a pipe at once (`signal.set_wakeup_fd`), where a thread waits: it lets the main thread unwind if that can, and else
ends the process itself. Only `mlcc.cli.main.main` does this: a program that uses mlcc as a library keeps its handlers.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import time
from types import FrameType

from mlcc.temporaries import remove_temporaries

WORDS = {
    number: word
    for name, word in (("SIGINT", "interrupted"), ("SIGTERM", "terminated"), ("SIGHUP", "hung up"))
    if (number := getattr(signal, name, None)) is not None
}
TO_NOTICE = 0.25  # seconds in which the main thread runs its handler, unless it is in native code
TO_UNWIND = 0.5  # seconds more that it has to end


class Stopped(BaseException):
    """A signal that ends the command; raised in the main thread."""

    def __init__(self, number: int) -> None:
        super().__init__(WORDS[number])
        self.number = number


class _State:
    watching = False
    noticed = False
    said = False
    done = False


_state = _State()


def watch() -> None:
    """Have the signals end this process, those that it does not ignore. Does nothing outside the main thread."""
    numbers = [n for n in WORDS if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    except ValueError:  # not the main thread
        os.close(reading)
        os.close(writing)
        return
    for number in numbers:
        signal.signal(number, _notice)
    _state.watching = True
    with contextlib.suppress(RuntimeError):  # no thread is to be had: handlers still work between bytecodes
        _thread.start_new_thread(_wait, (reading,))


def is_watching() -> bool:
    """Whether this process is a command line of its own, whose signals are ours."""
    return _state.watching


def finish() -> None:
    """The command is done and its output written: a signal from now on ends the process at once."""
    _state.done = True


def say(number: int) -> None:
    """Write what ends the command to stderr, once."""
    if not _state.said:
        _state.said = True
        with contextlib.suppress(OSError):
            os.write(2, f"{WORDS[number]}\n".encode())


def exit_code(number: int) -> int:
    """As a shell reports a command that a signal ended."""
    return 128 + number


def _notice(number: int, frame: FrameType | None) -> None:
    """Python's handler: unwind from wherever the main thread is, once."""
    if _state.done:
        _end(number)
    if not _state.noticed:
        _state.noticed = True
        raise Stopped(number)


def _wait(reading: int) -> None:
    """The thread: for the first signal, wait for the main thread, then end the process."""
    while True:
        found = [n for n in os.read(reading, 64) if n in WORDS]
        if found:
            break
    end = time.monotonic() + TO_NOTICE
    while not _state.noticed and time.monotonic() < end:
        time.sleep(0.005)
    if _state.noticed:
        time.sleep(TO_UNWIND)
    _end(found[0])


def _end(number: int) -> None:
    say(number)
    remove_temporaries()
    os._exit(exit_code(number))
