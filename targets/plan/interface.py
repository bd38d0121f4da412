"""The public functions of a module as callers see them, from their declarations: before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.runtime.manifest import FunctionSpec, read_function
from mlcc.runtime.signature import Signature
from mlcc.targets.plan.dims import Dims
from mlcc.targets.plan.exports import is_exported
from mlcc.targets.plan.manifest import function_facts
from mlcc.targets.plan.params import Parameters
from mlcc.targets.plan.prim import entry_symbols, prim_parameters
from mlcc.targets.plan.steps import HostFunction, Scope


class DeclaredFunctions:
    """The public functions of a module by name, with the parameters that the compiled ones will have.

    Their results are not known yet: the signature of a relax function has none.
    """

    def __init__(self, module: IRModule) -> None:
        """Raises CompileError for parameters that no caller can pass."""
        self._declared = {name: func for name, func in module.functions.items() if is_exported(func)}
        self.functions = {n: Signature(_declared(n, f, module.functions)) for n, f in self._declared.items()}

    def __getitem__(self, name: str) -> Signature:
        return self.functions[name]

    def result_count(self, name: str) -> int:
        """Return the number of arrays that a function returns, or that a PrimFunc writes."""
        func = self._declared[name]
        if isinstance(func, tir.PrimFunc):
            return len(self[name].written_names)
        return _count(func.body.body.struct_info)


def _count(info: relax.StructInfo | None) -> int:
    return sum(map(_count, info.fields)) if isinstance(info, relax.TupleStructInfo) else 1


def _declared(name: str, func: Func, functions: Mapping[str, Func]) -> FunctionSpec:
    """Return the interface of a public function, with an empty tuple as result. `functions` are those of the module.

    Raises CompileError for parameters that no caller can pass.
    """
    dims = Dims()
    if isinstance(func, tir.PrimFunc):
        symbols, params = prim_parameters(func, dims, functions)
        host = HostFunction(name, "prim", params, None, entry_symbols(symbols), [], dims)
        return read_function(name, function_facts(host, ""))
    assert isinstance(func, relax.Function)
    parameters, scope = Parameters(dims), Scope(name)
    for param in func.params:
        parameters.find_symbols(param.struct_info, scope)
    params = tuple(parameters.declare(p.name, p.struct_info, scope, p.span)[0] for p in func.params)
    host = HostFunction(name, "relax", params, None, tuple(parameters.symbols), [], dims)
    return read_function(name, {**function_facts(host, ""), "results": {"kind": "tuple", "fields": []}})
