"""Functions and methods of schedule scripts other than the primitives. Each takes its values and the budget."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from mlcc.arith.index_map import AXIS_SEPARATOR
from mlcc.errors import did_you_mean
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import NAMES
from mlcc.passes.schedule.handles import ExprRV
from mlcc.passes.schedule.index_maps import MapWithInverse
from mlcc.passes.schedule.mls.operators import compare, elements, equal, truth
from mlcc.passes.schedule.mls.values import (
    Budget,
    Builtin,
    Method,
    Module,
    ScriptCallable,
    ScriptError,
    describe,
    is_key,
    is_number,
    length,
)  # fmt: skip

Values = Callable[..., Any]


def invoke(name: str, fn: Values, first: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call `fn(first, *args, **kwargs)`. Raises Wrong E0605 for arguments that do not fit."""
    try:
        inspect.signature(fn).bind(first, *args, **kwargs)
    except TypeError as exc:
        raise ScriptError("E0605", f"`{name}`: {exc}") from None
    return fn(first, *args, **kwargs)


# ---------------------------------------------------------------- functions


def _range(budget: Budget, *bounds: Any) -> range:
    for bound in bounds:
        _integer("range", bound)
    if not 1 <= len(bounds) <= 3:
        raise ScriptError("E0605", "`range` takes one to three integers")
    if len(bounds) == 3 and bounds[2] == 0:
        raise ScriptError("E0606", "the step of a range cannot be 0")
    return range(*bounds)


def _integer(name: str, value: Any) -> int:
    if isinstance(value, ExprRV):
        raise ScriptError("E0606", f"`{name}` needs a known integer", "`sch.get(v)` is the integer that was chosen")
    if not isinstance(value, int):
        raise ScriptError("E0606", f"`{name}` needs an integer, not {describe(value)}")
    return value


def _len(budget: Budget, value: Any) -> int:
    if not isinstance(value, (str, list, tuple, dict, range)):
        raise ScriptError("E0606", f"{describe(value)} has no length")
    return length(value)


def _extreme(op: str) -> Values:
    def pick(budget: Budget, *values: Any) -> Any:
        items = elements(values[0], budget) if len(values) == 1 else list(values)
        if not items:
            raise ScriptError("E0606", "the minimum or maximum of an empty list does not exist")
        best = items[0]
        for value in items[1:]:
            if truth(compare(op, value, best, budget)):
                best = value
        return best

    return pick


def _abs(budget: Budget, value: Any) -> Any:
    if not is_number(value):
        raise ScriptError("E0606", f"`abs` needs a number, not {describe(value)}")
    return abs(value)


def _list(budget: Budget, values: Any = ()) -> list[Any]:
    return elements(values, budget)


def _tuple(budget: Budget, values: Any = ()) -> tuple[Any, ...]:
    return tuple(elements(values, budget))


def _dict(budget: Budget, **values: Any) -> dict[str, Any]:
    budget.items(len(values))
    return values


def _int(budget: Budget, value: Any = 0) -> int:
    if isinstance(value, ExprRV):
        raise ScriptError("E0606", "a sampled value is symbolic here", "`sch.get(v)` is the integer that was chosen")
    if not isinstance(value, (int, float, str)) or (isinstance(value, str) and len(value) > 400):
        raise ScriptError("E0606", f"`int` needs a number or a string of digits, not {describe(value)}")
    try:
        return budget.number(int(value))  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as exc:
        raise ScriptError("E0606", f"`int`: {exc}") from None


def _float(budget: Budget, value: Any = 0.0) -> float:
    if not isinstance(value, (int, float, str)):
        raise ScriptError("E0606", f"`float` needs a number or a string, not {describe(value)}")
    try:
        return float(value)
    except (ValueError, OverflowError) as exc:
        raise ScriptError("E0606", f"`float`: {str(exc)[:80]}") from None


def _str(budget: Budget, value: Any = "") -> str:
    if not (is_number(value) or isinstance(value, str) or value is None):
        raise ScriptError("E0606", f"`str` needs a number or a string, not {describe(value)}")
    text = str(value)
    budget.items(len(text))
    return text


def _bool(budget: Budget, value: Any = False) -> bool:
    return truth(value)


def _enumerate(budget: Budget, values: Any, start: Any = 0) -> list[Any]:
    return list(enumerate(elements(values, budget), _integer("enumerate", start)))


def _zip(budget: Budget, *values: Any) -> list[Any]:
    sizes = [_len(budget, value) for value in values]
    least = min(sizes, default=0)
    cut = [value[:least] if isinstance(value, range) else value for value in values]
    return list(zip(*(elements(value, budget) for value in cut), strict=False))


def _reversed(budget: Budget, values: Any) -> list[Any]:
    return elements(values, budget)[::-1]


def _sorted(budget: Budget, values: Any, reverse: Any = False) -> list[Any]:
    def order(a: Any, b: Any) -> int:
        return -1 if truth(compare("<", a, b, budget)) else int(truth(compare("<", b, a, budget)))

    return sorted(elements(values, budget), key=cmp_to_key(order), reverse=truth(reverse))


def _sum(budget: Budget, values: Any, start: Any = 0) -> Any:
    from mlcc.passes.schedule.mls.operators import binary

    total = start
    for value in elements(values, budget):
        total = binary("+", total, value, budget)
    return total


def _all(budget: Budget, values: Any) -> bool:
    return all(truth(v) for v in elements(values, budget))


def _any(budget: Budget, values: Any) -> bool:
    return any(truth(v) for v in elements(values, budget))


FUNCTIONS: dict[str, Values] = {
    "range": _range, "len": _len, "min": _extreme("<"), "max": _extreme(">"), "abs": _abs, "list": _list,
    "tuple": _tuple, "dict": _dict, "int": _int, "float": _float, "str": _str, "bool": _bool,
    "enumerate": _enumerate, "zip": _zip, "reversed": _reversed, "sorted": _sorted, "sum": _sum, "all": _all,
    "any": _any,
}  # fmt: skip


# ---------------------------------------------------------------- methods of lists, dicts and strings


def _append(budget: Budget, values: list[Any], item: Any) -> None:
    budget.items(len(values) + 1 if len(values) >= 99_999 else 1)
    values.append(item)


def _extend(budget: Budget, values: list[Any], more: Any) -> None:
    added = elements(more, budget)
    budget.items(len(values) + len(added))
    values.extend(added)


def _insert(budget: Budget, values: list[Any], at: Any, item: Any) -> None:
    budget.items(len(values) + 1)
    at = _integer("insert", at)
    values.insert(max(-len(values), min(at, len(values))), item)


def _pop(budget: Budget, values: list[Any], at: Any = -1) -> Any:
    at = _integer("pop", at)
    if not -len(values) <= at < len(values):
        raise ScriptError("E0606", f"index {at} is out of range for a list of {len(values)}")
    budget.spend(1 if at == -1 else len(values))
    return values.pop(at)


def _index(budget: Budget, values: Any, item: Any) -> int:
    for at, value in enumerate(values):
        if equal(value, item, budget):
            return at
    raise ScriptError("E0606", f"{describe(item)} is not in {describe(values)}")


def _count(budget: Budget, values: Any, item: Any) -> int:
    return sum(equal(value, item, budget) for value in values)


def _reverse(budget: Budget, values: list[Any]) -> None:
    budget.spend(len(values))
    values.reverse()


def _copy(budget: Budget, values: Any) -> Any:
    budget.items(len(values))
    return values.copy()


def _get(budget: Budget, values: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return values.get(key, default) if is_key(key) else default


def _keys(budget: Budget, values: dict[Any, Any]) -> list[Any]:
    return elements(values, budget)


def _values(budget: Budget, values: dict[Any, Any]) -> list[Any]:
    budget.items(len(values))
    return list(values.values())


def _pairs(budget: Budget, values: dict[Any, Any]) -> list[Any]:
    budget.items(2 * len(values))
    return list(values.items())


def _startswith(budget: Budget, text: str, start: Any) -> bool:
    return text.startswith(_text("startswith", start))


def _endswith(budget: Budget, text: str, end: Any) -> bool:
    return text.endswith(_text("endswith", end))


def _join(budget: Budget, text: str, parts: Any) -> str:
    texts = [_text("join", p) for p in elements(parts, budget)]
    budget.items(sum(map(len, texts)) + len(text) * max(0, len(texts) - 1))
    return text.join(texts)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ScriptError("E0606", f"`{name}` needs a string, not {describe(value)}")
    return value


METHODS: dict[type, dict[str, Values]] = {
    list: {
        "append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "index": _index, "count": _count,
        "reverse": _reverse, "copy": _copy,
    },
    tuple: {"index": _index, "count": _count},
    dict: {"get": _get, "keys": _keys, "values": _values, "items": _pairs, "copy": _copy},
    str: {"startswith": _startswith, "endswith": _endswith, "join": _join},
}  # fmt: skip


# ---------------------------------------------------------------- names with dots: T.int64, tvm.tir.IndexMap


_EXPRESSIONS: dict[str, tuple[Callable[..., tir.Expr], int]] = {
    "floordiv": (calls.floordiv, 2), "floormod": (calls.floormod, 2), "truncdiv": (construct.div, 2),
    "truncmod": (construct.truncmod, 2), "min": (construct.minimum, 2), "max": (construct.maximum, 2),
    "if_then_else": (calls.if_then_else, 3), "Select": (calls.select, 3), "ceildiv": (calls.ceildiv, 2),
    "bitwise_and": (calls.bitwise_and, 2), "bitwise_or": (calls.bitwise_or, 2), "bitwise_xor": (calls.bitwise_xor, 2),
    "shift_left": (calls.shift_left, 2), "shift_right": (calls.shift_right, 2), "abs": (calls.absolute, 1),
    "And": (construct.logical_and, 2), "Or": (construct.logical_or, 2), "Not": (construct.logical_not, 1),
}  # fmt: skip


def dotted(owner: Module, name: str) -> Any:
    """Return `owner.name`. Raises Wrong."""
    path = f"{owner.path}.{name}"
    if path in SCHEDULES or path == "IPython.display" or path in DISPLAYS:
        return Module(path)
    if name in ("tir", "tirx", "s_tir", "script", "schedule", "IndexMap") or owner.path == "tvm.script":
        return Module(path)
    if name == "from_func" and owner.path.endswith(".IndexMap"):
        return Builtin("IndexMap.from_func", _from_func)
    if name == "AXIS_SEPARATOR":
        return AXIS_SEPARATOR
    if name in NAMES or name in _EXPRESSIONS or name == "Cast":
        return Method(owner, name)
    help = did_you_mean(name, [*NAMES, *_EXPRESSIONS])
    if name in ("TensorIntrin", "register"):
        help = 'register_tensor_intrin("name", file="intrinsic.mlc") registers one from a file'
    raise ScriptError("E0601", f"`{path}` is not part of the script language", help)


# what makes a schedule in programs, and what shows a text in notebooks
_HOMES = ("mlcc", "tvm", "tvm.tir", "tvm.s_tir", "tvm.tir.schedule", "tvm.s_tir.schedule")
SCHEDULES = tuple(f"{home}.Schedule" for home in _HOMES)
DISPLAYS = tuple(f"IPython.display.{name}" for name in ("Code", "HTML", "Markdown", "Pretty", "display"))


def _from_func(budget: Budget, mapping_function: Any, inverse_index_map: Any = None) -> MapWithInverse:
    for value in (mapping_function, inverse_index_map):
        if value is not None and not isinstance(value, ScriptCallable):
            raise ScriptError("E0606", f"`IndexMap.from_func` takes functions of indices, not {describe(value)}")
    return MapWithInverse(mapping_function, inverse_index_map)


def make(method: Method, args: list[Any], budget: Budget) -> Any:
    """Return `T.int64(3)`, `T.floordiv(i, 4)` and the like, for index maps and annotation values. Raises Wrong."""
    name = method.name
    args = [value.expr if isinstance(value, ExprRV) else value for value in args]
    for value in args:
        if not (is_number(value) or isinstance(value, (tir.Expr, str))):
            raise ScriptError("E0606", f"`T.{name}` does not apply to {describe(value)}")
    try:
        if name == "Cast" and len(args) == 2 and isinstance(args[0], str) and not isinstance(args[1], str):
            return budget.symbolic(construct.cast(args[0], args[1]), args[1])
        if name in NAMES and len(args) == 1:
            value = args[0]
            if isinstance(value, tir.Expr):
                return budget.symbolic(construct.cast(name, value), value)
            return construct.const(float(value) if isinstance(value, str) else value, name)
        fn, count = _EXPRESSIONS.get(name, (None, -1))
        if fn is None or len(args) != count or any(isinstance(a, str) for a in args):
            takes = "a dtype and a value" if name == "Cast" else "one value" if fn is None else f"{count} values"
            raise ScriptError("E0605", f"`T.{name}` takes {takes}")
        return budget.symbolic(fn(*args), *args)
    except (ValueError, ArithmeticError) as exc:
        raise ScriptError("E0606", f"`T.{name}`: {exc}") from None


def builtins(more: dict[str, Values]) -> dict[str, Any]:
    """Return the predefined names of a script, other than `sch`."""
    known: dict[str, Any] = {name: Builtin(name, fn) for name, fn in {**FUNCTIONS, **more}.items()}
    return known | {name: Module(path) for name, path in _MODULES.items()}


_MODULES = {
    "tvm": "tvm", "tir": "tvm.tir", "T": "T", "IndexMap": "tvm.tir.IndexMap", "mlcc": "mlcc", "IPython": "IPython",
}  # fmt: skip
