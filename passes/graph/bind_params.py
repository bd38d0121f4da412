"""The pass `bind-params`: replace parameters by constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.symbolic import bind_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import make_function, tensor_info

if TYPE_CHECKING:
    import numpy as np

    from mlcc.ir.dtypes import DType
    from mlcc.runtime.npz import Validator


@dataclass(frozen=True)
class BindParams(Pass):
    """Replace the parameters of a function by the arrays of the same names in an .npz or .safetensors file.

    The file may be an index of several files, `model.safetensors.index.json`, or a folder of them. Parameters without
    an array stay. Symbolic sizes in the shapes of bound parameters take the arrays' sizes everywhere in the function.
    Every array must have a parameter, unless `ignore_extra` is set. An array name that is not an identifier, as in
    weights of other frameworks, also matches the parameter that spells it as one: `conv1.weight` matches
    `conv1_weight` and `p_conv1_weight`.

    Before:  def main(x: R.Tensor((1, n), "float32"), w: R.Tensor((m, n), "float32"))
    After:   def main(x: R.Tensor((1, 784), "float32"))              # bind-params{params=w.npz}
    """

    name: ClassVar[str] = "bind-params"
    params: str = field(metadata={"file": True})
    func: str = "main"
    ignore_extra: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        func = relax_function(module, self.func, self.name)
        arrays = load_arrays(self.params, ctx)
        new_module = module.copy()
        new_module.functions[self.func] = bind(func, arrays, self.func, module, self.ignore_extra)
        return new_module


def relax_function(module: IRModule, name: str, who: str) -> relax.Function:
    """Return the relax function of a given name. Raise CompileError E0506 if there is none."""
    func = module.functions.get(name)
    if isinstance(func, relax.Function):
        return func
    candidates = [n for n, f in module.functions.items() if isinstance(f, relax.Function)]
    help = did_you_mean(name, candidates) or f"its relax functions are {', '.join(candidates) or 'none'}"
    raise CompileError(error("E0506", f"`{who}`: the module has no relax function `{name}`", help=help))


def load_arrays(path: str, ctx: PassContext) -> Mapping[str, np.ndarray]:
    """Return the arrays of a file, or of a folder or index of files, that a pipeline names.

    Raise CompileError E0510 if the pipeline may not name it.
    """
    import os

    from mlcc.array_files import load_arrays
    from mlcc.array_folders import listed_array_files

    full_path = ctx.path(path)
    for part in listed_array_files(full_path):
        ctx.path(os.path.abspath(part))
    return load_arrays(full_path)


def bind(
    func: relax.Function, arrays: Mapping[str, Any], name: str, module: IRModule, ignore_extra: bool = False
) -> relax.Function:
    """Return the function with the parameters that `arrays` names bound to constants. Raise CompileError E0507."""
    from mlcc.array_files import array_names_by_param, read_array
    from mlcc.grammar.constants import as_tensor

    by_name: dict[str, list[relax.Var]] = {}
    for param in func.params:
        by_name.setdefault(param.name, []).append(param)
    errors: list[Diagnostic] = []
    constants: dict[relax.Var, relax.Constant] = {}
    sizes: dict[tir.Var, tir.Expr] = {}
    names = array_names_by_param(arrays, list(by_name))
    owner = {key: param for param, keys in names.items() for key in keys}
    for key in arrays:
        params = by_name.get(owner.get(key, ""), [])
        rivals = [f"`{other}`" for other in names.get(owner.get(key, ""), []) if other != key]
        if rivals:
            help = f"`{key}` and {rivals[0]} are both spelled `{owner[key]}`: rename the parameter, or the arrays"
            errors.append(error("E0507", f"`{name}` has one parameter for two arrays", func.span, help=help))
            continue
        if not params and ignore_extra:
            continue
        if len(params) != 1:
            count_text = "no parameter" if not params else "several parameters"
            help = did_you_mean(key, by_name) or f"its parameters are {', '.join(by_name) or 'none'}"
            help += "; the option ignore-extra=true leaves out what has none" if not params else ""
            errors.append(error("E0507", f"`{name}` has {count_text} `{key}`", func.span, help=help))
            continue
        dtype = getattr(params[0].struct_info, "dtype", None)
        try:
            data = as_tensor(read_array(arrays, key, _array_checker(params[0], dtype, sizes)), dtype, key)
        except CompileError as exc:
            errors += exc.diagnostics
            continue
        constants[params[0]] = relax.Constant(data, tensor_info(map(_int64, data.shape), data.dtype))
    if errors:
        raise CompileError(errors)
    remaining = tuple(p for p in func.params if p not in constants)
    partial = replace(func, params=remaining)
    bound = bind_symbols(partial, sizes, constants, module)
    return make_function(bound.params, bound.body, bound.attrs, bound.ret_struct_info, bound.is_pure)


def _int64(value: int) -> tir.Expr:
    from mlcc.ir.construct import const

    return const(value, "int64")


def _array_checker(param: relax.Var, dtype: DType | None, sizes: dict[tir.Var, tir.Expr]) -> Validator:
    """Return a function that checks an array against its parameter, before memory for the array is allocated.

    It raises CompileError E0507 for an array that does not fit, and returns True if the parameter's shape is constant.
    """
    from mlcc.grammar.constants import constant_type

    def check(shape: tuple[int, ...], stored: np.dtype[Any]) -> bool:
        problem = _mismatch(param, *constant_type(shape, stored, dtype, param.name), sizes)
        if problem:
            raise CompileError(error("E0507", f"the array for parameter `{param.name}` {problem}", param.span))
        dims = getattr(param.struct_info, "dims", None)
        return dims is not None and all(isinstance(d, tir.IntImm) for d in dims)

    return check


def _mismatch(param: relax.Var, dtype: DType, shape: tuple[int, ...], sizes: dict[tir.Var, tir.Expr]) -> str | None:
    """Return why an array cannot be bound to a parameter, or None. Adds extents of symbolic dimensions to `sizes`."""
    info = param.struct_info
    if not isinstance(info, relax.TensorStructInfo):
        return None if isinstance(info, relax.ObjectStructInfo) or info is None else f"is a tensor, not {info}"
    if info.dtype is not None and info.dtype is not dtype:
        return f"has dtype {dtype}, not {info.dtype}"
    if info.ndim not in (-1, len(shape)):
        return f"has {len(shape)} dimensions, not {info.ndim}"
    for expected, extent in zip(info.dims or (), shape, strict=True) if info.dims is not None else ():
        if isinstance(expected, tir.Var) and expected not in sizes:
            sizes[expected] = _int64(extent)
            continue
        known = sizes[expected] if isinstance(expected, tir.Var) else expected
        if isinstance(known, tir.IntImm) and known.value != extent:
            name = f" for `{expected.name}`" if isinstance(expected, tir.Var) else ""
            return f"has shape {shape}, where {known.value}{name} was expected, not {extent}"
    return None
