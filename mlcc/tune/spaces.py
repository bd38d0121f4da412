"""Design spaces by the words of `--space`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.tune.contracts import Space, Task

# word -> "module:function" that gives the space of a task
SPACE_FACTORIES = {"rules": "mlcc.tune.rule_space:RuleSpace", "generic": "mlcc.tune.strategy_space:GenericSpace"}
SCRIPT = "mlcc.tune.strategy_space:ScriptSpace"  # takes the path of a .mls file as well


def space_factory(word: str) -> Callable[[Task], Space]:
    """Return the factory of design spaces that a word names. Raises CompileError E1133 for an unknown word."""
    if word.endswith(".mls"):
        return partial(_import_name(SCRIPT), path=word)
    if word not in SPACE_FACTORIES:
        help = did_you_mean(word, SPACE_FACTORIES) or f"there are {', '.join(SPACE_FACTORIES)}, or a file FILE.mls"
        raise CompileError(error("E1133", f"there is no design space `{word}`", help=help))
    return _import_name(SPACE_FACTORIES[word])  # type: ignore[no-any-return]


def _import_name(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
