"""Options of an `Item` as typed fields of a dataclass: unknown names and wrong values are diagnostics with places."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.options.text import Item, Option, format_value


@dataclass(frozen=True, slots=True)
class Codes:
    """The diagnostic codes of one user of this module."""

    unknown: str
    value: str
    missing: str


def typed_fields(item: Item, cls: type, codes: Codes, what: str, only: Collection[str] | None = None) -> dict[str, Any]:
    """Convert the options of `item` to keyword arguments for `cls`. Raises CompileError listing all invalid options.

    Fields may be bool, int, float, str, `Literal`, `tuple[T, ...]`, `Mapping[str, T]` and any of these `| None`. `only`
    names the fields that are options, if not all are; `what` names the owner in messages, as in "pass".
    """
    hints = _hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init and (only is None or f.name in only)}
    wrong: list[Diagnostic] = []
    arguments: dict[str, Any] = {}
    for option in item.options:
        if option.name not in fields:
            wrong.append(_unknown(item, option, fields, codes, what))
            continue
        try:
            arguments[option.name] = convert(option, hints[option.name])
        except _Mismatch as exc:
            label = f"{exc} expected"
            wrong.append(error(codes.value, f"wrong value of option `{kebab(option.name)}`", option.span, label))
    for name, field in fields.items():
        given = any(o.name == name for o in item.options)
        if not given and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            message = f"{what} `{item.name}` needs the option `{kebab(name)}`"
            help = f"write `{item.name}{{{kebab(name)}=...}}`"
            wrong.append(error(codes.missing, message, item.span, help=help))
    if wrong:
        raise CompileError(wrong)
    return arguments


_hints = functools.cache(typing.get_type_hints)


def given_fields(value: Any) -> list[tuple[str, Any]]:
    """Return the options of a dataclass value that differ from their defaults, as (kebab-case name, value)."""
    pairs = []
    for field in dataclasses.fields(value):
        if not field.init:
            continue
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        current = getattr(value, field.name)
        if current != default:
            pairs.append((kebab(field.name), current))
    return pairs


def kebab(name: str) -> str:
    return name.replace("_", "-")


def is_kebab(name: str) -> bool:
    """Return True for lower-case words with dashes, which begin with a letter."""
    return re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) is not None


def describe_type(hint: Any) -> str:
    """Describe a type for messages and help texts."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(format_value(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(a) for a in args if a is not type(None))
    if origin is tuple:
        return f"a list of {_PLURALS.get(args[0], 'values')}"
    if _is_map(origin):
        return f"a map to {_PLURALS.get(args[1], 'values')}"
    return _NAMES.get(hint, "a value")


_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a word or string"}
_PLURALS = {bool: "true or false", int: "integers", float: "numbers", str: "strings"}


def _is_map(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


class _Mismatch(Exception):
    """A value of the wrong type; the message is the expected type."""


def convert(option: Option, hint: Any) -> Any:
    """Convert the value of an option to the type `hint`. Raises _Mismatch."""
    if hint is str and option.raw is not None:
        return option.raw  # a word that looks like a number or `true` is still a string here
    return _convert(option.value, hint, hint)


def _convert(value: Any, hint: Any, whole: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return tuple(value) if isinstance(value, list) else value
    if origin is typing.Literal:
        if value in args and type(value) is type(args[args.index(value)]):
            return value
    elif origin in (typing.Union, types.UnionType):
        for arm in args:
            try:
                return _convert(value, arm, whole)
            except _Mismatch:
                continue
    elif hint is type(None):
        if value is None:
            return None
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_convert(v, args[0], whole) for v in value)
        if not isinstance(value, Mapping):
            return (_convert(value, args[0], whole),)  # a single value is a list of one
    elif _is_map(origin):
        if isinstance(value, Mapping):
            return {k: _convert(v, args[1], whole) for k, v in value.items()}
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise _Mismatch(describe_type(whole))


def _unknown(item: Item, option: Option, fields: Mapping[str, Any], codes: Codes, what: str) -> Diagnostic:
    names = [kebab(n) for n in fields]
    listed = f"its options are {', '.join(f'`{n}`' for n in names)}" if names else "it has no options"
    message = f"{what} `{item.name}` has no option `{kebab(option.name)}`"
    help = did_you_mean(kebab(option.name), names) or listed
    return error(codes.unknown, message, option.name_span, help=help)
