"""Execution of the statements of schedule scripts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any

from mlcc.errors import CompileError, Source, did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.reader import Tree
from mlcc.passes.schedule.handles import LoopRV
from mlcc.passes.schedule.mls.expressions import SCHEDULE_NAME, Expressions, Frame, ScheduleInterface
from mlcc.passes.schedule.mls.operators import binary, elements, truth
from mlcc.passes.schedule.mls.values import Function, Module, ScheduleArgument, ScriptError, describe, is_key, length

Watch = Callable[["tree.Stmt"], None]  # told each simple statement that applied primitives, after it ran


class Outcome(enum.Enum):
    """The outcome of a statement: fall through, or a jump out of the body."""

    STATEMENT = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 3


class Script(Expressions):
    """One run of a script."""

    def __init__(self, source: Source, steps: ScheduleInterface, watch: Watch | None = None) -> None:
        super().__init__(source, steps)
        self.watch = watch
        self.returned: Any = None

    def run(self, text: Tree) -> None:
        """Run the top-level statements and then, unless they use the schedule, the last `def`. Raises CompileError."""
        top = Frame("script", (), None)
        top.names = self.globals
        top.scopes = (self.globals,)
        self.frames = [top]
        try:
            self.body(text.body)
            entry = next((s for s in reversed(text.body) if isinstance(s, tree.Def)), None)
            if (
                entry is not None
                and not self.begun
                and not any(not isinstance(s, tree.Def) and _mentions(s, SCHEDULE_NAME) for s in text.body)
            ):
                self._enter_last(entry)
        except CompileError as exc:
            raise self.called_from(exc) from None
        except RecursionError:
            raise self.called_from(
                ScriptError("E0602", "this is nested too deep").placed(self.span(text.body[0]))
            ) from None

    def _enter_last(self, entry: tree.Def) -> None:
        name = entry.name
        place = self.span(entry.place)
        fn = self.globals.get(name)
        if not isinstance(fn, Function):
            raise ScriptError("E0604", f"`{name}` no longer refers to the function").placed(place)
        needed = [p for p in fn.names if p not in fn.defaults]
        if not fn.names:
            message = f"the last function, `{name}`, has no parameter for the schedule"
            raise ScriptError("E0604", message, f"write `def {name}({SCHEDULE_NAME}):`").placed(place)
        if len(needed) > 1:
            left = ", ".join(f"`{p}`" for p in needed[1:])
            message = f"the last function, `{name}`, is called with the schedule alone, but also needs {left}"
            values = ", ".join(f"{p}=..." for p in needed[1:])
            call = f"{name}({SCHEDULE_NAME}, {values})"
            help = f"give defaults, or end the script with `def schedule({SCHEDULE_NAME}): {call}`"
            raise ScriptError("E0604", message, help).placed(place)
        self.call_function(fn, [ScheduleArgument()], {}, None)

    # ------------------------------------------------------------ statements

    def body(self, body: tree.Body) -> Outcome:
        before: tree.Stmt | None = None
        value: Any = None
        for stmt in body:
            if not isinstance(stmt, tree.Assign):
                outcome = self.statement(stmt)
                if outcome is not Outcome.STATEMENT:
                    return outcome
            elif before is not None and isinstance(before, tree.Assign) and stmt.value is before.value is not None:
                self._locate_errors(
                    stmt, self._store, stmt.target, value
                )  # `a = b = c` is two statements that share `c`
            else:
                value = self._assign(stmt)
            before = stmt
        return Outcome.STATEMENT

    def statement(self, stmt: tree.Stmt) -> Outcome:
        """Run any statement but a plain assignment."""
        self._locate_errors(stmt, self.budget.spend, 1)
        run = _RUN.get(type(stmt))
        if run is None:
            wrong = ScriptError("E0601", f"{_NAMES.get(type(stmt), 'this')} is not part of the script language")
            raise wrong.placed(self.span(stmt))
        before = self.frames[-1].steps
        outcome = self._locate_errors(stmt, run, self, stmt)
        if self.watch is not None and isinstance(stmt, _SIMPLE) and self.frames[-1].steps != before:
            self.watch(stmt)
        return outcome  # type: ignore[no-any-return]

    def _locate_errors(self, stmt: tree.Stmt, run: Callable[..., Any], *args: Any) -> Any:
        try:
            return run(*args)
        except ScriptError as wrong:
            raise wrong.placed(self.span(wrong.at or stmt)) from None

    def _assign(self, stmt: tree.Assign) -> Any:
        self._locate_errors(stmt, self.budget.spend, 1)
        if stmt.value is None:
            return None  # a bare annotation
        before = self.frames[-1].steps
        value = self.value(stmt.value)
        self._locate_errors(stmt, self._store, stmt.target, value)
        if self.watch is not None and self.frames[-1].steps != before:
            self.watch(stmt)
        return value

    def _store(self, target: tree.Expr, value: Any) -> None:
        if isinstance(target, tree.Name):
            self.frames[-1].names[target.id] = value
        elif isinstance(target, tree.Display):
            self._unpack(target, value)
        elif isinstance(target, tree.Index):
            self._store_element(self.value(target.base), target, value)
        else:
            raise ScriptError("E0601", "only names and elements of lists can be targets of an assignment", at=target)

    def _store_element(self, base: Any, target: tree.Index, value: Any) -> None:
        if isinstance(base, dict):
            key = self.key_of(target)
            if not is_key(key):
                raise ScriptError("E0606", f"{describe(key)} cannot be a key of a dict", at=target)
            base[key] = value
            return
        if not isinstance(base, list):
            raise ScriptError("E0606", f"elements of {describe(base)} cannot be assigned to", at=target)
        at = self.key_of(target)
        if not isinstance(at, int) or not -len(base) <= at < len(base):
            raise ScriptError("E0606", f"the index is out of range for a list of {len(base)}", at=target)
        base[at] = value

    def _unpack(self, target: tree.Display, value: Any) -> None:
        targets = target.items
        values = elements(value, self.budget, "unpack")
        stars = [at for at, t in enumerate(targets) if isinstance(t, tree.Star)]
        if len(stars) > 1:
            raise ScriptError("E0603", "only one target can take a list (`*name`)", at=target)
        if stars and len(values) >= len(targets) - 1:
            at, rest = stars[0], len(values) - len(targets) + 1
            values[at : at + rest] = [values[at : at + rest]]
            targets = tuple(t.value if isinstance(t, tree.Star) else t for t in targets)
        if len(values) != len(targets):
            raise self._wrong_count(target, len(targets), values, bool(stars))
        for part, item in zip(targets, values, strict=True):
            self._store(part, item)

    def _wrong_count(self, target: tree.Expr, names_count: int, values: list[Any], star: bool) -> ScriptError:
        """Return the error for a target of `names_count` names that does not match `values`; `star`: one is a list."""
        names, count = self.label(values), len(values)
        kind = "loop" if names and all(isinstance(v, LoopRV) for v in values) else "value"
        there = f"there {'is' if count == 1 else 'are'} {count} {kind}{'' if count == 1 else 's'}"
        shown = f" ({names})" if names else ""
        least = names_count - star
        taken = f"{'at least ' if star else ''}{least} {'name takes' if least == 1 else 'names take'} them"
        help = None
        if names and names.replace(", ", "").isidentifier():
            help = f"write `{names}{',' if count == 1 else ''} = ...`"
        return ScriptError("E0603", f"{there}{shown}, and {taken}", help, at=target)

    def _augmented(self, stmt: tree.AugAssign) -> Outcome:
        target, op, amount = stmt.target, stmt.op, stmt.value
        if isinstance(target, tree.Name):
            old = self.value(target)
            self._store(target, self._augment(op, old, self.value(amount)))
        elif isinstance(target, tree.Index):
            base = self.value(target.base)
            old = self.part_of(base, target)
            self._store_element(base, target, self._augment(op, old, self.value(amount)))
        else:
            raise ScriptError("E0601", "only names and elements of lists can be targets of an assignment", at=target)
        return Outcome.STATEMENT

    def _augment(self, op: str, old: Any, amount: Any) -> Any:
        if op == "+" and isinstance(old, list):
            added = elements(amount, self.budget)
            self.budget.items(len(old) + len(added))
            old.extend(added)  # as in Python: the same list
            return old
        return binary(op, old, amount, self.budget)

    def _expression(self, stmt: tree.Expression) -> Outcome:
        self.value(stmt.value)
        return Outcome.STATEMENT

    def _for(self, stmt: tree.For) -> Outcome:
        frame = self.frames[-1]
        values = self.value(stmt.iterable)
        frame.loops += 1
        for value in self._iterate(values, stmt.iterable):
            self.budget.spend(1)
            self._store(stmt.target, value)
            outcome = self.body(stmt.body)
            if outcome is Outcome.BREAK:
                break
            if outcome is Outcome.RETURN:
                return outcome
        frame.loops -= 1
        return Outcome.STATEMENT

    def _iterate(self, values: Any, at: tree.Expr) -> Iterator[Any]:
        if not isinstance(values, (list, tuple, str, range, dict)):
            try:
                elements(values, self.budget)
            except ScriptError as wrong:
                raise wrong.placed(self.span(at)) from None
        if isinstance(values, dict):
            yield from elements(values, self.budget)
            return
        position = 0
        while position < length(values):  # a list may grow while its elements are taken
            yield values[position]
            position += 1

    def _while(self, stmt: tree.While) -> Outcome:
        frame = self.frames[-1]
        frame.loops += 1
        while truth(self.value(stmt.condition)):
            self.budget.spend(1)
            outcome = self.body(stmt.body)
            if outcome is Outcome.BREAK:
                break
            if outcome is Outcome.RETURN:
                return outcome
        frame.loops -= 1
        return Outcome.STATEMENT

    def _if(self, stmt: tree.If) -> Outcome:
        return self.body(stmt.then if truth(self.value(stmt.condition)) else stmt.other)

    def _leave_loop(self, stmt: tree.Stmt) -> Outcome:
        if not self.frames[-1].loops:
            raise ScriptError("E0601", f"`{stmt.kind}` is outside of a loop")
        return Outcome.BREAK if isinstance(stmt, tree.Break) else Outcome.CONTINUE

    def _return(self, stmt: tree.Return) -> Outcome:
        if len(self.frames) == 1:
            raise ScriptError("E0601", "`return` is outside of a function")
        self.returned = None if stmt.value is None else self.value(stmt.value)
        return Outcome.RETURN

    def _assert(self, stmt: tree.Assert) -> Outcome:
        if not truth(self.value(stmt.condition)):
            message = None if stmt.message is None else self.value(stmt.message)
            raise ScriptError("E0607", f"the assertion fails{f': {message[:200]}' if isinstance(message, str) else ''}")
        return Outcome.STATEMENT

    def _pass(self, stmt: tree.Stmt) -> Outcome:
        return Outcome.STATEMENT

    def _import(self, stmt: tree.Import) -> Outcome:
        """Accept an import without importing anything; the names are predefined for annotations and `tir.`."""
        for path, name in stmt.names:
            self.frames[-1].names[name] = Module("tvm" if name == "tvm" else path)
        return Outcome.STATEMENT

    # ------------------------------------------------------------ functions

    def _def(self, stmt: tree.Def) -> Outcome:
        name, params, decorators = stmt.name, stmt.parameters, stmt.decorators
        if decorators:
            help = "FILE is the module, --script the schedule: this looks like a module"
            raise ScriptError("E0601", "decorators are not part of the script language", help, at=decorators[0])
        names = tuple(param.name for param in params)
        defaults: dict[str, Any] = {}
        for param in params:
            if param.default is not None:
                defaults[param.name] = self.value(param.default)
            elif defaults:
                raise ScriptError(
                    "E0605", f"parameter `{param.name}` without a default follows one with a default", at=stmt
                )

        def run(values: tuple[Any, ...]) -> Any:
            return self.call_function(definition, list(values), {}, None)

        definition = Function(name, run, names)
        definition.body, definition.defaults = stmt.body, defaults
        definition.scopes = self.frames[-1].scopes
        self.frames[-1].names[name] = definition
        return Outcome.STATEMENT

    def call_function(self, fn: Function, args: list[Any], kwargs: dict[str, Any], cst: tree.Call | None) -> Any:
        """Run a function of the script; `cst` is the call."""
        frame = Frame(fn.name, fn.scopes, cst)
        frame.names.update(self._bind(fn, args, kwargs))
        self.enter(frame)
        outcome = self.body(fn.body)
        self.frames.pop()
        return self.returned if outcome is Outcome.RETURN else None

    def _bind(self, fn: Function, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter. Raises Wrong."""
        signature = f"it is `{fn.name}({', '.join(n + ('=...' if n in fn.defaults else '') for n in fn.names)})`"
        if len(args) > len(fn.names):
            raise ScriptError("E0605", f"`{fn.name}` takes {len(fn.names)} arguments, not {len(args)}", signature)
        bound = dict(zip(fn.names, args, strict=False))
        for name, value in kwargs.items():
            if name not in fn.names:
                help = did_you_mean(name, fn.names) or signature
                raise ScriptError("E0605", f"`{fn.name}` has no parameter `{name}`", help)
            if name in bound:
                raise ScriptError("E0605", f"`{fn.name}` is given `{name}` twice", signature)
            bound[name] = value
        for name in fn.names:
            if name not in bound:
                if name not in fn.defaults:
                    raise ScriptError("E0605", f"`{fn.name}` needs `{name}`", signature)
                bound[name] = fn.defaults[name]
        return bound


def _mentions(stmt: tree.Stmt, name: str) -> bool:
    """Return True if a name occurs in a statement."""
    return any(isinstance(node, tree.Name) and node.id == name for node in tree.nodes(stmt))


_SIMPLE = (tree.Expression, tree.AugAssign, tree.Return)
_NAMES: dict[type[tree.Stmt], str] = {tree.With: "`with`", tree.Class: "a class"}
_RUN: dict[type[tree.Stmt], Callable[[Script, Any], Outcome]] = {
    tree.Expression: Script._expression, tree.AugAssign: Script._augmented, tree.For: Script._for,
    tree.While: Script._while, tree.If: Script._if, tree.Break: Script._leave_loop, tree.Continue: Script._leave_loop,
    tree.Return: Script._return, tree.Assert: Script._assert, tree.Pass: Script._pass, tree.Import: Script._import,
    tree.Def: Script._def,
}  # fmt: skip
