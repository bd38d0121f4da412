"""Worker processes: started lazily, given one request at a time, and restarted after failures."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading

from mlcc.tune.measure.pipes import receive, send

_CODE = "import sys; sys.path[:] = {path!r}; from {module} import main; main({reading}, {writing})"
# threads of libraries do not survive fork and disturb measurements
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class WorkerDied(Exception):
    """Raised if a worker ended instead of answering; `code` is its exit code, None if it was killed by the timeout."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the process ended with {code}" if code is not None else "the process did not answer")
        self.code = code

    @property
    def is_timeout(self) -> bool:
        """True if the process ran out of time: killed by us, or by its limit of CPU time."""
        return self.code is None or -self.code in (signal.SIGPROF, signal.SIGXCPU)


class Worker:
    """A worker process that runs `main(reading, writing)` of a Python module, in its own session, without output.

    It ends when this process does. It is replaced after `uses` requests, which frees the memory that it has taken.
    """

    def __init__(self, module: str, uses: int = 2000) -> None:
        self._module = module
        self._uses = uses
        self._left = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._reading = self._writing = -1
        self._lock = threading.RLock()
        self.started = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, if there is none."""
        with self._lock:
            if self._process is not None and (self._left <= 0 or self._process.poll() is not None):
                self.close()
            if self._process is None:
                self._start()

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Send a message and return the answer. Raises WorkerDied without an answer within `seconds` of wall time."""
        with self._lock:
            self.start()
            self._left -= 1
            assert self._process is not None
            try:
                send(self._writing, message)
                answer = receive(self._reading) if self._answers_within(seconds) else None
            except OSError:
                answer = None
            except BaseException:  # interrupted: a late answer would be taken for that to the next message
                self.close()
                raise
            if answer is not None:
                return answer
            try:
                code = self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                code = None
            self.close()
            raise WorkerDied(code)

    def close(self) -> None:
        """End the process and its children."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            for handle in (self._reading, self._writing):
                os.close(handle)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _start(self) -> None:
        theirs_reading, self._writing = os.pipe()
        self._reading, theirs_writing = os.pipe()
        code = _CODE.format(path=sys.path, module=self._module, reading=theirs_reading, writing=theirs_writing)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], pass_fds=(theirs_reading, theirs_writing), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
            )  # fmt: skip
        except BaseException:
            os.close(self._reading)
            os.close(self._writing)
            raise
        finally:
            os.close(theirs_reading)
            os.close(theirs_writing)
        self._left = self._uses
        self.started += 1
