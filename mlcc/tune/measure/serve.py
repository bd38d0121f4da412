"""The main loop of a builder process: answers requests until its client ends."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from typing import Any

from mlcc.tune.measure.pipes import receive, send
from mlcc.tune.measure.serialize import deserialize


def serve(reading: int, writing: int, answer: Callable[[Any], Any]) -> None:
    """Answer requests until the pipe ends, then exit at once, even during a request.

    SIGPROF ends the process if a request takes more than its `seconds` of CPU time."""
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(reading, requests.put), daemon=True).start()
    while True:
        request = deserialize(requests.get())
        signal.setitimer(signal.ITIMER_PROF, request.seconds)
        response = answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(writing, pickle.dumps(response))


def _read_requests(reading: int, take: Callable[[bytes], None]) -> None:
    while (message := receive(reading)) is not None:
        take(message)
    os._exit(0)
