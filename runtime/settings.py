"""The environment variables that mlcc reads, and their valid values."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from mlcc.errors import Diagnostic, LoadError, error


class Variable(NamedTuple):
    """The valid values of an environment variable: a pattern for its lower-case text, and a description in words.

    `meaning` says what the variable does, for the reference.
    """

    pattern: str
    words: str
    meaning: str
    code: str = "E0015"


_SWITCH, _SWITCH_WORDS = r"0|1|off|on|no|yes|false|true", "0 or 1"
VARIABLES: Mapping[str, Variable] = {
    "MLCC_CACHE": Variable(_SWITCH, _SWITCH_WORDS, "0: compiled texts and kernels are neither kept nor looked up."),
    "MLCC_CACHE_DIR": Variable(r".*", "a folder", "Where the cache is (default: mlcc in the user's cache folder)."),
    "MLCC_CACHE_SIZE": Variable(
        r"\d{1,9}", "a number of MiB", "The bound of the cache (default 1024); the least recently used go first."
    ),
    "MLCC_CPU": Variable(
        r"[\w.+-]*", "a CPU that kernels have versions for, such as x86-64-v3",
        "The version of kernels to run in place of the best one for this CPU, to test each of them.",
    ),
    "MLCC_CUDA_DEVICE": Variable(r"\d{1,4}", "the number of a device", "The GPU to use (default 0)."),
    "MLCC_CUDA_DRIVER": Variable(
        r"bindings|pycuda", "`bindings` or `pycuda`",
        "The package that calls the CUDA driver (default: cuda-bindings, else pycuda).",
    ),
    "MLCC_JOBS": Variable(
        r"\s*0*[1-9]\d{0,3}\s*", "a number of threads that compile, from 1 on",
        "The threads that LLVM compiles on (default: the cores of the process). The output does not depend on it.",
    ),
    "MLCC_NUM_THREADS": Variable(
        r"\s*0*[1-9]\d*\s*", "a number of threads, an integer from 1 on",
        "The threads that compiled code runs on (default: the CPUs that the process may use).", "E0817",
    ),
    "MLCC_REDUCE": Variable(
        r"\d{1,6}|off|no|false|on|yes|true", "a number of seconds, 0 for no reduction",
        "The seconds for which a command that fails looks for a small program that fails likewise (default 10; 0: it "
        "does not).",
    ),
    "MLCC_TRACEBACK": Variable(
        _SWITCH, _SWITCH_WORDS, "1: an internal error, or one in a file that was loaded, shows Python's traceback."
    ),
}  # fmt: skip


def problems(environment: Mapping[str, str], names: Collection[str] = VARIABLES) -> list[Diagnostic]:
    """One finding for each of the variables that says nonsense; one that is empty counts as not set."""
    diagnostics = []
    for name in names:
        text, variable = environment.get(name, ""), VARIABLES[name]
        sound = re.fullmatch(variable.pattern, text, re.IGNORECASE | re.DOTALL | re.ASCII) is not None
        if name == "MLCC_CACHE_DIR":
            sound = not os.path.lexists(text) or os.path.isdir(text)
        if text.strip() and not sound:
            message = f"{name} is `{shown(text)}`: it should be {variable.words}"
            diagnostics.append(error(variable.code, message, help=f"unset {name}, or correct it"))
    return diagnostics


def check(*names: str) -> None:
    """Raises LoadError for variables of this process that say nonsense; all of them where none are named."""
    diagnostics = problems(os.environ, names or VARIABLES)
    if diagnostics:
        raise LoadError(diagnostics)


def is_on(name: str) -> bool:
    """Return True if a switch is set to anything but no."""
    return os.environ.get(name, "").strip().lower() not in ("", "0", "off", "no", "false")


def is_off(name: str) -> bool:
    """Return True if a switch is set to no."""
    return os.environ.get(name, "").strip().lower() in ("0", "off", "no", "false")


def shown(text: str) -> str:
    """Return the value of a variable for messages: at most 40 characters, escaped if not printable."""
    cut = text if len(text) <= 40 else text[:40] + "..."
    return cut if cut.isprintable() else ascii(cut)
