"""Kernels given as text: sizes replace placeholders, and code replaces calls of externs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.folding import Folding


def read(name: str, **values: object) -> tir.PrimFunc:
    """Return the function of a text, with values in place of its placeholders."""
    return _read(name, tuple(sorted(values.items())))


@functools.lru_cache(maxsize=64)
def _read(name: str, values: tuple[tuple[str, object], ...]) -> tir.PrimFunc:
    from mlcc.grammar.parser import parse

    source = (files(__package__) / f"{name}.mlc").read_text(encoding="utf-8")
    filled = Template(source).substitute({k: str(v) for k, v in values})
    (func,) = parse(filled, name=f"<attention, {name}>").functions.values()
    assert isinstance(func, tir.PrimFunc)
    return func


class Text(Folding):
    """A copy of a text's kernel, with expressions for its parameters. Methods `call_NAME` give what stands for calls of
    externs in expressions, `do_NAME` statements for those that stand alone."""

    def __init__(self, text: tir.PrimFunc, given: Sequence[Expr]) -> None:
        super().__init__(dict(zip(text.params, given, strict=True)))
        self.text = text
        self.vars: dict[tir.Var, tir.Var] = {}
        self.buffers: dict[tir.Buffer, tir.Buffer] = {}
        self.by_data: dict[tir.Var, tir.Buffer] = {}
        self.scratch: list[tir.Buffer] = []  # of what calls stand for

    # ------------------------------------------------------------ the text's own variables and buffers

    def var(self, node: tir.Var) -> Expr:
        return self.values.get(node) or self.binder(node)

    def binder(self, node: tir.Var) -> tir.Var:
        if node not in self.vars:
            self.vars[node] = tir.Var(node.name, node.dtype, node.pointer)
        return self.vars[node]

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        if node not in self.buffers:
            renewed = replace(node, data=self.binder(node.data))
            self.buffers[node] = self.by_data[renewed.data] = renewed
        return self.buffers[node]

    def code(self) -> tuple[tuple[tir.Buffer, ...], tuple[Stmt, ...]]:
        """Return the buffers and the statements of the kernel."""
        root = self.text.root
        assert root is not None
        buffers = [self.buffer(b) for b in root.alloc_buffers]
        body = self.body(root.body)
        return (*buffers, *self.scratch), body

    # ------------------------------------------------------------ calls

    def expr_call(self, node: tir.Call) -> Expr:
        call = super().expr_call(node)
        assert isinstance(call, tir.Call)
        name, args = _extern(call)
        return getattr(self, f"call_{name}")(*args) if name else call

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        name, args = _extern(node.value)
        if not name:
            return super().stmt_evaluate(node)
        given = self.exprs(tuple(args))
        return getattr(self, f"do_{name}")(*given)  # type: ignore[no-any-return]


def _extern(node: Any) -> tuple[str, Sequence[Expr]]:
    match node:
        case tir.Call(op=tir.Op("tir.call_extern" | "tir.call_pure_extern"), args=(tir.StringImm(value=name), *args)):
            return ("", ()) if name.startswith("__") else (name, args)  # those are CUDA's own
    return "", ()
