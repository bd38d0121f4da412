"""The LALR tables made from mlc.lark, in plain data; kept between processes in a private cache folder.

Lark reads the grammar and makes the automaton. What it made is flattened here, so that a process that finds the tables
in the cache needs neither Lark nor the time to make them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import stat
from typing import Any

from mlcc.cache.folder import is_private, private_folder

_FORMAT = 1  # of the flattened tables

# {"terminals": {keyword or mark: its name},
#  "start": {start rule: state}, "end": {start rule: state},
#  "rules": [[action or "", size, result, [positions whose lists are spliced in]], ...],
#  "states": [[{terminal: state to go to, or -1 - rule to reduce}, {result: state}], ...]}
Tables = dict[str, Any]


def load() -> Tables:
    """The tables, from the user's cache where there is a safe one."""
    path = cache_file()
    if path is not None:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            digest, _, text = file.read().partition("\n")
            if digest == _digest(text):
                return json.loads(text)  # type: ignore[no-any-return]
    tables = make()
    if path is not None:
        _save(path, tables)
    return tables


def grammar_text() -> str:
    """The text of the grammar file."""
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "mlc.lark")
    text: bytes = __loader__.get_data(path)  # type: ignore[name-defined]  # from a folder or an archive
    return text.decode()


def make(**options: Any) -> Tables:
    """The tables of the grammar, made by Lark; `options` are Lark's."""
    from lark import Lark
    from lark.lexer import Lexer as LarkLexer

    class NoLexer(LarkLexer):
        """A lexer for Lark that is never used."""

        __future_interface__ = 2

        def __init__(self, conf: object) -> None:
            pass

        def lex(self, state: object, parser_state: object) -> Any:
            return iter(())

    starts = ["module", "script"]
    parser = Lark(grammar_text(), parser="lalr", lexer=NoLexer, start=starts, keep_all_tokens=True, **options)
    return _flatten(parser, starts)


def _flatten(parser: Any, starts: list[str]) -> Tables:
    configurations = {start: parser.parse_interactive(start=start).parser_state.parse_conf for start in starts}
    states = configurations[starts[0]].states
    rules: dict[int, int] = {}
    flat_rules: list[list[Any]] = []
    flat_states: list[Any] = [None] * len(states)
    number = {state: i for i, state in enumerate(states)}
    for state, actions in states.items():
        on_terminal: dict[str, int] = {}
        on_result: dict[str, int] = {}
        for symbol, (action, target) in actions.items():
            if "SHIFT" in str(action).upper():
                (on_terminal if symbol.isupper() or symbol == "$END" else on_result)[symbol] = number[target]
                continue
            at = rules.get(id(target))
            if at is None:
                at = rules[id(target)] = len(flat_rules)
                flat_rules.append(_flat_rule(target))
            on_terminal[symbol] = -1 - at
        flat_states[number[state]] = [on_terminal, on_result]
    return {
        "terminals": {t.pattern.value: t.name for t in parser.terminals if t.pattern is not None},
        "start": {start: number[c.start_state] for start, c in configurations.items()},
        "end": {start: number[c.end_state] for start, c in configurations.items()},
        "rules": flat_rules,
        "states": flat_states,
    }


def _flat_rule(rule: Any) -> list[Any]:
    """Action, size, result, spliced positions. No action: the only part stands for the whole; `*`: a list of parts."""
    origin = rule.origin.name
    size = len(rule.expansion)
    spliced = [i for i, s in enumerate(rule.expansion) if not s.is_term and s.name.startswith("_")]
    if origin.startswith("_"):
        action = "*"
    elif rule.alias is None and rule.options.expand1 and size == 1 and not spliced:
        action = ""
    else:
        action = rule.alias or origin
    return [action, size, origin, spliced]


def cache_file() -> str | None:
    """Return the path of the cached tables, in a folder that only this user can write; None if there is none."""
    spec = importlib.util.find_spec("lark")
    lark = os.stat(spec.origin) if spec is not None and spec.origin is not None else None
    version = (_FORMAT, lark.st_size, lark.st_mtime_ns) if lark is not None else (_FORMAT,)
    key = hashlib.sha256(f"{version} {grammar_text()}".encode()).hexdigest()
    folder = private_folder()
    if folder is None:
        return None
    path = os.path.join(folder, f"grammar-{key[:24]}.json")
    try:
        return path if not os.path.lexists(path) or is_private(path, stat.S_ISREG) else None
    except OSError:
        return None


def _save(path: str, tables: Tables) -> None:
    """Write the tables atomically, by a temporary file and a rename; failures are ignored."""
    part = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        text = json.dumps(tables, separators=(",", ":"))
        with open(handle, "w", encoding="ascii") as file:
            file.write(f"{_digest(text)}\n{text}")
        os.replace(part, path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
