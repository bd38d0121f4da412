"""Evaluation of the expressions of schedule scripts over the syntax tree; nothing of Python is executed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from mlcc.errors import CompileError, Label, Source, Span, did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.mls.builtins import DISPLAYS, METHODS, SCHEDULES, builtins, dotted, invoke, make
from mlcc.passes.schedule.mls.operators import binary, compare, element, elements, part, truth, unary
from mlcc.passes.schedule.mls.values import (
    MAX_CALLS,
    Budget,
    Builtin,
    Function,
    Lambda,
    Method,
    Module,
    ScheduleArgument,
    ScheduledModule,
    ScriptError,
    copy_argument,
    describe,
    is_key,
)  # fmt: skip

SCHEDULE_NAME = "sch"  # the name of the schedule in top-level statements


class ScheduleInterface(Protocol):
    """The interface of a schedule to a script."""

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any], span: Span) -> Any:
        """Apply a primitive. Raises CompileError."""

    def primitives(self) -> list[str]:
        """Return the names that `call` knows."""

    def cost(self) -> int:
        """Return the cost of the next primitive, by the size of the program."""

    def name_of(self, value: Any) -> str | None:
        """Return the user's name of a loop or block, None if it no longer exists."""

    def size_named(self, name: str) -> tir.Var | None:
        """Return the symbolic size of that name in the program; None if it is missing or ambiguous."""

    def register_intrinsic(self, name: str, file: str, span: Span) -> None:
        """Make a tensor intrinsic known from a text. Raises CompileError."""


class Frame:
    """One run of a function, or of the top-level statements."""

    __slots__ = ("called_at", "loops", "name", "names", "scopes", "steps")

    def __init__(self, name: str, scopes: tuple[dict[str, Any], ...], called_at: tree.Call | None) -> None:
        self.name, self.called_at = name, called_at
        self.names: dict[str, Any] = {}
        self.scopes = (self.names, *scopes)
        self.loops = 0  # around the statement that runs
        self.steps = 0  # primitives that were applied


class Expressions:
    """Evaluate expressions in the innermost frame; `statements` adds the execution of statements."""

    def __init__(self, source: Source, steps: ScheduleInterface) -> None:
        self.source = source
        self.steps = steps
        self.budget = Budget()
        self.known = builtins({"register_tensor_intrin": _needs_place})
        self.globals: dict[str, Any] = {SCHEDULE_NAME: ScheduleArgument()}
        self.frames: list[Frame] = []
        self.applied = 0  # primitives
        self.begun = False  # by a line `sch = tvm.tir.Schedule(mod)`

    def span(self, cst: tree.Node) -> Span:
        return Span(self.source, cst.start, cst.end)

    def value(self, cst: tree.Expr) -> Any:
        """The value of an expression. Raises CompileError."""
        try:
            self.budget.spend(1)
            return _VALUE[type(cst)](self, cst)
        except ScriptError as wrong:
            raise wrong.placed(self.span(wrong.at or cst)) from None

    def enter(self, frame: Frame) -> None:
        if len(self.frames) >= MAX_CALLS:
            raise ScriptError(
                "E0602", f"more than {MAX_CALLS} nested calls", "the function may call itself without end"
            )
        self.frames.append(frame)

    # ------------------------------------------------------------ atoms

    def _literal(self, cst: tree.Literal) -> Any:
        return self.budget.number(cst.value)

    def _name(self, cst: tree.Name) -> Any:
        name = cst.id
        for scope in self.frames[-1].scopes:
            if name in scope:
                return scope[name]
        if name in self.known:
            return self.known[name]
        size = self.steps.size_named(name) if self.frames[-1].name == "lambda" else None
        if size is not None:
            return size  # a trace writes index maps over the sizes of the program so
        raise ScriptError("E0600", f"`{name}` is not defined", self._hint(name))

    def _hint(self, name: str) -> str | None:
        seen = {n: None for scope in self.frames[-1].scopes for n in scope} | dict.fromkeys(self.known)
        if name in ("print", "type", "getattr", "eval", "exec", "open", "isinstance", "__name__"):
            help = "`mlcc schedule --show-each` prints the loops after every line"
            return help if name == "print" else "a script has no access to Python"
        if name in self.steps.primitives():
            return f"a primitive is called on the schedule: `{SCHEDULE_NAME}.{name}(...)`"
        return did_you_mean(name, seen) or (
            f"the schedule is given as `{SCHEDULE_NAME}`" if name in ("s", "mod") else None
        )

    def _list(self, cst: tree.List) -> list[Any]:
        return self._items(cst.items)

    def _tuple(self, cst: tree.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(cst.items))

    def _items(self, items: tuple[tree.Expr, ...]) -> list[Any]:
        values: list[Any] = []
        for item in items:
            if isinstance(item, tree.Star):
                values += elements(self.value(item.value), self.budget, "unpack")
            else:
                values.append(self.value(item))
        return values

    def _dict(self, cst: tree.Dict) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_cst, value_cst in cst.entries:
            key = self.value(key_cst)
            if not is_key(key):
                raise ScriptError("E0606", f"{describe(key)} cannot be a key of a dict", at=key_cst)
            mapping[key] = self.value(value_cst)
        return mapping

    def _lambda(self, cst: tree.Lambda) -> Lambda:
        scopes = self.frames[-1].scopes

        def run(values: tuple[Any, ...]) -> Any:
            frame, count = Frame("lambda", scopes, None), len(cst.parameters)
            if len(values) != count and (cst.rest is None or len(values) < count):
                least = "" if cst.rest is None else "at least "
                message = f"the index map has {least}{count} parameters, but there are {len(values)} indices"
                raise ScriptError("E0605", message).placed(self.span(cst))
            frame.names.update(zip(cst.parameters, values, strict=False))
            if cst.rest is not None:
                frame.names[cst.rest] = values[count:]
            self.enter(frame)
            result = self.value(cst.body)
            self.frames.pop()
            return result

        return Lambda("lambda", run, cst.parameters, cst.rest)

    # ------------------------------------------------------------ operators

    def _unary(self, cst: tree.Unary) -> Any:
        return unary(cst.op, self.value(cst.operand), self.budget)

    def _binary(self, cst: tree.Binary) -> Any:
        return binary(cst.op, self.value(cst.left), self.value(cst.right), self.budget)

    def _compare(self, cst: tree.Compare) -> Any:
        return compare(cst.op, self.value(cst.left), self.value(cst.right), self.budget)

    def _bool(self, cst: tree.Bool) -> Any:
        chain = _comparison_chain(cst)
        if chain is not None:
            return self._compare_chain(*chain)
        left = self.value(cst.left)
        if isinstance(left, tir.Expr):
            return self.budget.symbolic(_join(cst.op, left, self.value(cst.right)), left)
        return self.value(cst.right) if truth(left) is (cst.op == "and") else left

    def _compare_chain(self, first: tree.Expr, links: list[tree.Compare]) -> Any:
        """Evaluate `a < b < c`, each operand once."""
        left = self.value(first)
        result: Any = True
        for link in links:
            right = self.value(link.right)
            comparison = compare(link.op, left, right, self.budget)
            if isinstance(comparison, tir.Expr) or isinstance(result, tir.Expr):
                result = self.budget.symbolic(_join("and", result, comparison), result, comparison)
            elif not truth(comparison):
                return False
            left = right
        return result

    def _choice(self, cst: tree.IfExp) -> Any:
        return self.value(cst.then if truth(self.value(cst.condition)) else cst.other)

    # ------------------------------------------------------------ parts

    def _index(self, cst: tree.Index) -> Any:
        return self.part_of(self.value(cst.base), cst)

    def part_of(self, base: Any, cst: tree.Index) -> Any:
        """Return the part of `base` that an index node selects."""
        if isinstance(base, ScheduledModule):
            return base
        items = cst.items
        if len(items) == 1 and isinstance(items[0], tree.Slice):
            bounds = (items[0].low, items[0].high, items[0].step)
            low, high, step = (None if bound is None else self.value(bound) for bound in bounds)
            return part(base, low, high, step, self.budget)
        return element(base, self.key_of(cst))

    def key_of(self, cst: tree.Index) -> Any:
        """The key between the brackets of an index node."""
        items = cst.items
        if any(isinstance(item, (tree.Slice, tree.Star)) for item in items):
            raise ScriptError("E0601", "lists have one dimension here")
        return self.value(items[0]) if len(items) == 1 else tuple(map(self.value, items))

    def _attribute(self, cst: tree.Attribute) -> Any:
        return self.attribute_of(self.value(cst.base), cst.name)

    def attribute_of(self, base: Any, name: str) -> Any:
        """Return `base.name`: a primitive, a method, or a part of a dotted name. Raises Wrong."""
        if isinstance(base, ScheduleArgument):
            known = self.steps.primitives()
            if name in known:
                return Method(base, name)
            if name == "mod":
                return ScheduledModule()
            if name in _PYTHON_ONLY:
                raise ScriptError("E0601", f"`{SCHEDULE_NAME}.{name}` is for Python: a script applies primitives only")
            help = did_you_mean(name, known) or "docs/schedules.md lists the primitives"
            raise ScriptError("E0610", f"a schedule has no primitive `{name}`", help)
        if isinstance(base, ScheduledModule):
            if name == "show":
                return Method(ScheduleArgument(), "show")
            message = f"`{SCHEDULE_NAME}.mod.{name}` is for Python: a script only shows a module"
            raise ScriptError("E0601", message, _SHOW)
        if isinstance(base, Module):
            return dotted(base, name)
        if isinstance(base, (tir.For, tir.Block)):
            return _node_attribute(base, name)
        methods = METHODS.get(type(base), {})
        if name in methods:
            return Method(base, name)
        if isinstance(base, (BlockRV, LoopRV)) and name in self.steps.primitives():
            there = (
                f"a primitive is called on the schedule, with the handle as an argument: `{SCHEDULE_NAME}.{name}(...)`"
            )
            raise ScriptError("E0601", f"{describe(base)} has no `{name}`", there)
        hint = did_you_mean(name, methods) or (f"it has {', '.join(methods)}" if methods else None)
        raise ScriptError("E0601", f"{describe(base)} has no `{name}`", hint)

    # ------------------------------------------------------------ calls

    def _call(self, cst: tree.Call) -> Any:
        callee = self.value(cst.function)
        if isinstance(callee, Module) and callee.path in SCHEDULES:
            return self._schedule(cst)
        if isinstance(callee, Module) and callee.path in DISPLAYS:
            return None  # the result of a script is its module
        args = self._items(cst.args)
        kwargs = {keyword.name: self.value(keyword.value) for keyword in cst.keywords}
        if isinstance(callee, Method):
            return self._call_method(callee, args, kwargs, cst)
        if isinstance(callee, Function):
            return self.call_function(callee, args, kwargs, cst)
        if isinstance(callee, Builtin):
            if callee.name == "register_tensor_intrin":
                return self._register(args, kwargs, cst)
            return invoke(callee.name, callee.call, self.budget, args, kwargs)
        if isinstance(callee, Lambda):
            raise ScriptError("E0601", "a lambda is only an index map here", "write a `def` to call it")
        if isinstance(callee, Module):
            raise ScriptError("E0601", f"`{callee.path}` cannot be called in a script")
        raise ScriptError("E0606", f"{describe(callee)} cannot be called")

    def _call_method(self, method: Method, args: list[Any], kwargs: dict[str, Any], cst: tree.Call) -> Any:
        if isinstance(method.owner, ScheduleArgument):
            return self._apply(method.name, args, kwargs, cst)
        if isinstance(method.owner, Module):
            if kwargs:
                raise ScriptError("E0605", f"`T.{method.name}` takes its values by position")
            return make(method, args, self.budget)
        fn = METHODS[type(method.owner)][method.name]
        return invoke(method.name, fn, self.budget, [method.owner, *args], kwargs)

    def _schedule(self, cst: tree.Call) -> ScheduleArgument:
        """The schedule that is given, for `tvm.tir.Schedule(mod)`: programs begin with it; of the arguments, the seed
        counts."""
        if self.applied:
            help = "begin another script: each has one schedule, of the module that it is given"
            raise ScriptError("E0601", "this would begin another schedule, and steps were applied to this one", help)
        for keyword in cst.keywords:
            if keyword.name == "seed":
                self.steps.call("seed", [self.value(keyword.value)], {}, self.span(cst))
        self.begun = True
        return ScheduleArgument()

    def _apply(self, name: str, args: list[Any], kwargs: dict[str, Any], cst: tree.Call) -> Any:
        """Apply a primitive to the schedule."""
        self.budget.spend(self.steps.cost())
        self.frames[-1].steps += 1
        self.applied += 1
        given = [copy_argument(a, self.budget) for a in args]
        named = {key: copy_argument(a, self.budget) for key, a in kwargs.items()}
        try:
            return self.steps.call(name, given, named, self.span(cst))
        except CompileError as exc:
            ended = self._ended_argument(cst, given, named) if exc.diagnostics[0].code == "E0611" else None
            if ended is None:
                raise
            label = Label(self.span(ended), f"`{ended.id}` has ended" if isinstance(ended, tree.Name) else "")
            raise CompileError([dataclasses.replace(d, primary=label) for d in exc.diagnostics]) from None

    def _ended_argument(self, cst: tree.Call, args: list[Any], kwargs: dict[str, Any]) -> tree.Expr | None:
        """Return the argument of a call that refers to a block or loop that no longer exists."""
        places = [] if any(isinstance(a, tree.Star) for a in cst.args) else list(zip(cst.args, args, strict=True))
        places += [(keyword.value, kwargs[keyword.name]) for keyword in cst.keywords]
        ended = (at for at, v in places if isinstance(v, (BlockRV, LoopRV)) and self.steps.name_of(v) is None)
        return next(ended, None)

    def _register(self, args: list[Any], kwargs: dict[str, Any], cst: tree.Call) -> None:
        invoke("register_tensor_intrin", _needs_place, self.budget, args, kwargs)
        given = dict(zip(("name", "file"), args, strict=False)) | kwargs
        for key, value in given.items():
            if not isinstance(value, str):
                raise ScriptError("E0606", f"`{key}` is a string, not {describe(value)}")
        self.steps.register_intrinsic(given["name"], given["file"], self.span(cst))

    def call_function(self, fn: Function, args: list[Any], kwargs: dict[str, Any], cst: tree.Call | None) -> Any:
        raise NotImplementedError

    def called_from(self, error: CompileError) -> CompileError:
        """Return the error with the calls that led to it, innermost first."""
        often = collections.Counter((f.name, f.called_at) for f in reversed(self.frames) if f.called_at is not None)
        related = tuple(
            Label(self.span(at), f"`{name}` is called here" + (f" ({count} nested calls)" if count > 1 else ""))
            for (name, at), count in [*often.items()][:8]
        )
        if not related:
            return error
        return CompileError([dataclasses.replace(d, related=d.related + related) for d in error.diagnostics])

    def label(self, values: list[Any]) -> str | None:
        """The names of loops or blocks, for messages."""
        names = [self.steps.name_of(v) for v in values[:12]]
        return (
            ", ".join(n for n in names if n) + (", ..." if len(values) > 12 else "") if names and all(names) else None
        )


def _node_attribute(node: tir.For | tir.Block, name: str) -> Any:
    """Return `sch.get(loop).extent` or `sch.get(block).name`. Raises Wrong."""
    if isinstance(node, tir.For) and name == "extent":
        return tir.const_int(node.extent) if tir.const_int(node.extent) is not None else node.extent
    if isinstance(node, tir.Block) and name in ("name", "name_hint"):
        return node.name
    help = "it has `extent`" if isinstance(node, tir.For) else "it has `name`"
    raise ScriptError("E0601", f"{describe(node)} has no `{name}`", help)


_SHOW = f"`{SCHEDULE_NAME}.show()` prints it, `mlcc schedule --show-each` the loops after every line"
_PYTHON_ONLY = ("trace", "state", "copy", "seed", "fork_seed", "func_working_on", "get_sref", "remove_rv")


def _needs_place(budget: Budget, name: Any, file: Any) -> None:
    """The signature of `register_tensor_intrin`, which also needs the place of its call."""


def _comparison_chain(cst: tree.Expr) -> tuple[tree.Expr, list[tree.Compare]] | None:
    """The first operand and the comparisons of `a < b < c`, whose syntax shares the node of `b`."""
    links: list[tree.Compare] = []
    while isinstance(cst, tree.Bool) and cst.op == "and" and isinstance(cst.right, tree.Compare):
        left, link = cst.left, cst.right
        last = left.right if isinstance(left, tree.Bool) else left
        if not isinstance(last, tree.Compare) or last.right is not link.left:
            return None
        links.append(link)
        cst = left
    if not links or not isinstance(cst, tree.Compare):
        return None
    return cst.left, [cst, *reversed(links)]


def _join(op: str, a: Any, b: Any) -> Any:
    from mlcc.ir import construct

    try:
        return (construct.logical_and if op == "and" else construct.logical_or)(a, b)
    except (ValueError, TypeError):
        raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}") from None


_VALUE: dict[type[tree.Expr], Callable[[Expressions, Any], Any]] = {
    tree.Name: Expressions._name, tree.Int: Expressions._literal, tree.Float: Expressions._literal,
    tree.Str: Expressions._literal, tree.Const: Expressions._literal, tree.Attribute: Expressions._attribute,
    tree.Call: Expressions._call, tree.Index: Expressions._index, tree.Tuple: Expressions._tuple,
    tree.List: Expressions._list, tree.Dict: Expressions._dict, tree.Unary: Expressions._unary,
    tree.Binary: Expressions._binary, tree.Compare: Expressions._compare, tree.Bool: Expressions._bool,
    tree.IfExp: Expressions._choice, tree.Lambda: Expressions._lambda,
}  # fmt: skip
