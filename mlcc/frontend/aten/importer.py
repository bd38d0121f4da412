"""The public functions that import programs of PyTorch: live ones, and those in `.pt2` files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlcc.frontend.aten.custom_converters import custom_converters
from mlcc.frontend.aten.functionalize import functional_name
from mlcc.frontend.aten.module import Options, translate
from mlcc.frontend.aten.table import Converter, converter
from mlcc.frontend.precision import convert_precision

if TYPE_CHECKING:
    import os

    import torch

    from mlcc.frontend.aten.graph import Program
    from mlcc.ir.module import IRModule


def from_exported_program(
    exported_program: torch.export.ExportedProgram, *, keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False, no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None, run_ep_decomposition: bool = True,
    dim_names: Mapping[str, Any] | None = None, keep_state_as_input: bool = False, allow_packed: bool = False,
    dtype: str | None = None,
) -> IRModule:  # fmt: skip
    """Import an exported program. `main` takes the user's inputs; weights are bound.

    With `keep_params_as_input` the model's parameters follow the inputs, named `p_...`, and the attribute `params` has
    their values (`detach_params` removes them). The result is a tuple, even of one, unless `unwrap_unit_return_tuple`.
    Buffers and inputs that the program writes to are returned after the results, and the attribute `mutated` names
    them; with `keep_state_as_input` such buffers are also the last parameters, in the order in which they are returned.
    With `run_ep_decomposition` PyTorch decomposes operators that have no converter, and only those. `dim_names` gives
    symbolic extents names: `{"x.0": "batch"}`. With `allow_packed` an operator that has no converter becomes a call of
    a packed function of its name. `dtype`, `float16` or `bfloat16`, is what float32 inputs, results and weights become;
    see `mlcc.frontend.precision`.

    Raises CompileError that lists everything that cannot be imported.
    """
    from mlcc.frontend.aten.exported import program_of

    del no_bind_return_tuple  # a returned tuple is never bound to a variable
    converters = custom_convert_map or {}
    program = program_of(exported_program)
    if run_ep_decomposition and (unknown := unknown_targets(program, converters)):
        from mlcc.frontend.aten.decompose import decompose_program

        program = program_of(decompose_program(exported_program, unknown))
    options = Options(
        keep_params_as_input,
        keep_state_as_input,
        unwrap_unit_return_tuple,
        dict(dim_names or {}),
        dict(converters),
        allow_packed=allow_packed,
    )
    return convert_precision(translate(program, options), dtype)


def from_pt2(
    path: str | os.PathLike[str], *, model: str | None = None, keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False, custom_convert_map: Mapping[str, Converter] | None = None,
    dim_names: Mapping[str, Any] | None = None, keep_state_as_input: bool = False, allow_packed: bool = False,
    dtype: str | None = None,
) -> IRModule:  # fmt: skip
    """Import the program in a `.pt2` file, which is read without PyTorch. See `from_exported_program`."""
    import os

    from mlcc.frontend.aten.pt2 import read_pt2

    options = Options(
        keep_params_as_input, keep_state_as_input, unwrap_unit_return_tuple, dict(dim_names or {}),
        dict(custom_convert_map or {}), allow_packed=allow_packed,
    )  # fmt: skip
    return convert_precision(translate(read_pt2(os.fspath(path), model), options), dtype)


def unknown_targets(program: Program, converters: Mapping[str, Converter] | None = None) -> list[str]:
    """The operators of a program that have no converter."""
    own = custom_converters(converters or {})
    used = dict.fromkeys(node.target for node in program.graph.nodes)
    return [name for name in used if name not in own and name.rpartition(".")[0] not in own and not _is_known(name)]


def _is_known(target: str) -> bool:
    written = functional_name(target)
    name = target if written is None else f"aten.{written}.{target.rpartition('.')[2]}"
    return converter(name) is not None or converter(target) is not None
