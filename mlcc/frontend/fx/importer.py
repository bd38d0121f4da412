"""The public function that imports graphs of `torch.fx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error

if TYPE_CHECKING:
    import torch

    from mlcc.frontend.aten.table import Converter
    from mlcc.ir.module import IRModule


def from_fx(
    model: torch.fx.GraphModule, input_info: Sequence[Any] | None = None, *, keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False, no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None, default_image_layout: str = "NCHW",
    input_shapes: Sequence[Any] | None = None,
) -> IRModule:  # fmt: skip
    """Import a graph of `torch.fx.symbolic_trace`; `main` takes the graph's placeholders.

    `input_info` has an entry for each placeholder: `((shape), dtype)`, a shape alone, which is float32
    (`input_shapes` is such a list), or a tensor. Extents are numbers, symbols (`"n"`, `tir.Var`) and expressions over
    them (`"2 * n"`). Raises CompileError that lists everything that cannot be imported.
    """
    from mlcc.frontend.fx.inputs import input_types
    from mlcc.frontend.fx.translate import translate_graph

    if default_image_layout != "NCHW":
        message = f"`default_image_layout` must be 'NCHW', not {default_image_layout!r}"
        raise CompileError(error("E1031", message, help="permute the inputs, or run `convert-layout` on the module"))
    given = input_shapes if input_info is None else input_info
    if given is None:
        raise TypeError("from_fx() is missing the argument `input_info`")
    del no_bind_return_tuple  # a returned tuple is never bound to a variable
    return translate_graph(
        model, input_types(given), converters=custom_convert_map or {}, keep_params=keep_params_as_input,
        unwrap=unwrap_unit_return_tuple,
    )  # fmt: skip
