"""Headless Chromium, driven by the DevTools protocol through a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip
_TIMEOUT_SECONDS = 60.0


class Page:
    """A tab of the browser. `problems`: errors of its console, exceptions, and requests of any network."""

    def __init__(self, requests: int, replies: int) -> None:
        self.problems: list[str] = []
        self._requests, self._replies = requests, replies
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._last:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return dict(reply["result"])
            self._note(reply)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while b"\0" not in self._buffer:
            if not select.select([self._replies], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("no answer of the browser")
            part = os.read(self._replies, 1 << 16)
            if not part:
                raise RuntimeError("the browser ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                detail = params["exceptionDetails"]
                self.problems.append(detail.get("exception", {}).get("description") or detail["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(str([arg.get("value") for arg in params["args"]]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("file:", "data:", "about:")):
                self.problems.append(f"asked for {params['request']['url']}")

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until the report is shown."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.wait("document.documentElement?.dataset.ready === 'yes' || document.querySelector('.error')")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"].get("exception", {}).get("description", str(reply)))
        return reply["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}")
            time.sleep(0.02)

    def go(self, fragment: str) -> None:
        """Go to a place of the report and wait for it to be shown."""
        self.evaluate(
            "new Promise((done) => { const shown = () => requestAnimationFrame(() => setTimeout(done)); "
            f"if (location.hash === {json.dumps(fragment)}) shown(); "
            "else { addEventListener('hashchange', shown, { once: true }); "
            f"location.hash = {json.dumps(fragment)}; }} }})"
        )

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}.get(
            key, 0
        )
        options = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **options, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **options)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme: str) -> None:
        """Ask for the light or the dark color scheme."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """Start the browser for as long as the block runs."""
    assert CHROMIUM
    to_child, requests = os.pipe()
    replies, from_child = os.pipe()

    # the child reads requests from descriptor 3 and writes replies to 4, whatever numbers the pipes have here
    shell = f'exec 3<&{to_child} 4>&{from_child}; exec "$0" "$@"'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["/bin/bash", "-c", shell, CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        try:
            yield Page(requests, replies)
        finally:
            os.close(requests)
            os.close(replies)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
