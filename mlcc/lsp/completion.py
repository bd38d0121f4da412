"""What may be written at a place: members of `R`, `T` and `sch`, parameters of the call around it, names, dtypes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from mlcc.lsp.document import Definition, Document
from mlcc.reference.forms import FORMS

KEYWORDS = (
    "def", "class", "for", "while", "if", "elif", "else", "with", "return", "pass", "assert", "and", "or", "not", "in",
    "True", "False", "None",
)  # fmt: skip
_DIRECTIVE = re.compile(r"#\s*PASSES:")


@dataclass(frozen=True, slots=True)
class Item:
    """A completion. `topic` names the page about it, which is looked up when an editor asks for it."""

    label: str
    kind: str  # `operator`, `function`, `keyword`, `parameter`, `variable`, `dtype`, `module`, `pass`
    detail: str = ""
    topic: str = ""
    insert: str = ""


def complete(document: Document, offset: int) -> list[Item]:
    """Return what can stand at an offset, all that begins with what is written there among it."""
    comment = document.comment_at(offset)
    if comment is not None:
        return _passes() if _DIRECTIVE.match(comment[2]) and offset >= comment[0] + 9 else []
    if document.string_at(offset) is not None:
        return _dtypes()
    prefix = document.prefix_at(offset)
    before, dot, _ = prefix.rpartition(".")
    if dot:
        return _members(document, before, offset)
    return [*_parameters(document, offset), *_names(document, offset)]


def _passes() -> list[Item]:
    from mlcc.passes import ALIASES, PASSES

    return [Item(name, "pass", topic=name) for name in (*PASSES, *ALIASES, "O0", "O1", "O2", "O3", "lower")]


@functools.cache
def _dtypes() -> list[Item]:
    from mlcc.ir.dtypes import NAMES

    return [Item(name, "dtype") for name in NAMES]


def _members(document: Document, before: str, offset: int) -> list[Item]:
    """The names behind `before.`."""
    root, _, rest = before.partition(".")
    if document.is_script:
        return [Item(name, "function", topic=f"sch.{name}") for name in primitives()] if before == "sch" else []
    found = document.resolve(root, offset)
    if root == "cls" or (found is not None and found.kind == "class"):
        functions = [d for d in document.definitions if d.kind == "function"]
        return [] if rest else [Item(d.name, "function") for d in functions]
    names = language_names().get({"relax": "R", "tir": "T", "ir": "I"}.get(root, root), ())
    if found is not None or not names:
        return []
    lead = f"{rest}." if rest else ""
    items: dict[str, Item] = {}
    for name, kind in names:
        if name.startswith(lead):
            head, more, _ = name[len(lead) :].partition(".")
            whole = f"{root}.{lead}{head}"
            items.setdefault(head, Item(head, "module") if more else Item(head, kind, topic=whole))
    return list(items.values())


@functools.cache
def primitives() -> tuple[str, ...]:
    """The methods of the schedule in a script."""
    from mlcc.passes.schedule import registry
    from mlcc.passes.schedule.mls.run import METHODS

    return tuple(sorted({*registry.names(), *METHODS}))


@functools.cache
def language_names() -> dict[str, tuple[tuple[str, str], ...]]:
    """What stands behind `R.`, `T.` and `I.`, each with its kind."""
    from mlcc.ir.dtypes import NAMES
    from mlcc.ir.intrinsics import INTRINSICS
    from mlcc.ops.signature import EXPANDED, names

    found: dict[str, dict[str, str]] = {"R": {}, "T": {}, "I": {}}
    for name in FORMS:
        root, _, rest = name.partition(".")
        found[root][rest] = "keyword"
    found["R"] |= dict.fromkeys((*(n.removeprefix("relax.") for n in names()), *EXPANDED), "operator")
    found["T"] |= dict.fromkeys(INTRINSICS, "operator")
    found["T"] |= {name: "dtype" for name in NAMES if name not in found["T"]}
    return {root: tuple(members.items()) for root, members in found.items()}


def _parameters(document: Document, offset: int) -> list[Item]:
    """The parameters of the call around an offset that have no argument yet."""
    call = document.call_at(offset)
    if call is None:
        return []
    missing = parameters(call.callee)[max(call.argument - len(call.given), 0) :]
    return [Item(f"{p}=", "parameter", call.callee) for p in missing if p not in call.given]


def parameters(callee: str) -> list[str]:
    """The parameters of an operator or primitive that can be given by name, in their order."""
    root, _, rest = callee.partition(".")
    if root in ("R", "relax"):
        from mlcc.ops.signature import signature

        found = signature(rest)
        return [] if found is None else [p.name for p in found.params if p.kind != "rest"]
    if root == "sch":
        from mlcc.passes.schedule import registry

        known = rest in registry.names() or rest in registry.ALIASES
        return [p.name for p in registry.find(rest).signature.parameters.values()] if known else []
    return []


def _names(document: Document, offset: int) -> list[Item]:
    items = [Item(d.name, _kind(d), d.kind) for d in document.in_scope(offset)]
    if document.is_script:
        from mlcc.passes.schedule.mls.builtins import FUNCTIONS

        extra: Iterable[Item] = [Item("sch", "module"), *(Item(name, "function") for name in FUNCTIONS)]
    else:
        extra = [Item(name, "module") for name in ("R", "T", "I")] + [Item("range", "function")]
    return [*items, *extra, *(Item(word, "keyword") for word in KEYWORDS)]


def _kind(definition: Definition) -> str:
    return definition.kind if definition.kind in ("function", "class") else "variable"
