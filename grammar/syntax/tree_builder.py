"""The actions of the grammar: from lists of tokens and finished parts to the nodes of `tree`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.lexer import Token
from mlcc.grammar.syntax.tree import Expr, Node, Stmt

_PRECEDENCE = {
    "or": 1, "and": 2, "not": 3, "in": 4, "not in": 4, "is": 4, "is not": 4,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10, "unary": 11, "**": 12,
}  # fmt: skip


class Builder:
    """One method per grammar rule; called with the rule's tokens and finished parts. Notes misuse in `problems`."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, int, str, str | None]] = []  # start, end, message, help

    # ------------------------------------------------------------ modules and statements

    def module(self, c: list[Any]) -> tree.Body:
        return _flatten(c)

    script = module

    def simple_line(self, c: list[Any]) -> list[Stmt]:
        statements: list[Stmt] = []
        for child in c:
            if type(child) is list:
                statements.extend(child)
            elif type(child) is not Token:
                statements.append(child)
        return statements

    def suite(self, c: list[Any]) -> tree.Body:
        return tuple(c[0]) if len(c) == 1 else _flatten(c[2:-1])

    def expression_statement(self, c: list[Any]) -> Stmt:
        return tree.Expression(c[0].start, c[0].end, c[0])

    def assign(self, c: list[Any]) -> Stmt | list[Stmt]:
        start, value = c[0].start, c[-1]
        statements: list[Stmt] = []
        for target in c[:-1:2]:
            self._check_target(target)
            statements.append(tree.Assign(start, value.end, target, None, value))
        return statements[0] if len(statements) == 1 else statements

    def annotate(self, c: list[Any]) -> Stmt:
        target = c[0]
        if not isinstance(target, _TARGETS):
            self._problem(target, "only one name can be annotated")
        value = c[4] if len(c) > 3 else None
        return tree.Assign(target.start, c[-1].end, target, c[2], value)

    def augmented(self, c: list[Any]) -> Stmt:
        target, mark, value = c
        if isinstance(target, tree.Display):
            self._problem(target, "cannot assign to this")
        else:
            self._check_target(target)
        return tree.AugAssign(target.start, value.end, target, mark.value[:-1], value)

    def return_statement(self, c: list[Any]) -> Stmt:
        return tree.Return(c[0].start, c[-1].end, c[1] if len(c) > 1 else None)

    def pass_statement(self, c: list[Any]) -> Stmt:
        return tree.Pass(c[0].start, c[0].end)

    def break_statement(self, c: list[Any]) -> Stmt:
        return tree.Break(c[0].start, c[0].end)

    def continue_statement(self, c: list[Any]) -> Stmt:
        return tree.Continue(c[0].start, c[0].end)

    def assert_statement(self, c: list[Any]) -> Stmt:
        return tree.Assert(c[0].start, c[-1].end, c[1], c[3] if len(c) > 2 else None)

    def dotted(self, c: list[Any]) -> Token:
        return Token("DOTTED", c[0].start, c[-1].end, ".".join(t.value for t in c[::2]))

    def imported(self, c: list[Any]) -> tuple[str, str | None, int]:
        """The dotted name, the name after `as`, and the end of both."""
        return (c[0].value, c[2].value if len(c) > 1 else None, c[-1].end)

    def import_names(self, c: list[Any]) -> Stmt:
        parts = c[1::2]
        names = tuple((path, name or path.partition(".")[0]) for path, name, _ in parts)
        return tree.Import(c[0].start, parts[-1][2], names)

    def import_from(self, c: list[Any]) -> Stmt:
        module, last = c[1].value, c[-1]
        names = tuple((f"{module}.{i[0]}", i[1] or i[0]) for i in c[3:] if type(i) is tuple)
        return tree.Import(c[0].start, last[2] if type(last) is tuple else last.end, names)

    # ------------------------------------------------------------ compound statements

    def for_loop(self, c: list[Any]) -> Stmt:
        self._check_target(c[1])
        return tree.For(c[0].start, c[4].end, c[1], c[3], c[5])

    def while_loop(self, c: list[Any]) -> Stmt:
        return tree.While(c[0].start, c[2].end, c[1], c[3])

    def conditional(self, c: list[Any]) -> Stmt:
        return tree.If(c[0].start, c[2].end, c[1], c[3], c[4] if len(c) > 4 else ())

    def elif_clause(self, c: list[Any]) -> tree.Body:
        return (self.conditional(c),)

    def else_clause(self, c: list[Any]) -> tree.Body:
        return c[2]  # type: ignore[no-any-return]

    def with_block(self, c: list[Any]) -> Stmt:
        return tree.With(c[0].start, c[-2].end, tuple(c[1:-2:2]), c[-1])

    def with_item(self, c: list[Any]) -> tuple[Expr, Expr | None]:
        if len(c) > 1:
            self._check_target(c[2])
            return (c[0], c[2])
        return (c[0], None)

    def tuple_target(self, c: list[Any]) -> Expr:
        return tree.Tuple(c[0].start, c[-1].end, tuple(c[::2]))

    def function(self, c: list[Any]) -> Stmt:
        at = _first_token(c)
        define, name, parameters, tail = c[at], c[at + 1], c[at + 3], c[at + 5 :]
        returns = tail[1] if len(tail) > 2 else None
        return tree.Def(
            define.start, tail[-2].end, name.value, name.start, name.end, parameters, returns, tuple(c[:at]), tail[-1]
        )

    def class_def(self, c: list[Any]) -> Stmt:
        at = _first_token(c)
        bases = c[at + 3][0] if len(c) - at > 4 else ()
        return tree.Class(c[at].start, c[-2].end, c[at + 1].value, bases, tuple(c[:at]), c[-1])

    def decorator(self, c: list[Any]) -> Expr:
        return c[1]  # type: ignore[no-any-return]

    def parameters(self, c: list[Any]) -> tuple[tree.Parameter, ...]:
        parameters = tuple(c[::2])
        self._check_unique(parameters, "parameter")
        return parameters

    def parameter(self, c: list[Any]) -> tree.Parameter:
        annotation = default = None
        for mark, value in zip(c[1::2], c[2::2], strict=True):
            if mark.type == "COLON":
                annotation = value
            else:
                default = value
        return tree.Parameter(c[0].start, c[0].end, c[0].value, annotation, default)

    # ------------------------------------------------------------ expressions

    def bare_tuple(self, c: list[Any]) -> Expr:
        return tree.Tuple(c[0].start, c[-1].end, tuple(c[::2]))

    def star(self, c: list[Any]) -> Expr:
        return tree.Star(c[0].start, c[1].end, c[1])

    def choose(self, c: list[Any]) -> Expr:
        return tree.IfExp(c[0].start, c[4].end, c[2], c[0], c[4])

    def lambda_function(self, c: list[Any]) -> Expr:
        parameters = c[1:-2:2]
        starred = [at for at, parameter in enumerate(parameters) if len(parameter) == 2]
        if starred and starred[0] != len(parameters) - 1:
            star, name = parameters[starred[0]]
            self.problems.append((star.start, name.end, f"`*{name.value}` must be the last parameter", None))
        names = tuple(parameter[-1].value for parameter in parameters)
        rest = names[-1] if starred else None
        return tree.Lambda(c[0].start, c[-1].end, names[: len(names) - bool(starred)], c[-1], rest)

    def lambda_parameter(self, c: list[Any]) -> list[Any]:
        return c

    def prefixed(self, c: list[Any]) -> list[Any]:
        return c

    def alone(self, c: list[Any]) -> Expr:
        return _climb(c)

    def chain(self, c: list[Any]) -> Expr:
        return _climb(c)

    def not_in(self, c: list[Any]) -> Any:
        c[1].value = "not in"
        c[1].start = c[0].start
        return c[1]

    def attribute(self, c: list[Any]) -> Expr:
        return tree.Attribute(c[0].start, c[2].end, c[0], c[2].value)

    def call(self, c: list[Any]) -> Expr:
        args, keywords = c[2]
        return tree.Call(c[0].start, c[3].end, c[0], args, keywords)

    def arguments(self, c: list[Any]) -> tuple[tuple[Expr, ...], tuple[tree.Keyword, ...]]:
        args: list[Expr] = []
        keywords: list[tree.Keyword] = []
        for item in c[::2]:
            if type(item) is tree.Keyword:
                keywords.append(item)
            else:
                if keywords:
                    self._problem(item, "positional argument after a keyword argument")
                args.append(item)
        if len(keywords) > 1:
            self._check_unique(keywords, "argument")
        return (tuple(args), tuple(keywords))

    def keyword(self, c: list[Any]) -> tree.Keyword:
        return tree.Keyword(c[0].start, c[0].end, c[0].value, c[2])

    def index(self, c: list[Any]) -> Expr:
        return tree.Index(c[0].start, c[3].end, c[0], c[2])

    def items(self, c: list[Any]) -> tuple[Expr, ...]:
        return tuple(c[::2])

    def bound(self, c: list[Any]) -> Any:
        return c[0] if c else None

    def slice(self, c: list[Any]) -> Expr:
        known = [p for p in c if p is not None]
        return tree.Slice(known[0].start, known[-1].end, c[0], c[2], c[4] if len(c) > 3 else None)

    def name(self, c: list[Any]) -> Expr:
        token = c[0]
        return tree.Name(token.start, token.end, token.value)

    def integer(self, c: list[Any]) -> Expr:
        token = c[0]
        return tree.Int(token.start, token.end, token.value)

    def floating(self, c: list[Any]) -> Expr:
        token = c[0]
        return tree.Float(token.start, token.end, token.value)

    def string(self, c: list[Any]) -> Expr:
        return tree.Str(c[0].start, c[-1].end, c[0].value if len(c) == 1 else "".join(t.value for t in c))

    def true(self, c: list[Any]) -> Expr:
        return tree.Const(c[0].start, c[0].end, True)

    def false(self, c: list[Any]) -> Expr:
        return tree.Const(c[0].start, c[0].end, False)

    def none(self, c: list[Any]) -> Expr:
        return tree.Const(c[0].start, c[0].end, None)

    def ellipsis(self, c: list[Any]) -> Expr:
        return tree.Const(c[0].start, c[0].end, Ellipsis)

    def parentheses(self, c: list[Any]) -> Expr:
        """`()`, or an expression, which now spans its parentheses."""
        if len(c) == 2:
            return tree.Tuple(c[0].start, c[1].end, ())
        inside: Expr = c[1]
        inside.start, inside.end = c[0].start, c[2].end
        return inside

    def tuple_display(self, c: list[Any]) -> Expr:
        return tree.Tuple(c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def list_display(self, c: list[Any]) -> Expr:
        return tree.List(c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def dict_display(self, c: list[Any]) -> Expr:
        return tree.Dict(c[0].start, c[-1].end, tuple(c[1:-1:2]))

    def entry(self, c: list[Any]) -> tuple[Expr, Expr]:
        return (c[0], c[2])

    # ------------------------------------------------------------ what the grammar cannot say

    def _problem(self, at: Node, message: str, help: str | None = None) -> None:
        self.problems.append((at.start, at.end, message, help))

    def _check_target(self, target: Expr) -> None:
        stack = [target]
        while stack:
            top = stack.pop()
            if isinstance(top, _TARGETS):
                continue
            if isinstance(top, tree.Display):
                stack.extend(reversed(top.items))
            elif isinstance(top, tree.Star):
                stack.append(top.value)
            else:
                help = "write `==` for a comparison" if isinstance(top, tree.Infix) else None
                if isinstance(top, tree.Call):
                    help = "an element of a buffer is written with square brackets: `A[i]`"
                self._problem(top, f"cannot assign to {_NOUNS.get(type(top), 'this')}", help)

    def _check_unique(self, named: Sequence[tree.Parameter | tree.Keyword], what: str) -> None:
        seen = set()
        for node in named:
            if node.name in seen:
                self._problem(node, f"{what} `{node.name}` is given twice")
            seen.add(node.name)


_TARGETS = (tree.Name, tree.Attribute, tree.Index)
_NOUNS: dict[type[Expr], str] = {
    tree.Call: "a call", tree.Int: "a number", tree.Float: "a number", tree.Str: "a string", tree.Const: "a constant",
    tree.Dict: "a dict", tree.Lambda: "a lambda", tree.Compare: "a comparison", tree.Binary: "an expression",
    tree.Bool: "an expression", tree.Unary: "an expression", tree.IfExp: "an expression",
}  # fmt: skip


def _first_token(c: list[Any]) -> int:
    """Return the index of the first token, which is behind the decorators."""
    return next(i for i, part in enumerate(c) if type(part) is Token)


def _flatten(c: list[Any]) -> tree.Body:
    statements: list[Stmt] = []
    for child in c:
        if type(child) is list:
            statements.extend(child)
        else:
            statements.append(child)
    return tuple(statements)


def _climb(parts: list[Any]) -> Expr:
    """Operands (nodes, or lists of prefix tokens and a node) and the operators between them, by precedence."""
    operands: list[Expr] = []
    operators: list[tuple[int, Any]] = []
    chained: dict[Expr, Expr] = {}  # the right operands of comparisons made here, which `a < b < c` joins

    def reduce(least: int) -> None:
        while operators and operators[-1][0] >= least:
            level, token = operators.pop()
            op = token.value
            right = operands.pop()
            if level == 11 or level == 3:
                operands.append(tree.Unary(token.start, right.end, op, right))
                continue
            left = operands.pop()
            start, end = left.start, right.end
            if level == 4:
                middle = chained.get(left)
                if middle is None:
                    compared: Expr = tree.Compare(start, end, op, left, right)
                else:
                    link = tree.Compare(middle.start, end, op, middle, right)
                    compared = tree.Bool(start, end, "and", left, link)
                chained[compared] = right
                operands.append(compared)
            elif level <= 2:
                operands.append(tree.Bool(start, end, op, left, right))
            else:
                operands.append(tree.Binary(start, end, op, left, right))

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
