"""Runs the statements of schedule scripts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, Source, did_you_mean
from mlcc.grammar.syntax.reader import Tree
from mlcc.passes.schedule.handles import LoopRV
from mlcc.passes.schedule.mls.expressions import GIVEN, Expressions, Frame, Steps
from mlcc.passes.schedule.mls.operators import binary, elements, truth
from mlcc.passes.schedule.mls.values import Function, Given, Module, Wrong, describe, is_key, length

if TYPE_CHECKING:
    from mlcc.grammar.syntax.tree import Cst

Watch = Callable[["Cst"], None]  # told each simple statement that applied primitives, after it ran


class Next(enum.Enum):
    """How a statement ended."""

    STATEMENT = 0
    BREAK = 1
    CONTINUE = 2
    RETURN = 3


class Script(Expressions):
    """One run of a script."""

    def __init__(self, source: Source, steps: Steps, watch: Watch | None = None) -> None:
        super().__init__(source, steps)
        self.watch = watch
        self.returned: Any = None

    def run(self, tree: Tree) -> None:
        """Run the top-level statements and then, unless they use the schedule, the last `def`. Raises CompileError."""
        top = Frame("script", (), None)
        top.names = self.globals
        top.scopes = (self.globals,)
        self.frames = [top]
        try:
            self.body(tree.body)
            entry = next((s for s in reversed(tree.body) if s[0] == "def"), None)
            if entry is not None and not any(s[0] != "def" and _mentions(s, GIVEN) for s in tree.body):
                self._enter_last(entry)
        except CompileError as exc:
            raise self.called_from(exc) from None
        except RecursionError:
            raise self.called_from(Wrong("E0602", "this nests too deep").placed(self.span(tree.body[0]))) from None

    def _enter_last(self, entry: Cst) -> None:
        name = entry[3]
        place = self.span(("name", *entry[4]))
        fn = self.globals.get(name)
        if not isinstance(fn, Function):
            raise Wrong("E0604", f"`{name}` is no longer the function that it was").placed(place)
        needed = [p for p in fn.names if p not in fn.defaults]
        if not fn.names:
            message = f"the last function, `{name}`, takes no schedule"
            raise Wrong("E0604", message, f"write `def {name}({GIVEN}):`").placed(place)
        if len(needed) > 1:
            left = ", ".join(f"`{p}`" for p in needed[1:])
            message = f"the last function, `{name}`, is called with the schedule alone, and needs {left} too"
            values = ", ".join(f"{p}=..." for p in needed[1:])
            help = f"give defaults, or end the script with `def schedule({GIVEN}): {name}({GIVEN}, {values})`"
            raise Wrong("E0604", message, help).placed(place)
        self.call_function(fn, [Given()], {}, None)

    # ------------------------------------------------------------ statements

    def body(self, body: tuple[Cst, ...]) -> Next:
        before: Cst | None = None
        value: Any = None
        for stmt in body:
            if stmt[0] != "assign":
                ended = self.statement(stmt)
                if ended is not Next.STATEMENT:
                    return ended
            elif before is not None and before[0] == "assign" and stmt[5] is before[5] is not None:
                self._placed(stmt, self._store, stmt[3], value)  # `a = b = c` is two statements that share `c`
            else:
                value = self._assign(stmt)
            before = stmt
        return Next.STATEMENT

    def statement(self, stmt: Cst) -> Next:
        """Run any statement but a plain assignment."""
        self._placed(stmt, self.budget.spend, 1)
        run = _RUN.get(stmt[0])
        if run is None:
            wrong = Wrong("E0601", f"{_NAMES.get(stmt[0], 'this')} is not part of the script language")
            raise wrong.placed(self.span(stmt))
        before = self.frames[-1].steps
        ended = self._placed(stmt, run, self, stmt)
        if self.watch is not None and stmt[0] in _SIMPLE and self.frames[-1].steps != before:
            self.watch(stmt)
        return ended  # type: ignore[no-any-return]

    def _placed(self, stmt: Cst, run: Callable[..., Any], *args: Any) -> Any:
        try:
            return run(*args)
        except Wrong as wrong:
            raise wrong.placed(self.span(wrong.at or stmt)) from None

    def _assign(self, stmt: Cst) -> Any:
        self._placed(stmt, self.budget.spend, 1)
        if stmt[5] is None:
            return None  # a bare annotation
        before = self.frames[-1].steps
        value = self.value(stmt[5])
        self._placed(stmt, self._store, stmt[3], value)
        if self.watch is not None and self.frames[-1].steps != before:
            self.watch(stmt)
        return value

    def _store(self, target: Cst, value: Any) -> None:
        kind = target[0]
        if kind == "name":
            self.frames[-1].names[target[3]] = value
        elif kind in ("tuple", "list"):
            self._unpack(target, value)
        elif kind == "index":
            self._store_element(self.value(target[3]), target, value)
        else:
            raise Wrong("E0601", "only names and elements of lists can be assigned to", at=target)

    def _store_element(self, base: Any, target: Cst, value: Any) -> None:
        if isinstance(base, dict):
            key = self.key_of(target)
            if not is_key(key):
                raise Wrong("E0606", f"{describe(key)} cannot be a key of a dict", at=target)
            base[key] = value
            return
        if not isinstance(base, list):
            raise Wrong("E0606", f"elements of {describe(base)} cannot be assigned to", at=target)
        at = self.key_of(target)
        if not isinstance(at, int) or not -len(base) <= at < len(base):
            raise Wrong("E0606", f"there is no such element in a list of {len(base)}", at=target)
        base[at] = value

    def _unpack(self, target: Cst, value: Any) -> None:
        targets = target[3]
        values = elements(value, self.budget, "unpack")
        stars = [at for at, t in enumerate(targets) if t[0] == "star"]
        if len(stars) > 1:
            raise Wrong("E0603", "only one target can take a list (`*name`)", at=target)
        if stars and len(values) >= len(targets) - 1:
            at, rest = stars[0], len(values) - len(targets) + 1
            values[at : at + rest] = [values[at : at + rest]]
            targets = tuple(t[3] if t[0] == "star" else t for t in targets)
        if len(values) != len(targets):
            raise self._wrong_count(target, len(targets), values, bool(stars))
        for part, item in zip(targets, values, strict=True):
            self._store(part, item)

    def _wrong_count(self, target: Cst, wanted: int, values: list[Any], star: bool) -> Wrong:
        """The error where `wanted` names (one of them for a list, if `star`) stand for other than so many values."""
        names, count = self.label(values), len(values)
        kind = "loop" if names and all(isinstance(v, LoopRV) for v in values) else "value"
        there = f"there {'is' if count == 1 else 'are'} {count} {kind}{'' if count == 1 else 's'}"
        shown = f" ({names})" if names else ""
        least = wanted - star
        taken = f"{'at least ' if star else ''}{least} {'name takes' if least == 1 else 'names take'} them"
        help = None
        if names and names.replace(", ", "").isidentifier():
            help = f"write `{names}{',' if count == 1 else ''} = ...`"
        return Wrong("E0603", f"{there}{shown}, and {taken}", help, at=target)

    def _augmented(self, stmt: Cst) -> Next:
        target, op, amount = stmt[3:6]
        if target[0] == "name":
            old = self.value(target)
            self._store(target, self._grow(op, old, self.value(amount)))
        elif target[0] == "index":
            base = self.value(target[3])
            old = self.part_of(base, target)
            self._store_element(base, target, self._grow(op, old, self.value(amount)))
        else:
            raise Wrong("E0601", "only names and elements of lists can be assigned to", at=target)
        return Next.STATEMENT

    def _grow(self, op: str, old: Any, amount: Any) -> Any:
        if op == "+" and isinstance(old, list):
            added = elements(amount, self.budget)
            self.budget.items(len(old) + len(added))
            old.extend(added)  # as in Python: the same list
            return old
        return binary(op, old, amount, self.budget)

    def _expression(self, stmt: Cst) -> Next:
        self.value(stmt[3])
        return Next.STATEMENT

    def _for(self, stmt: Cst) -> Next:
        frame = self.frames[-1]
        values = self.value(stmt[4])
        frame.loops += 1
        for value in self._iterate(values, stmt[4]):
            self.budget.spend(1)
            self._store(stmt[3], value)
            ended = self.body(stmt[5])
            if ended is Next.BREAK:
                break
            if ended is Next.RETURN:
                return ended
        frame.loops -= 1
        return Next.STATEMENT

    def _iterate(self, values: Any, at: Cst) -> Iterator[Any]:
        if not isinstance(values, (list, tuple, str, range, dict)):
            try:
                elements(values, self.budget)
            except Wrong as wrong:
                raise wrong.placed(self.span(at)) from None
        if isinstance(values, dict):
            yield from elements(values, self.budget)
            return
        position = 0
        while position < length(values):  # a list may grow while its elements are taken
            yield values[position]
            position += 1

    def _while(self, stmt: Cst) -> Next:
        frame = self.frames[-1]
        frame.loops += 1
        while truth(self.value(stmt[3])):
            self.budget.spend(1)
            ended = self.body(stmt[4])
            if ended is Next.BREAK:
                break
            if ended is Next.RETURN:
                return ended
        frame.loops -= 1
        return Next.STATEMENT

    def _if(self, stmt: Cst) -> Next:
        return self.body(stmt[4] if truth(self.value(stmt[3])) else stmt[5])

    def _leave_loop(self, stmt: Cst) -> Next:
        if not self.frames[-1].loops:
            raise Wrong("E0601", f"`{stmt[0]}` stands in no loop")
        return Next.BREAK if stmt[0] == "break" else Next.CONTINUE

    def _return(self, stmt: Cst) -> Next:
        if len(self.frames) == 1:
            raise Wrong("E0601", "`return` stands in no function")
        self.returned = None if stmt[3] is None else self.value(stmt[3])
        return Next.RETURN

    def _assert(self, stmt: Cst) -> Next:
        if not truth(self.value(stmt[3])):
            said = None if stmt[4] is None else self.value(stmt[4])
            raise Wrong("E0607", f"the assertion fails{f': {said[:200]}' if isinstance(said, str) else ''}")
        return Next.STATEMENT

    def _pass(self, stmt: Cst) -> Next:
        return Next.STATEMENT

    def _import(self, stmt: Cst) -> Next:
        """Nothing is imported; the names are known, so that annotations and `tir.` make sense."""
        for path, name in stmt[3]:
            self.frames[-1].names[name] = Module("tvm" if name == "tvm" else path)
        return Next.STATEMENT

    # ------------------------------------------------------------ functions

    def _def(self, stmt: Cst) -> Next:
        name, params, decorators, body = stmt[3], stmt[5], stmt[7], stmt[8]
        if decorators:
            raise Wrong("E0601", "decorators are not part of the script language", at=decorators[0])
        names = tuple(p[0] for p in params)
        defaults: dict[str, Any] = {}
        for param, _, _, _, default in params:
            if default is not None:
                defaults[param] = self.value(default)
            elif defaults:
                raise Wrong("E0605", f"`{param}` without a default stands behind a parameter with one", at=stmt)

        def run(values: tuple[Any, ...]) -> Any:
            return self.call_function(made, list(values), {}, None)

        made = Function(name, body, run, names)
        made.defaults = defaults
        made.scopes = self.frames[-1].scopes
        self.frames[-1].names[name] = made
        return Next.STATEMENT

    def call_function(self, fn: Function, args: list[Any], kwargs: dict[str, Any], cst: Cst | None) -> Any:
        """Run a function of the script; `cst` is the call."""
        frame = Frame(fn.name, fn.scopes, cst)
        frame.names.update(self._bind(fn, args, kwargs))
        self.enter(frame)
        ended = self.body(fn.cst)
        self.frames.pop()
        return self.returned if ended is Next.RETURN else None

    def _bind(self, fn: Function, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Values by parameter. Raises Wrong."""
        signature = f"it is `{fn.name}({', '.join(n + ('=...' if n in fn.defaults else '') for n in fn.names)})`"
        if len(args) > len(fn.names):
            raise Wrong("E0605", f"`{fn.name}` takes {len(fn.names)} arguments, not {len(args)}", signature)
        made = dict(zip(fn.names, args, strict=False))
        for name, value in kwargs.items():
            if name not in fn.names:
                help = did_you_mean(name, fn.names) or signature
                raise Wrong("E0605", f"`{fn.name}` has no parameter `{name}`", help)
            if name in made:
                raise Wrong("E0605", f"`{fn.name}` is given `{name}` twice", signature)
            made[name] = value
        for name in fn.names:
            if name not in made:
                if name not in fn.defaults:
                    raise Wrong("E0605", f"`{fn.name}` needs `{name}`", signature)
                made[name] = fn.defaults[name]
        return made


def _mentions(stmt: Cst, name: str) -> bool:
    """Whether a name occurs in a statement."""
    stack: list[Any] = [stmt]
    while stack:
        top = stack.pop()
        if type(top) is tuple:
            if len(top) == 4 and top[0] == "name" and top[3] == name:
                return True
            stack.extend(top)
    return False


_SIMPLE = ("expr", "augassign", "return")
_NAMES = {"with": "`with`", "class": "a class"}
_RUN: dict[str, Callable[[Script, Cst], Next]] = {
    "expr": Script._expression, "augassign": Script._augmented, "for": Script._for, "while": Script._while,
    "if": Script._if, "break": Script._leave_loop, "continue": Script._leave_loop, "return": Script._return,
    "assert": Script._assert, "pass": Script._pass, "import": Script._import, "def": Script._def,
}  # fmt: skip
