"""The exported functions of an artifact, and its error codes with their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlcc.errors import CompileError, Diagnostic, Label, error
from mlcc.ir import relax, tir
from mlcc.ir.checked_index import INDEX_ERROR
from mlcc.runtime.abi import DETAIL_SHIFT, KIND_BY_NAME, KINDS, PLACEHOLDER_PREFIX
from mlcc.targets.plan.context import AnyPlanning

SUFFIXES = ("", "_ws", "_ws_size", "_shape", "_error", "_query", "_run")
MODULE_FUNCTIONS = (
    "time_run", "set_packed", "set_packed_slot", "set_parallel_for", "set_num_threads", "constants", "profile",
    "profile_log",
)  # fmt: skip

# kinds of failed checks in sanitized code, in place of the name of a Python exception
OUTSIDE, UNWRITTEN, RACE = "outside", "unwritten", "race"
CHECKS = (INDEX_ERROR, OUTSIDE, UNWRITTEN, RACE)
_KIND_CODES = {kind: KIND_BY_NAME[kind.upper()].code for kind in CHECKS}
_ASSERTION = KIND_BY_NAME["ASSERT"].code


def error_code_for(errors: dict[tuple[str, str], int], kind: str, message: str) -> int:
    """Return the code of a failed check, added to the table on first use; equal messages share one."""
    return errors.setdefault((kind, message), _KIND_CODES.get(kind, _ASSERTION) | len(errors) + 1 << DETAIL_SHIFT)


def c_identifier(name: str) -> str:
    """Replace every character that C does not allow in identifiers by `_`."""
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{identifier}" if not identifier or identifier[0].isdigit() else identifier


def symbol_of(name: str, suffix: str = "") -> str:
    """Return the exported symbol of a function, with a placeholder for the artifact's prefix."""
    return f"{PLACEHOLDER_PREFIX}_{c_identifier(name)}{suffix}"


def public_functions(shared: AnyPlanning) -> dict[str, relax.Function | tir.PrimFunc]:
    """Return the functions that the artifact exports. Raises CompileError E0750 for two with the same C symbol."""
    functions = {name: f for name, f in shared.module.functions.items() if is_exported(f)}
    taken: dict[str, str] = {f"{PLACEHOLDER_PREFIX}_{word}": "" for word in MODULE_FUNCTIONS}
    findings: list[Diagnostic] = []
    for name, func in functions.items():
        for suffix in SUFFIXES:
            symbol = symbol_of(name, suffix)
            owner = taken.setdefault(symbol, name)
            if owner != name:
                what = f"function `{owner}`" if owner else "the artifact itself"
                message = (
                    f"`{name}` and {what} would have the same C symbol `{symbol.replace(PLACEHOLDER_PREFIX, 'PREFIX')}`"
                )
                related = (Label(functions[owner].span, "the other function"),) if owner in functions else ()
                help = "rename one, or make it private"
                findings.append(error("E0750", message, func.span, related=related, help=help))
                break
    if findings:
        raise CompileError(findings)
    return functions


def is_exported(func: relax.Function | tir.PrimFunc) -> bool:
    """Return True for public functions, but for those made by fusion, which only other functions call."""
    return not func.is_private and not func.attrs.get("Primitive") and not func.attrs.get("Composite")


def error_messages(shared: AnyPlanning) -> Iterable[tuple[int, str]]:
    """Yield every error code of the object with its message."""
    for (_, text), code in shared.texts.items():
        yield code, text
    for (kind, text), code in shared.ctx.errors.items():
        plain = kind in ("AssertionError", "RuntimeError", *CHECKS) and text
        yield code, text if plain else f"{kind}: {text}".rstrip(": ")
    for index, spec in enumerate(shared.packed_specs()):
        for kind, verb in (("PACKED_UNSET", "is not set"), ("PACKED_FAILED", "failed")):
            yield KIND_BY_NAME[kind].code | index + 1 << DETAIL_SHIFT, f"packed function `{spec.name}` {verb}"
    for entry in KINDS:
        yield entry.code, entry.text
