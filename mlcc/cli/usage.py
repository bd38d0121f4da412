"""Wrong usage of a command as a diagnostic (E0090), with a way out for the usual slips."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import click

from mlcc.errors import Diagnostic, error

INSTEAD = {  # words for commands that have another name
    "build": "compile", "cc": "compile", "convert": "import", "exec": "run", "format": "fmt", "lint": "check",
    "optimise": "passes", "optimize": "passes", "opt": "passes", "parse": "check", "print": "passes",
    "profile": "bench", "show": "inspect", "time": "bench", "verify": "check",
}  # fmt: skip


def as_diagnostic(exc: click.ClickException, argv: Sequence[str]) -> Diagnostic:
    """The finding for a command line that click refuses."""
    message = exc.format_message().rstrip(".")
    return error("E0090", message[:1].lower() + message[1:], help=usage_hint(exc, argv))


def command_hint(name: str, commands: Sequence[str]) -> str:
    """The help for a word that is no command."""
    from mlcc.errors import did_you_mean

    if name in INSTEAD:
        return f"it is `mlcc {INSTEAD[name]}`"
    if os.path.exists(name):
        return f"a command comes first, such as `mlcc check {name}`"
    return did_you_mean(name, commands) or "see `mlcc --help`"


def usage_hint(exc: click.ClickException, argv: Sequence[str]) -> str | None:
    """The way out for a slip that is known; None for others, where click's message has it."""
    message = exc.format_message()
    if "unexpected extra argument" in message.lower():
        extra = message.rpartition("(")[2].rstrip(").").split()
        return _extra(extra, argv)
    if "'-O'" in message:
        return "levels are -O0 to -O3; --fast-math lets floating-point arithmetic be regrouped"
    if "integer range" in message:
        return "a whole number is expected"
    return None


def _extra(extra: Sequence[str], argv: Sequence[str]) -> str | None:
    """The help for words that no argument takes."""
    from mlcc.array_files import SUFFIXES
    from mlcc.machine.target import KINDS
    from mlcc.passes import ALIASES, PASSES

    for option, names in (("-p", (*PASSES, *ALIASES)), ("-t", tuple(KINDS))):
        for word in extra:
            name = next((n for n in names if word.startswith(n) and "=" in word and "{" not in word), None)
            if name is not None:
                return f"a shell takes braces with a comma apart: quote them, {option} '{name}{{... ...}}'"
    long = next((w for w in argv if re.fullmatch(r"-[a-z]{3,}", w)), None)
    if long is not None:
        return f"a long option has two dashes: -{long}"
    arrays = next((w for w in extra if w.endswith((*SUFFIXES, ".npy"))), None)
    if arrays is not None:
        return f"arrays are given as --in {arrays}"
    if extra and os.path.exists(extra[0]):
        return "this command takes one file: call it once for each"
    return None
