"""The exported functions of an artifact, and the codes and texts of its errors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlcc.errors import CompileError, Diagnostic, Label, error
from mlcc.ir import relax, tir
from mlcc.ir.checked import INDEX
from mlcc.runtime.abi import DETAIL_SHIFT, KIND_BY_NAME, KINDS, PLACEHOLDER_PREFIX
from mlcc.targets.plan.context import AnyPlanning

SUFFIXES = ("", "_ws", "_ws_size", "_shape", "_error", "_query", "_run")
MODULE_WIDE = ("time_run", "set_packed", "set_packed_slot", "set_parallel_for", "set_num_threads", "constants")

# what a check of sanitized code finds, in place of the name of a Python exception
OUTSIDE, UNWRITTEN, RACE = "outside", "unwritten", "race"
CHECKS = (INDEX, OUTSIDE, UNWRITTEN, RACE)
_KIND_CODES = {kind: KIND_BY_NAME[kind.upper()].code for kind in CHECKS}
_ASSERTION = KIND_BY_NAME["ASSERT"].code


def numbered(errors: dict[tuple[str, str], int], kind: str, message: str) -> int:
    """The code of a failed check, from the table or added to it; equal messages share one."""
    return errors.setdefault((kind, message), _KIND_CODES.get(kind, _ASSERTION) | len(errors) + 1 << DETAIL_SHIFT)


def c_identifier(name: str) -> str:
    """`name` with every character that C does not take in names made `_`."""
    identifier = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{identifier}" if not identifier or identifier[0].isdigit() else identifier


def symbol_of(name: str, suffix: str = "") -> str:
    """The exported symbol of a function, under the prefix that stands for the artifact's own."""
    return f"{PLACEHOLDER_PREFIX}_{c_identifier(name)}{suffix}"


def public_functions(shared: AnyPlanning) -> dict[str, relax.Function | tir.PrimFunc]:
    """The functions that the artifact exports, in order. Raises CompileError where two would have one C symbol."""
    functions = {name: f for name, f in shared.module.functions.items() if not f.is_private and not _is_composite(f)}
    taken: dict[str, str] = {f"{PLACEHOLDER_PREFIX}_{word}": "" for word in MODULE_WIDE}
    wrong: list[Diagnostic] = []
    for name, func in functions.items():
        for suffix in SUFFIXES:
            symbol = symbol_of(name, suffix)
            other = taken.setdefault(symbol, name)
            if other != name:
                what = f"function `{other}`" if other else "the artifact itself"
                message = (
                    f"`{name}` and {what} would both be the C symbol `{symbol.replace(PLACEHOLDER_PREFIX, 'PREFIX')}`"
                )
                related = (Label(functions[other].span, "the other function"),) if other in functions else ()
                wrong.append(error("E0750", message, func.span, related=related, help="rename one, or make it private"))
                break
    if wrong:
        raise CompileError(wrong)
    return functions


def _is_composite(func: relax.Function | tir.PrimFunc) -> bool:
    """Functions made by fusion are called by others only."""
    return bool(func.attrs.get("Primitive")) or bool(func.attrs.get("Composite"))


def messages(shared: AnyPlanning) -> Iterable[tuple[int, str]]:
    """Every error code of the object with its text."""
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
