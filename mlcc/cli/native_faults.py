"""Report faults in native code in one line: the signal, the kernel, its source location, and how to debug it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli import signals

if TYPE_CHECKING:
    from mlcc.runtime.faults import Fault

_KERNEL = re.compile(r"(?:parallel\.)?(?:kernel|grid)\.(.+?)(?:\.\d+)*(?:\.piece)?")


def report_faults(loaded: Mapping[str, Any], func: str, emulated: bool = False) -> None:
    """Install a handler by which a fault in the native code of these files ends the command with a one-line message.

    `func` is the function to be called. Does nothing unless mlcc is the process's own command line.
    """
    if not signals.is_watching():
        return
    from mlcc.runtime import faults

    context = click.get_current_context(silent=True)
    settings = context.find_root().obj if context is not None else None

    def report(fault: Fault) -> None:
        from mlcc.cli.main import report as write
        from mlcc.errors import MlccError, error

        options = settings or {}
        try:
            problem = MlccError(error("E0874", message(fault, loaded, emulated)))
            write(problem, options.get("diagnostics", "text"), options.get("color", "auto"))
        finally:
            signals.end_process(signals.exit_code(fault.number))

    outside = f"a fault outside of compiled code, possibly because `{func}`{_line(func, loaded)} corrupted memory"
    faults.install_handler(report, f"error[E0874]: {outside}; {_advice(loaded, emulated)}\n")


def message(fault: Fault, loaded: Mapping[str, Any], emulated: bool) -> str:
    """Return the text of a fault: its signal, its place, the reason and advice."""
    return f"{fault.name} in {place(fault.symbols, loaded)}: {_reason(fault)}; {_advice(loaded, emulated)}"


def place(symbols: Iterable[str], loaded: Mapping[str, Any]) -> str:
    """Return the kernel or function of the first symbol that names one, with its line if the source is available."""
    for symbol in symbols:
        match = _KERNEL.fullmatch(symbol)
        if match is not None:
            return f"kernel `{match[1]}`{_line(match[1], loaded)}"
        if symbol.startswith("mlcc.native."):
            return f"native kernel `{symbol.removeprefix('mlcc.native.')}`"
        for path, exe in loaded.items():
            for name in getattr(exe, "functions", {}):
                if symbol.startswith(f"{exe[name].spec.symbol}_"):
                    return f"`{name}`{_line(name, {path: exe})}"
        if not symbol.startswith("mlcc_"):  # the prefix of internal helpers
            return f"kernel `{symbol}`{_line(re.sub(r'_kernel[0-9_]*$', '', symbol), loaded)}"
    return f"native code of {' or '.join(loaded)}"


def _line(name: str, loaded: Mapping[str, Any]) -> str:
    """` (FILE:LINE)` of a function's definition in one of the texts."""
    for path in loaded:
        if path.endswith(".mlc"):
            try:
                with open(path, encoding="utf-8") as file:
                    for number, line in enumerate(file, 1):
                        if re.match(rf"\s*def\s+{re.escape(name)}\b", line):
                            return f" ({path}:{number})"
            except (OSError, UnicodeDecodeError):
                continue
    return ""


def _reason(fault: Fault) -> str:
    if fault.in_stack:
        return "its stack overflowed"
    if fault.address is not None:
        return f"invalid access to memory at {fault.address:#x}"
    reasons = {
        signal.SIGFPE: "an arithmetic exception", signal.SIGILL: "an instruction that this CPU does not support",
        signal.SIGTRAP: "it reached an unreachable instruction", signal.SIGABRT: "it aborted (memory may be corrupted)",
    }  # fmt: skip
    return reasons.get(signal.Signals(fault.number), "invalid memory access")


def _advice(loaded: Mapping[str, Any], emulated: bool) -> str:
    if emulated:
        return "run without --no-check to find the access"
    texts = [path for path in loaded if path.endswith(".mlc")]
    return f"run `mlcc run --sanitize {texts[0] if texts else 'FILE.mlc'}` to find the access"
