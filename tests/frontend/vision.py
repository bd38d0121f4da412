"""torchvision where its operators are built for another PyTorch: its wheel is one for GPUs, PyTorch's one for CPUs."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    *(f"{name}(Tensor x) -> (Tensor, Tensor)" for name in ("roi_pool", "ps_roi_align", "ps_roi_pool")),
    *(
        f"{name}(Tensor x) -> Tensor"
        for name in ("deform_conv2d", "_deform_conv2d_backward", "_roi_align_backward", "_roi_pool_backward",
                     "_ps_roi_align_backward", "_ps_roi_pool_backward")
    ),
)  # fmt: skip
_library: Any = None


def import_torchvision() -> Any:
    """The package. Operators that cannot be loaded are declared without code: networks that use none can be made.

    Raises ImportError where torchvision is not installed.
    """
    global _library
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as problem:
        if "torchvision::" not in str(problem):
            raise
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _library = torch.library.Library("torchvision", "DEF")
    for schema in _DECLARED:
        _library.define(schema)
    return importlib.import_module("torchvision")
