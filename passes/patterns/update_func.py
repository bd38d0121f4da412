"""The pass `update-func`: replace a function by one from another file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax
from mlcc.ir.module import Func, IRModule
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.patterns.rewrite import import_functions, substitute_functions
from mlcc.passes.patterns.rules import transitive_callees
from mlcc.relax.construct import function_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import callees


@dataclass(frozen=True)
class UpdateFunc(Pass):
    """Replace a function by the one of the same name in another file, or by the only one of that file.

    The functions that it calls are imported as private ones, and renamed if their names are taken. If functions of the
    module call it, its parameters and results must not change. Functions that are no longer called stay until
    `dead-code`.

    Before:  def mm(A, B, C): ...                            # as written
    After:   def mm(A, B, C): ...                            # update-func{file=tuned.mlc func=mm}
    """

    name: ClassVar[str] = "update-func"
    file: str = field(metadata={"file": True})
    func: str = "main"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        from mlcc.files import read_bytes
        from mlcc.grammar.parser import parse
        from mlcc.grammar.syntax.reader import decode
        from mlcc.verify import check

        if self.func not in module:
            help = did_you_mean(self.func, module)
            raise CompileError(error("E0506", f"`{self.name}`: the module has no function `{self.func}`", help=help))
        path = ctx.path(self.file)
        other = parse(decode(read_bytes(path), path), name=path, folder=os.path.dirname(path) or ".")
        check(other)
        return updated(module, self.func, other, path)


def updated(module: IRModule, name: str, other: IRModule, where: str) -> IRModule:
    """Return the module with the function `name` taken from another module. Raises CompileError E0544."""
    source = name if name in other else next(iter(other)) if len(other) == 1 else None
    if source is None:
        message = f"{where} has several functions, none of which is `{name}`"
        raise CompileError(error("E0544", message, help=did_you_mean(name, other) or f"they are {', '.join(other)}"))
    func = other[source]
    callers = [n for n, f in module.functions.items() if n != name and name in callees(f)]
    problem = _mismatch(module[name], func) if callers else None
    if problem:
        message = f"`{source}` of {where} cannot replace `{name}`, which `{callers[0]}` calls: {problem}"
        raise CompileError(error("E0544", message, func.span))
    builder = ModuleBuilder(module)
    names = {source: relax.GlobalVar(name, function_info(func))}
    order = [n for n in transitive_callees(func, other, allowed=source) if n != source]
    import_functions(order, other, builder, names)
    replacement = substitute_functions(func, names)
    old = module[name]
    replacement = (
        replacement.without_attr("global_symbol") if old.is_private else replacement.with_attr("global_symbol", name)
    )
    builder.module.functions[name] = replacement
    return builder.module


def _mismatch(old: Func, new: Func) -> str | None:
    """Return why call sites of `old` cannot call `new`, None if they can."""
    from mlcc.ir.visit import substitute
    from mlcc.ops.relations import SubtypeCheck, check_subtype
    from mlcc.passes.patterns.pattern_match import Symbols

    if type(old) is not type(new):
        kinds = ["a relax function" if isinstance(f, relax.Function) else "a PrimFunc" for f in (new, old)]
        return f"it is {kinds[0]}, not {kinds[1]}"
    mine, theirs = function_info(new), function_info(old)
    if len(mine.params or ()) != len(theirs.params or ()):
        return f"it has {len(mine.params or ())} parameters, not {len(theirs.params or ())}"
    symbols = Symbols()
    for number, (a, b) in enumerate(zip(mine.params or (), theirs.params or (), strict=True)):
        if not symbols.unify(a, b):
            return f"its parameter {number} is {a}, not {b}"
    ret = substitute(mine.ret, symbols.values)
    return (
        f"its result is {mine.ret}, not {theirs.ret}"
        if check_subtype(theirs.ret, ret) is not SubtypeCheck.COVERS
        else None
    )
