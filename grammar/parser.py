"""Text to IR: `parse`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.errors import CompileError, Label, Source, Span, did_you_mean
from mlcc.grammar import attribute_values, constants
from mlcc.grammar.annotations import result_annotation
from mlcc.grammar.context import Scope, Skip, TypeVar, Walk
from mlcc.grammar.syntax import parse_syntax, read_source
from mlcc.grammar.tir_walk import walk_prim_func
from mlcc.grammar.tree import Cst
from mlcc.grammar.values import Evaluator
from mlcc.ir.module import IRModule
from mlcc.ir.relax import GlobalVar
from mlcc.recursion import deep

_HEADER = re.compile(r"#\s*(?:from\s+[\w.]+\s+import\s+[\w, ]+|import\s+[\w.]+(?:\s+as\s+\w+)?)\s*$")
_KINDS = {
    "T.prim_func": "prim", "R.function": "relax", "prim_func": "prim", "T.function": "prim",
}  # fmt: skip
