"""The weights of imported models: constants named as in the model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, Diagnostic, error
from mlcc.grammar.constants import is_inside_folder
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.ir.tensor_data import INLINE_LIMIT, TensorData
from mlcc.ir.visit import substitute
from mlcc.relax.construct import make_function

if TYPE_CHECKING:
    import numpy as np

    from mlcc.array_files import ArrayFile, MergedArrays

_MAX_SHOWN = 5


def weights_of(module: IRModule) -> dict[str, list[relax.Constant]]:
    """Return the named constants of `main` by name. Constants of the same name have the same data."""
    by_name: dict[str, list[relax.Constant]] = {}
    for node in find(module.functions["main"], relax.Constant):
        if node.data.key and not any(node is other for other in by_name.get(node.data.key, ())):
            by_name.setdefault(node.data.key, []).append(node)
    return by_name


def replace_weights(module: IRModule, arrays: MergedArrays) -> tuple[IRModule, list[str], list[str]]:
    """Replace the weights of a module by data from files. Return the module, the weights without an array, and the
    arrays without a weight. Raises CompileError E1072 for data of another dtype or shape, if no name matches, and if a
    weight seems to be renamed."""
    from mlcc.array_files import read_array
    from mlcc.grammar.constants import as_tensor, constant_type

    known = weights_of(module)
    wrong: list[Diagnostic] = []
    replacements: dict[Any, Any] = {}
    for name in (name for name in known if name in arrays):
        old = known[name][0].data

        def judge(shape: tuple[int, ...], stored: np.dtype[Any], old: TensorData = old) -> bool:
            kind, _ = constant_type(shape, stored, old.dtype, old.key)
            if (kind, shape) != (old.dtype, old.shape):
                wanted = f"{old.dtype} {list(old.shape)}"
                text = f"the array `{old.key}` is {kind} {list(shape)}, but the model's weight is {wanted}"
                raise CompileError(error("E1072", text))
            return True

        try:
            data = as_tensor(read_array(arrays, name, judge), old.dtype, name)
        except CompileError as exc:
            wrong += exc.diagnostics
            continue
        replacements.update({node: relax.Constant(data, node.struct_info, span=node.span) for node in known[name]})
    if known and not replacements and not wrong:
        help = f"the model has {format_names(list(known))}; the files have {format_names(list(arrays))}"
        wrong.append(error("E1072", "the files have no array with the name of a weight", help=help))
    left = [name for name in known if name not in arrays]
    unused = [name for name in arrays if name not in known]
    wrong += _renamed_weights(
        {name: known[name][0].data for name in left}, {name: arrays.kind(name)[0] for name in unused}
    )
    if wrong:
        raise CompileError(wrong)
    return _with_main(module, substitute(module.functions["main"], replacements)), left, unused


def _renamed_weights(left: Mapping[str, TensorData], unused: Mapping[str, tuple[int, ...]]) -> list[Diagnostic]:
    """Return diagnostics for weights without data where an unused array has as many elements (renamed weights)."""
    help = "the exporter renamed, transposed or folded it: export the model with these weights, or as .pt2"
    wrong = []
    for name, data in left.items():
        rivals = [f"`{other}`" for other, shape in unused.items() if math.prod(shape) == data.size > INLINE_LIMIT]
        if rivals:
            text = f"the files have no array for the weight `{name}`, but {rivals[0]} has as many elements"
            wrong.append(error("E1072", text, help=help))
    return wrong


def link_files(files: Iterable[ArrayFile], text: str, force: bool) -> list[str]:
    """Hard-link files from elsewhere into the folder of the text at `text`, and refer to them by the links.

    Returns the links. Raises CompileError E1085 if another file has that name, unless `force`, and if the file system
    does not support the link.
    """
    links = []
    for file in files:
        if is_inside_folder(file.path, text):
            continue
        link = os.path.join(os.path.dirname(text), os.path.basename(file.path))
        try:
            if os.path.lexists(link) and not os.path.samefile(link, file.path):
                if not force:
                    raise CompileError(error("E1085", f"{link} already exists", help="pass --force to replace it"))
                os.unlink(link)
            if not os.path.lexists(link):
                os.link(os.path.realpath(file.path), link)
                links.append(link)
        except OSError as exc:
            help = "omit --link-weights to copy it, or move it into the folder of the text"
            raise CompileError(
                error("E1085", f"cannot link {file.path} to {link}: {exc.strerror}", help=help)
            ) from None
        file.path = link
    return links


def require_weights(module: IRModule) -> None:
    """Raise CompileError E1072 that lists the weights whose data are neither in the model nor in a file."""
    absent = [name for name, nodes in weights_of(module).items() if nodes[0].data.array is None]
    if absent:
        text = f"{len(absent)} weights have no data: {format_names(absent)}"
        raise CompileError(error("E1072", text, help="name the file with the weights: --weights w.safetensors"))


def format_names(names: list[str]) -> str:
    """Format the first few names."""
    shown = ", ".join(f"`{name}`" for name in names[:_MAX_SHOWN]) or "none"
    return shown + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")


def weights_as_inputs(module: IRModule) -> tuple[IRModule, dict[str, TensorData]]:
    """Make the weights parameters of `main`, after its inputs. Return the module and the weights' data by the model's
    names. `layer1.conv.weight` becomes the parameter `p_layer1_conv_weight`, as TVM's importers name it.
    """
    from mlcc.grammar.printer.names import Names

    func = module.functions["main"]
    assert isinstance(func, relax.Function)
    names = Names()
    for param in func.params:
        names.fresh(param.name)
    taken: dict[str, TensorData] = {}
    replacements: dict[Any, Any] = {}
    params = []
    for name, nodes in weights_of(module).items():
        var = relax.Var(names.fresh(f"p_{name}"), nodes[0].struct_info)
        params.append(var)
        taken[name] = nodes[0].data
        replacements.update(dict.fromkeys(nodes, var))
    body = substitute(func.body, replacements)
    done = make_function((*func.params, *params), body, func.attrs, func.ret_struct_info, func.is_pure)
    return _with_main(module, done.with_attr({"num_input": len(func.params)})), taken


def _with_main(module: IRModule, func: Any) -> IRModule:
    copy = module.copy()
    copy.functions["main"] = func
    return copy
