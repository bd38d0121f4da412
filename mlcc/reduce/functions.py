"""Edits of a module's functions as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import EMPTY, replace
from mlcc.reduce.program import Program


def with_function(program: Program, name: str, func: Func) -> Program:
    """Return the program with one function replaced."""
    return with_functions(program, {**program.module.functions, name: func})


def with_functions(program: Program, functions: dict[str, Func]) -> Program:
    module = program.module
    return dataclasses.replace(program, module=IRModule(functions, module.attrs, module.name, module.global_infos))


class DropFunctions:
    """Remove functions."""

    def sites(self, program: Program) -> Sequence[str]:
        return list(program.module.functions)[::-1]

    def apply(self, program: Program, chosen: Sequence[str]) -> Program | None:
        kept = {name: func for name, func in program.module.functions.items() if name not in chosen}
        return with_functions(program, kept) if kept else None


class DropAttributes:
    """Remove attributes of functions and of the module, other than the names of functions."""

    def sites(self, program: Program) -> Sequence[tuple[str | None, str]]:
        places: list[tuple[str | None, str]] = [(None, key) for key in program.module.attrs]
        for name, func in program.module.functions.items():
            places += [(name, key) for key in func.attrs if key != "global_symbol"]
        return places

    def apply(self, program: Program, chosen: Sequence[tuple[str | None, str]]) -> Program | None:
        module = program.module
        functions = dict(module.functions)
        attrs = module.attrs
        for name, key in chosen:
            if name is None:
                attrs = attrs.without(key)
            else:
                functions[name] = functions[name].without_attr(key)
        return dataclasses.replace(program, module=IRModule(functions, attrs, module.name, module.global_infos))


class DropParameters:
    """Remove parameters; those that are used make the candidate invalid."""

    def sites(self, program: Program) -> Sequence[tuple[str, int]]:
        return [(name, i) for name, func in program.module.functions.items() for i in range(len(func.params))][::-1]

    def apply(self, program: Program, chosen: Sequence[tuple[str, int]]) -> Program | None:
        functions = dict(program.module.functions)
        for name in dict.fromkeys(name for name, _ in chosen):
            dropped = {i for other, i in chosen if other == name}
            functions[name] = _without_parameters(functions[name], dropped)
        return with_functions(program, functions)


def _without_parameters(func: Func, dropped: set[int]) -> Func:
    params = tuple(p for i, p in enumerate(func.params) if i not in dropped)
    if isinstance(func, tir.PrimFunc):
        buffers = tuple(b for i, b in enumerate(func.buffers) if i not in dropped)
        return replace(func, params=params, buffers=buffers)
    from mlcc.relax.construct import make_function

    attrs = func.attrs.without("num_input") if "num_input" in func.attrs else func.attrs
    return make_function(params, func.body, attrs or EMPTY, None, func.is_pure)  # type: ignore[arg-type]


class PublishFunctions:
    """Make private functions public and remove what calls them, so that a kernel can stand alone."""

    def sites(self, program: Program) -> Sequence[str]:
        functions = program.module.functions
        return [name for name, func in functions.items() if func.is_private and len(functions) > 1]

    def apply(self, program: Program, chosen: Sequence[str]) -> Program | None:
        from mlcc.relax.queries import callees

        functions = program.module.functions
        kept = set(chosen)
        worklist = list(chosen)
        while worklist:
            for name in callees(functions[worklist.pop()]):
                if name in functions and name not in kept:
                    kept.add(name)
                    worklist.append(name)
        if len(kept) == len(functions):
            return None
        published = {}
        for name, func in functions.items():
            if name in kept:
                published[name] = _public(func, name) if name in chosen else func
        return with_functions(program, published)


def _public(func: Func, name: str) -> Func:
    public: Func = func.with_attr("global_symbol", name)
    return public.without_attr("Primitive") if isinstance(public, relax.Function) else public
