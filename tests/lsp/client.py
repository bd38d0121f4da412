"""A client of the language server, written against the protocol's specification: JSON-RPC over a process's pipes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 60  # seconds

MODULE = """\
# PASSES: fuse,lower-to-tir
@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        C = T.alloc_buffer((4, 8), "float32")
        for i, j in T.grid(4, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.exp(A[vi, vj])
        for i, j in T.grid(4, 8):
            with T.block("B"):
                wi, wj = T.axis.remap("SS", [i, j])
                B[wi, wj] = C[wi, wj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.nn.relu(x)
            total = R.sum(y, axis=[1], keepdims=True)
            R.output(total)
        return total
"""


def _default_signals() -> None:
    """Let signals have their effect, also where the tests run in the background, which ignores SIGINT."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Client:
    """Starts `mlcc lsp` and talks to it as an editor does."""

    def __init__(self, encodings: list[str] | None = None) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlcc", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=env, preexec_fn=_default_signals,  # noqa: PLW1509
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._other: list[dict[str, Any]] = []
        self._number = 0
        self._versions: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        general = {"positionEncodings": encodings} if encodings else {}
        related = {"textDocument": {"publishDiagnostics": {"relatedInformation": True}}}
        capabilities = {"general": general, **related}
        answer = self.request("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})
        self.capabilities: dict[str, Any] = answer["capabilities"]
        self.notify("initialized", {})

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()).strip():
                name, _, value = line.decode("ascii").partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            if not line:
                return
            self._answers.put(json.loads(stream.read(length)))

    def _send(self, message: dict[str, Any]) -> None:
        stream = self._process.stdin
        assert stream is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stream.flush()

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: Any) -> Any:
        """Send a request and return its result. What comes in between is kept for `wait`."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        while True:
            answer = self._answers.get(timeout=TIMEOUT)
            if answer.get("id") == number and "method" not in answer:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._other.append(answer)

    def wait(self, method: str) -> Any:
        """Return the parameters of the next notification of a kind."""
        while True:
            for at, message in enumerate(self._other):
                if message.get("method") == method:
                    del self._other[at]
                    return message["params"]
            self._other.append(self._answers.get(timeout=TIMEOUT))

    # ------------------------------------------------------------ texts

    def open(self, text: str, uri: str = "file:///tmp/kernel.mlc", language: str = "mlc") -> str:
        self._versions[uri] = 1
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    def change(self, uri: str, *changes: dict[str, Any]) -> None:
        self._versions[uri] += 1
        document = {"uri": uri, "version": self._versions[uri]}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def diagnostics(self, uri: str) -> list[dict[str, Any]]:
        """The findings of the current version of a text."""
        while True:
            params = self.wait("textDocument/publishDiagnostics")
            if params["uri"] == uri and params.get("version") == self._versions[uri]:
                found: list[dict[str, Any]] = params["diagnostics"]
                return found

    def at(self, uri: str, text: str, word: str, shift: int = 0, nth: int = 0) -> dict[str, Any]:
        """The parameters of a request about the place of a word."""
        offset = -1
        for _ in range(nth + 1):
            offset = text.index(word, offset + 1)
        offset += shift
        line = text.count("\n", 0, offset)
        column = len(text[text.rfind("\n", 0, offset) + 1 : offset].encode("utf-16-le")) // 2
        return {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}

    def formatting(self, uri: str) -> Any:
        """The edits that format a text."""
        options = {"tabSize": 4, "insertSpaces": True}
        return self.request("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})

    def close(self) -> int:
        """Shut the server down as the protocol wants it, and return its exit code."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.ended()

    def interrupt(self, number: int | None) -> int:
        """Send the server a signal, or with None the end of its input, and return its exit code."""
        if number is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        else:
            self._process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of the server and return its exit code."""
        try:
            code = self._process.wait(TIMEOUT)
        finally:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert stream is not None
            self._process.stdin.close()  # type: ignore[union-attr]
            self._reader.join(TIMEOUT)
            self._process.stdout.close()  # type: ignore[union-attr]
            self._process.stderr.close()  # type: ignore[union-attr]
        return code
