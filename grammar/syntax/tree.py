"""The actions of the grammar: from lists of tokens to the plain tuples of the syntax tree.

Every node is `(kind, start, end, ...)` with character offsets. Expressions:

    ("name", s, e, id)  ("int", s, e, value)  ("float", s, e, value)  ("str", s, e, value)
    ("const", s, e, True | False | None | Ellipsis)  ("attr", s, e, base, name)
    ("call", s, e, function, args, kwargs)     args: expressions or ("star", s, e, x); kwargs: (name, s, e, value)
    ("index", s, e, base, items)               items: expressions or ("slice", s, e, low, high, step), each or None
    ("tuple", s, e, items)  ("list", s, e, items)  ("dict", s, e, ((key, value), ...))
    ("unary", s, e, op, x)  ("binary", s, e, op, l, r)  ("compare", s, e, op, l, r)  ("bool", s, e, "and" | "or", l, r)
    ("ifexp", s, e, condition, a, b)  ("lambda", s, e, names, body)

Statements:

    ("expr", s, e, x)  ("assign", s, e, target, annotation, value)  ("augassign", s, e, target, op, value)
    ("for", s, e, target, iterable, body)  ("while", s, e, condition, body)  ("if", s, e, condition, then, else)
    ("with", s, e, ((context, target), ...), body)  ("return", s, e, value)  ("assert", s, e, condition, message)
    ("pass", s, e)  ("break", s, e)  ("continue", s, e)  ("import", s, e, ((dotted name, bound name), ...))
    ("def", s, e, name, (name_start, name_end), parameters, returns, decorators, body)
                                               parameters: (name, s, e, annotation, default)
    ("class", s, e, name, bases, decorators, body)

What is absent is None; bodies are tuples of statements. `a = b = c` becomes one ("assign", ...) per target, left to
right, which is exact for the values that programs here have (they have no effects).
"""

from __future__ import annotations

from typing import Any

Cst = tuple[Any, ...]

_PRECEDENCE = {
    "or": 1, "and": 2, "not": 3, "in": 4, "not in": 4, "is": 4, "is not": 4,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10, "unary": 11, "**": 12,
}  # fmt: skip


def _start(child: Any) -> int:
    return child[1] if type(child) is tuple else child.start  # type: ignore[no-any-return]


def _end(child: Any) -> int:
    return child[2] if type(child) is tuple else child.end  # type: ignore[no-any-return]


class Builder:
    """One method per grammar rule; called with the rule's tokens and finished parts. Notes misuse in `problems`."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, int, str, str | None]] = []  # start, end, message, help

    # ------------------------------------------------------------ modules and statements

    def module(self, c: list[Any]) -> tuple[Cst, ...]:
        return _flatten(c)

    script = module

    def simple_line(self, c: list[Any]) -> list[Cst]:
        made: list[Cst] = []
        for child in c:
            if type(child) is tuple:
                made.append(child)
            elif type(child) is list:
                made.extend(child)
        return made

    def suite(self, c: list[Any]) -> tuple[Cst, ...]:
        return tuple(c[0]) if len(c) == 1 else _flatten(c[2:-1])

    def expression_statement(self, c: list[Any]) -> Cst:
        return ("expr", c[0][1], c[0][2], c[0])

    def assign(self, c: list[Any]) -> Cst | list[Cst]:
        value = c[-1]
        made: list[Cst] = []
        for target in c[:-1:2]:
            self._check_target(target)
            made.append(("assign", c[0][1], value[2], target, None, value))
        return made[0] if len(made) == 1 else made

    def annotate(self, c: list[Any]) -> Cst:
        target = c[0]
        if target[0] not in ("name", "attr", "index"):
            self._problem(target, "only one name can be annotated")
        value = c[4] if len(c) > 3 else None
        return ("assign", target[1], c[-1][2], target, c[2], value)

    def augmented(self, c: list[Any]) -> Cst:
        if c[0][0] not in ("name", "attr", "index"):
            self._check_target(("bad", *c[0][1:3]) if c[0][0] in ("tuple", "list") else c[0])
        return ("augassign", c[0][1], c[2][2], c[0], c[1].value[:-1], c[2])

    def return_statement(self, c: list[Any]) -> Cst:
        return ("return", c[0].start, _end(c[-1]), c[1] if len(c) > 1 else None)

    def pass_statement(self, c: list[Any]) -> Cst:
        return ("pass", c[0].start, c[0].end)

    def break_statement(self, c: list[Any]) -> Cst:
        return ("break", c[0].start, c[0].end)

    def continue_statement(self, c: list[Any]) -> Cst:
        return ("continue", c[0].start, c[0].end)

    def assert_statement(self, c: list[Any]) -> Cst:
        return ("assert", c[0].start, _end(c[-1]), c[1], c[3] if len(c) > 2 else None)

    def dotted(self, c: list[Any]) -> Cst:
        return ("dotted", c[0].start, c[-1].end, ".".join(t.value for t in c[::2]))

    def imported(self, c: list[Any]) -> Cst:
        path = c[0][3]
        return ("imported", c[0][1], _end(c[-1]), path, c[2].value if len(c) > 1 else None)

    def import_names(self, c: list[Any]) -> Cst:
        names = tuple((i[3], i[4] or i[3].partition(".")[0]) for i in c if type(i) is tuple)
        return ("import", c[0].start, _end(c[-1]), names)

    def import_from(self, c: list[Any]) -> Cst:
        module = c[1][3]
        names = tuple((f"{module}.{i[3]}", i[4] or i[3]) for i in c[2:] if type(i) is tuple)
        return ("import", c[0].start, _end(c[-1]), names)

    # ------------------------------------------------------------ compound statements

    def for_loop(self, c: list[Any]) -> Cst:
        self._check_target(c[1])
        return ("for", c[0].start, c[4].end, c[1], c[3], c[5])

    def while_loop(self, c: list[Any]) -> Cst:
        return ("while", c[0].start, c[2].end, c[1], c[3])

    def conditional(self, c: list[Any]) -> Cst:
        return ("if", c[0].start, c[2].end, c[1], c[3], c[4] if len(c) > 4 else ())

    def elif_clause(self, c: list[Any]) -> tuple[Cst, ...]:
        return (self.conditional(c),)

    def else_clause(self, c: list[Any]) -> tuple[Cst, ...]:
        return c[2]  # type: ignore[no-any-return]

    def with_block(self, c: list[Any]) -> Cst:
        return ("with", c[0].start, c[-2].end, tuple(i for i in c[1:-1] if type(i) is tuple), c[-1])

    def with_item(self, c: list[Any]) -> tuple[Cst, Cst | None]:
        if len(c) > 1:
            self._check_target(c[2])
            return (c[0], c[2])
        return (c[0], None)

    def tuple_target(self, c: list[Any]) -> Cst:
        return ("tuple", _start(c[0]), _end(c[-1]), tuple(i for i in c if type(i) is tuple))

    def function(self, c: list[Any]) -> Cst:
        at = next(i for i, t in enumerate(c) if type(t) is not tuple)
        define, name, parameters, tail = c[at], c[at + 1], c[at + 3], c[at + 5 :]
        returns = tail[1] if len(tail) > 2 else None
        return (
            "def", define.start, tail[-2].end, name.value, (name.start, name.end), parameters, returns,
            tuple(c[:at]), tail[-1],
        )  # fmt: skip

    def class_def(self, c: list[Any]) -> Cst:
        at = next(i for i, t in enumerate(c) if type(t) is not tuple)
        name = c[at + 1]
        bases = c[at + 3][0] if len(c) - at > 4 else ()
        return ("class", c[at].start, c[-2].end, name.value, bases, tuple(c[:at]), c[-1])

    def decorator(self, c: list[Any]) -> Cst:
        return c[1]  # type: ignore[no-any-return]

    def parameters(self, c: list[Any]) -> tuple[Cst, ...]:
        made = tuple(p for p in c if type(p) is tuple)
        self._check_unique([(p[0], p[1], p[2]) for p in made], "parameter")
        return made

    def parameter(self, c: list[Any]) -> Cst:
        annotation = default = None
        for mark, value in zip(c[1::2], c[2::2], strict=True):
            if mark.type == "COLON":
                annotation = value
            else:
                default = value
        return (c[0].value, c[0].start, c[0].end, annotation, default)

    # ------------------------------------------------------------ expressions

    def bare_tuple(self, c: list[Any]) -> Cst:
        return ("tuple", _start(c[0]), _end(c[-1]), tuple(c[::2]))

    def star(self, c: list[Any]) -> Cst:
        return ("star", c[0].start, c[1][2], c[1])

    def choose(self, c: list[Any]) -> Cst:
        return ("ifexp", c[0][1], c[4][2], c[2], c[0], c[4])

    def lambda_function(self, c: list[Any]) -> Cst:
        names = tuple(t.value for t in c[1:-2] if t.type == "NAME")
        return ("lambda", c[0].start, c[-1][2], names, c[-1])

    def prefixed(self, c: list[Any]) -> list[Any]:
        return c

    def alone(self, c: list[Any]) -> Cst:
        return _climb(c)

    def chain(self, c: list[Any]) -> Cst:
        return _climb(c)

    def not_in(self, c: list[Any]) -> Any:
        c[1].value = "not in"
        c[1].start = c[0].start
        return c[1]

    def attribute(self, c: list[Any]) -> Cst:
        return ("attr", c[0][1], c[2].end, c[0], c[2].value)

    def call(self, c: list[Any]) -> Cst:
        args, kwargs = c[2]
        return ("call", c[0][1], c[3].end, c[0], args, kwargs)

    def arguments(self, c: list[Any]) -> tuple[tuple[Cst, ...], tuple[Cst, ...]]:
        if not c:
            return ((), ())
        args = []
        kwargs: list[Cst] = []
        for item in c[::2]:
            if item[0] == "keyword":
                kwargs.append(item[3])
            else:
                if kwargs:
                    self._problem(item, "an argument by position stands after one by name")
                args.append(item)
        if len(kwargs) > 1:
            self._check_unique([k[:3] for k in kwargs], "argument")
        return (tuple(args), tuple(kwargs))

    def keyword(self, c: list[Any]) -> Cst:
        return ("keyword", c[0].start, c[2][2], (c[0].value, c[0].start, c[0].end, c[2]))

    def index(self, c: list[Any]) -> Cst:
        return ("index", c[0][1], c[3].end, c[0], c[2])

    def items(self, c: list[Any]) -> tuple[Cst, ...]:
        return tuple(c[::2])

    def bound(self, c: list[Any]) -> Any:
        return c[0] if c else None

    def slice(self, c: list[Any]) -> Cst:
        known = [p for p in c if p is not None]
        return ("slice", _start(known[0]), _end(known[-1]), c[0], c[2], c[4] if len(c) > 3 else None)

    def name(self, c: list[Any]) -> Cst:
        token = c[0]
        return ("name", token.start, token.end, token.value)

    def integer(self, c: list[Any]) -> Cst:
        token = c[0]
        return ("int", token.start, token.end, token.value)

    def floating(self, c: list[Any]) -> Cst:
        token = c[0]
        return ("float", token.start, token.end, token.value)

    def string(self, c: list[Any]) -> Cst:
        return ("str", c[0].start, c[-1].end, c[0].value if len(c) == 1 else "".join(t.value for t in c))

    def true(self, c: list[Any]) -> Cst:
        return ("const", c[0].start, c[0].end, True)

    def false(self, c: list[Any]) -> Cst:
        return ("const", c[0].start, c[0].end, False)

    def none(self, c: list[Any]) -> Cst:
        return ("const", c[0].start, c[0].end, None)

    def ellipsis(self, c: list[Any]) -> Cst:
        return ("const", c[0].start, c[0].end, Ellipsis)

    def parentheses(self, c: list[Any]) -> Cst:
        """`()`, or an expression, which now spans its parentheses."""
        if len(c) == 2:
            return ("tuple", c[0].start, c[1].end, ())
        return (c[1][0], c[0].start, c[2].end, *c[1][3:])

    def tuple_display(self, c: list[Any]) -> Cst:
        return ("tuple", c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def list_display(self, c: list[Any]) -> Cst:
        return ("list", c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def dict_display(self, c: list[Any]) -> Cst:
        return ("dict", c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def entry(self, c: list[Any]) -> tuple[Cst, Cst]:
        return (c[0], c[2])

    # ------------------------------------------------------------ what the grammar cannot say

    def _problem(self, at: Any, message: str, help: str | None = None) -> None:
        self.problems.append((_start(at), _end(at), message, help))

    def _check_target(self, target: Cst) -> None:
        stack = [target]
        while stack:
            top = stack.pop()
            if top[0] in ("tuple", "list"):
                stack.extend(reversed(top[3]))
            elif top[0] == "star":
                stack.append(top[3])
            elif top[0] not in ("name", "attr", "index"):
                help = "a comparison is written `==`" if top[0] in ("compare", "binary", "bool") else None
                self._problem(top, f"cannot assign to {_NOUNS.get(top[0], 'this')}", help)

    def _check_unique(self, names: list[Any], what: str) -> None:
        seen = set()
        for name, start, end in names:
            if name in seen:
                self.problems.append((start, end, f"{what} `{name}` is given twice", None))
            seen.add(name)


_NOUNS = {
    "call": "a call", "int": "a number", "float": "a number", "str": "a string", "const": "a constant",
    "dict": "a dict", "lambda": "a lambda", "compare": "a comparison", "binary": "an expression",
    "bool": "an expression", "unary": "an expression", "ifexp": "an expression",
}  # fmt: skip


def _flatten(c: list[Any]) -> tuple[Cst, ...]:
    made: list[Cst] = []
    for child in c:
        if type(child) is list:
            made.extend(child)
        else:
            made.append(child)
    return tuple(made)


def _climb(parts: list[Any]) -> Cst:
    """Operands (nodes, or lists of prefix tokens and a node) and the operators between them, by precedence."""
    operands: list[Cst] = []
    operators: list[tuple[int, Any]] = []
    chained: set[int] = set()  # comparisons made here, which `a < b < c` joins

    def reduce(least: int) -> None:
        while operators and operators[-1][0] >= least:
            level, token = operators.pop()
            op = token.value
            right = operands.pop()
            if level == 11 or level == 3:
                operands.append(("unary", token.start, right[2], op, right))
                continue
            left = operands.pop()
            span = (left[1], right[2])
            if level == 4:
                if id(left) in chained:
                    middle = left[5] if left[0] == "compare" else left[5][5]
                    made: Cst = ("bool", *span, "and", left, ("compare", middle[1], right[2], op, middle, right))
                else:
                    made = ("compare", *span, op, left, right)
                chained.add(id(made))
                operands.append(made)
            elif level <= 2:
                operands.append(("bool", *span, op, left, right))
            else:
                operands.append(("binary", *span, op, left, right))

    for at, part in enumerate(parts):
        if at % 2:
            if part.value == "is" and type(parts[at + 1]) is list and parts[at + 1][0].value == "not":
                part.value = "is not"
                del parts[at + 1][0]
            level = _PRECEDENCE[part.value]
            reduce(level + 1 if level == 12 else level)
            operators.append((level, part))
        elif type(part) is list:
            for token in part[:-1]:
                operators.append((3 if token.value == "not" else 11, token))
            operands.append(part[-1])
        else:
            operands.append(part)
    reduce(0)
    return operands[0]
