"""Visitors and mutators under the names by which TVM's programs import them."""

from __future__ import annotations

from typing import TypeVar

from mlcc.relax.dispatch import Dispatcher as ExprFunctor
from mlcc.relax.mutator import PyExprMutator
from mlcc.relax.visitor import PyExprVisitor

__all__ = ["ExprFunctor", "PyExprMutator", "PyExprVisitor", "mutator", "visitor"]

Class = TypeVar("Class", bound=type)


def visitor(cls: Class) -> Class:
    """The class as it is: classes of visitors need no decorator here."""
    return cls


def mutator(cls: Class) -> Class:
    """The class as it is: classes of mutators need no decorator here."""
    return cls
