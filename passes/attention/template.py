"""Kernel templates: sizes replace placeholders, and code replaces calls of externs."""

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


def load_template(name: str, **values: object) -> tir.PrimFunc:
    """Return the TIR function of a template, with values substituted for its placeholders."""
    return _parse_template(name, tuple(sorted(values.items())))


@functools.lru_cache(maxsize=64)
def _parse_template(name: str, values: tuple[tuple[str, object], ...]) -> tir.PrimFunc:
    from mlcc.grammar.parser import parse

    source = (files(__package__) / f"{name}.mlc").read_text(encoding="utf-8")
    filled = Template(source).substitute({k: str(v) for k, v in values})
    (func,) = parse(filled, name=f"<attention, {name}>").functions.values()
    assert isinstance(func, tir.PrimFunc)
    return func


class KernelTemplate(Folding):
    """Copy a template's kernel, with expressions for its parameters.

    A method `call_NAME` returns the replacement of a call of the extern NAME in an expression; `do_NAME` returns the
    statements that replace a call of its own.
    """

    def __init__(self, text: tir.PrimFunc, arguments: Sequence[Expr]) -> None:
        super().__init__(dict(zip(text.params, arguments, strict=True)))
        self.text = text
        self.vars: dict[tir.Var, tir.Var] = {}
        self.buffers: dict[tir.Buffer, tir.Buffer] = {}
        self.by_data: dict[tir.Var, tir.Buffer] = {}
        self.scratch: list[tir.Buffer] = []  # buffers that the expansions of calls allocate

    # ------------------------------------------------------------ the template's variables and buffers

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

    def instantiate(self) -> tuple[tuple[tir.Buffer, ...], tuple[Stmt, ...]]:
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
        name, args = _template_call(call)
        return getattr(self, f"call_{name}")(*args) if name else call

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        name, args = _template_call(node.value)
        if not name:
            return super().stmt_evaluate(node)
        arguments = self.exprs(tuple(args))
        return getattr(self, f"do_{name}")(*arguments)  # type: ignore[no-any-return]


def _template_call(node: Any) -> tuple[str, Sequence[Expr]]:
    match node:
        case tir.Call(op=tir.Op("tir.call_extern" | "tir.call_pure_extern"), args=(tir.StringImm(value=name), *args)):
            return ("", ()) if name.startswith("__") else (name, args)  # CUDA's own functions
    return "", ()
