"""The LALR automaton: runs tokens through the tables, building the tree or only checking."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mlcc.grammar.syntax.lexer import Token
from mlcc.grammar.syntax.tables import Tables

Action = Callable[[list[Any]], Any]


class UnexpectedToken(Exception):
    """A token that is not allowed at its position."""


class Automaton:
    """The tables, with the actions of one builder bound to their rules."""

    def __init__(self, tables: Tables, builder: object) -> None:
        self.terminals: dict[str, str] = tables["terminals"]
        self._start: dict[str, int] = tables["start"]
        self._end: dict[str, int] = tables["end"]
        self._rules = [(_action(rule, builder), rule[1], rule[2]) for rule in tables["rules"]]
        self._on_terminal: list[dict[str, int]] = [state[0] for state in tables["states"]]
        self._on_result: list[dict[str, int]] = [state[1] for state in tables["states"]]
        self._units: dict[tuple[int, int, str], int] = {}  # found runs of rules that only rename

    def parse(self, tokens: Iterable[Token], start: str) -> Any:
        """Parse tokens that end in `$END` and return the result of the start rule's action. Raises Refused."""
        on_terminal, on_result, rules, end = self._on_terminal, self._on_result, self._rules, self._end[start]
        units = self._units
        state = self._start[start]
        states: list[int] = [state]
        values: list[Any] = []
        for token in tokens:
            kind = token.type
            while True:
                target = on_terminal[state].get(kind)
                if target is None:
                    raise UnexpectedToken
                if target >= 0:
                    state = target
                    states.append(state)
                    values.append(token)
                    break
                action, size, result = rules[-1 - target]
                if action is None:  # the part stands for the whole, here and mostly several times in a row
                    before = states[-2]
                    key = (before, state, kind)
                    state = units.get(key, -1)
                    if state < 0:
                        state = units[key] = self._through_units(before, result, kind)
                    states[-1] = state
                    continue
                if size:
                    node = action(values[-size:])
                    del values[-size:], states[-size:]
                    values.append(node)
                else:
                    values.append(action([]))
                state = on_result[states[-1]][result]
                states.append(state)
                if state == end:
                    return values[-1]
        raise UnexpectedToken

    def _through_units(self, before: int, result: str, kind: str) -> int:
        """The state above `before` once `result`, and whatever it alone amounts to before `kind`, is reduced."""
        while True:
            state = self._on_result[before][result]
            target = self._on_terminal[state].get(kind)
            if target is None or target >= 0 or self._rules[-1 - target][0] is not None:
                return state
            result = self._rules[-1 - target][2]

    # ------------------------------------------------------------ checking without building

    def begin(self, start: str) -> list[int]:
        """The stack of states before any token."""
        return [self._start[start]]

    def step(self, states: list[int], kind: str) -> bool:
        """Advance `states` over a token of that kind; False, and `states` undefined, if the token is not allowed."""
        while True:
            target = self._on_terminal[states[-1]].get(kind)
            if target is None:
                return False
            if target >= 0:
                states.append(target)
                return True
            _, size, result = self._rules[-1 - target]
            if size:
                del states[-size:]
            states.append(self._on_result[states[-1]][result])
            if kind == "$END" and states[-1] in self._end.values():
                return True

    def accepted(self, states: list[int]) -> set[str]:
        """The kinds of tokens that are allowed next."""
        return {kind for kind in self._on_terminal[states[-1]] if kind != "$END" and self.step(list(states), kind)}


def _action(rule: list[Any], builder: object) -> Action | None:
    name, _, _, spliced = rule
    if name == "":
        return None
    if name == "*":
        return _grow if spliced == [0] else _splicer(list, spliced) if spliced else list
    action: Action = getattr(builder, name)
    return _splicer(action, spliced) if spliced else action


def _grow(parts: list[Any]) -> list[Any]:
    """Extend a list in place by further parts, so that long lists take linear time."""
    items: list[Any] = parts[0]
    items.extend(parts[1:])
    return items


def _splicer(action: Action, spliced: list[int]) -> Action:
    """`action` with the lists at some positions taken apart."""
    last_first = sorted(spliced, reverse=True)

    def spread(parts: list[Any]) -> Any:
        for at in last_first:
            parts[at : at + 1] = parts[at]
        return action(parts)

    return spread
