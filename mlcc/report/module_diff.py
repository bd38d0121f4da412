"""The differences between two modules, function by function, by structural equality."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mlcc.grammar.printer.printer import function_lines
from mlcc.grammar.printer.writer import Style
from mlcc.ir.equal import StructuralDifference, assert_structural_equal, correspondence
from mlcc.ir.module import Func, IRModule

MODULE = "module"  # the name under which attributes and global infos differ


@dataclass(frozen=True)
class Difference:
    """A function that two modules do not share.

    `kind`: "only left", "only right" or "changed". For a changed function, `path` leads from it to the first
    difference, `reason` says what differs, and `lines` are a unified diff of both texts, in which variables and
    buffers of the right function are called as the left one calls those for which they stand.
    """

    name: str
    kind: str
    path: str = ""
    reason: str = ""
    lines: tuple[str, ...] = ()


def compare_modules(left: IRModule, right: IRModule, context: int = 3) -> list[Difference]:
    """Return the differences in the order of `left`, functions of `right` alone last; none if the modules are equal.

    `context`: how many equal lines a diff shows around changed ones.
    """
    found = []
    try:
        assert_structural_equal(_without_functions(left), _without_functions(right))
    except StructuralDifference as exc:
        found.append(Difference(MODULE, "changed", exc.path.removeprefix("root"), exc.reason))
    for name, func in left.functions.items():
        other = right.functions.get(name)
        if other is None:
            found.append(Difference(name, "only left"))
            continue
        try:
            assert_structural_equal(func, other)
        except StructuralDifference as exc:
            path = exc.path.removeprefix("root")
            found.append(Difference(name, "changed", path, exc.reason, _diff(name, func, other, context)))
    found += [Difference(name, "only right") for name in right.functions if name not in left.functions]
    return found


def _without_functions(module: IRModule) -> IRModule:
    return IRModule({}, module.attrs, module.name, module.global_infos)


def _diff(name: str, left: Func, right: Func, context: int) -> tuple[str, ...]:
    hints = {there: here.name for there, here in correspondence(left, right).items()}
    old, new = function_lines(name, left), function_lines(name, right, Style(hints=hints))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=context))
    return tuple(lines[2:])  # without the names of files
