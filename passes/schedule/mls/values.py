"""The values of schedule scripts, their descriptions in messages, and the budget that limits what a script creates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import CompileError, Span, error
from mlcc.grammar.syntax import tree
from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, ExprRV, Handle, LoopRV

MAX_STEPS = 1_000_000  # evaluated nodes; what is made costs by its size
MAX_ITEMS = 100_000  # of one list, tuple or string
MAX_BITS = 1024  # of an integer
MAX_CALLS = 200  # of the script's functions inside each other
MAX_NESTING = 50  # of lists inside each other that a primitive is given
MAX_SYMBOLS = 500  # operands of one symbolic expression
CALL_COST = 100  # of one primitive, and one for each loop and block of the function
MAX_LOOPS = 200  # around each other


class ScriptError(Exception):
    """An error of evaluation; it gets its source location from the node that was being evaluated."""

    def __init__(self, code: str, message: str, help: str | None = None, at: tree.Node | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.help, self.at = code, message, help, at

    def placed(self, span: Span, text: str = "") -> CompileError:
        """Return the error as the user sees it, at `span`."""
        return CompileError(error(self.code, self.message, span, text, help=self.help))


class Budget:
    """The number of steps that remain to a script. Each value that it creates is charged by size, which also limits
    memory.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps
        self._sizes: dict[ExprRV | tir.Expr, int] = {}

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise ScriptError("E0602", f"the script does not end within {MAX_STEPS:,} steps")

    def items(self, count: int) -> None:
        """Pay for a list, tuple or string of so many elements."""
        if count > MAX_ITEMS:
            raise ScriptError(
                "E0602", f"this would have {_count_text(count)} elements, more than the limit of {MAX_ITEMS:,}"
            )
        self.spend(count)

    def number(self, value: Any) -> Any:
        """A number that is not too large."""
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise too_large()
        return value

    def symbolic(self, value: Any, *parts: Any) -> Any:
        """An expression made of `parts` that is not too large: what is shared counts as often as it occurs."""
        if is_symbolic(value) and not isinstance(value, (tir.IntImm, tir.FloatImm)) and value not in self._sizes:
            size = 1 + sum(self._sizes.get(x, 1) for x in parts if is_symbolic(x))
            if size > MAX_SYMBOLS:
                raise ScriptError("E0602", f"this expression has more than {MAX_SYMBOLS} operands")
            self._sizes[value] = size
        return value


def _count_text(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "far too many"


def too_large() -> ScriptError:
    return ScriptError("E0602", f"this integer would have more than {MAX_BITS} bits")


class ScheduleArgument:
    """The schedule that the script transforms."""


class ScheduledModule:
    """`sch.mod`, and a function in it: something to show."""


class Module:
    """A dotted name such as `tvm.tir`: nothing is imported, a few of its parts have a meaning."""

    def __init__(self, path: str) -> None:
        self.path = path


class Method:
    """A method or dotted name of its owner, such as `sch.split`, `loops.append`, `T.int64`."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


class Builtin:
    """A function that every script has."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call


class ScriptCallable:
    """A `def` or `lambda` of the script. Primitives call it as an index map, with variables."""

    takes_variables = True  # rather than scalars with Python's operators: the script has its own

    def __init__(
        self, name: str, run: Callable[[tuple[Any, ...]], Any], names: tuple[str, ...], rest: str | None = None
    ) -> None:
        from inspect import Parameter, Signature

        self.name, self._run, self.names = name, run, names
        others = [] if rest is None else [Parameter(rest, Parameter.VAR_POSITIONAL)]
        self.__signature__ = Signature([*(Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in names), *others])

    def __call__(self, *variables: Any) -> Any:
        return self._run(variables)


class Function(ScriptCallable):
    """A `def`: its body, its default values and the scopes around it."""

    body: tree.Body
    defaults: dict[str, Any]
    scopes: tuple[dict[str, Any], ...]


class Lambda(ScriptCallable):
    """An index map."""


def is_number(value: Any) -> bool:
    """A bool, int or float."""
    return isinstance(value, (int, float))


def is_symbolic(value: Any) -> bool:
    """Something whose value is not known while the script runs."""
    return isinstance(value, (ExprRV, tir.Expr))


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a bool"), (int, "an integer"), (float, "a float"), (str, "a string"), (list, "a list"), (tuple, "a tuple"),
    (dict, "a dict"), (range, "a range"), (type(None), "None"), (ScheduleArgument, "the schedule"),
    (BlockRV, "a block"),
    (LoopRV, "a loop"), (ExprRV, "a sampled value"), (Lambda, "a lambda"),
    (tir.For, "a loop's node"), (tir.Block, "a block's node"), (tir.Expr, "an expression"),
)  # fmt: skip


def describe(value: Any) -> str:
    """Return a description of a value, for messages."""
    if isinstance(value, (Function, Builtin)):
        return f"the function `{value.name}`"
    if isinstance(value, Module):
        return f"the name `{value.path}`"
    if isinstance(value, Method):
        return f"the method `{value.name}`"
    return next((text for kind, text in _KINDS if isinstance(value, kind)), "this")


def copy_argument(value: Any, budget: Budget, depth: int = 0) -> Any:
    """Return a copy of an argument for a primitive, which later changes by the script do not affect."""
    budget.spend(1)
    if depth > MAX_NESTING:
        raise ScriptError("E0602", f"this value is nested more than {MAX_NESTING} deep")
    if isinstance(value, (list, tuple)):
        return type(value)([copy_argument(item, budget, depth + 1) for item in value])
    if isinstance(value, range):
        budget.items(length(value))
        return list(value)
    if isinstance(value, dict):
        return {key: copy_argument(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, (ScheduleArgument, Module, Method, Builtin)):
        raise ScriptError("E0606", f"{describe(value)} cannot be an argument of a primitive")
    return value


def length(value: Any) -> int:
    """Return `len`, also of ranges that are too long for Python's `len`."""
    if isinstance(value, range):
        return max(0, -((value.start - value.stop) // value.step))
    return len(value)


def is_key(value: Any) -> bool:
    """Return True if a value may be a key of a dict: hashing it is cheap."""
    if isinstance(value, tuple):
        return all(is_key(item) and not isinstance(item, tuple) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Handle))
