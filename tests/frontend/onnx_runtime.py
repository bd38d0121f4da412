"""One node as a model, imported and compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mlcc
from mlcc.frontend.onnx.translate import translate
from mlcc.interp import run_function
from tests.frontend.aten_check import compare


def node_model(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    outputs: int | Sequence[bool] = 1,
    domain: str = "com.microsoft",
    constant: Sequence[int] = (),
    version: int = 21,
    symbolic: Sequence[tuple[int, int]] = (),
    **attributes: Any,
) -> Any:
    """A model of one node. `constant` are the inputs that are initializers, `symbolic` (input, axis) pairs whose extent
    has a name; `outputs` says of each whether it is there."""
    import onnx
    from onnx import helper, numpy_helper

    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = [f"y{i}" if there else "" for i, there in enumerate(wanted)]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    infos, weights = [], []
    for i, value in enumerate(inputs):
        if value is None:
            continue
        if i in constant:
            weights.append(numpy_helper.from_array(value, names[i]))
        else:
            shape = [f"s{i}_{a}" if (i, a) in symbolic else n for a, n in enumerate(value.shape)]
            infos.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    made = [onnx.ValueInfoProto(name=name) for name in results if name]
    graph = helper.make_graph([node], "g", infos, made, weights)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def against_runtime(
    operator: str, inputs: Sequence[np.ndarray | None], *args: Any, opt_level: int | None = None, off_by: int = 0,
    **options: Any,
) -> None:  # fmt: skip
    """Compare what an imported node computes with what onnxruntime does; integers may differ by `off_by`."""
    model = node_model(operator, inputs, *args, **options)
    fixed = options.get("constant", ())
    fed = {f"x{i}": value for i, value in enumerate(inputs) if value is not None and i not in fixed}
    expected = runtime_results(model, fed)
    module = translate(model)
    if opt_level is None:
        found = run_function(module, "main", tuple(fed.values()))
    else:
        found = mlcc.load(mlcc.build(module, target="llvm{cpu=native}", opt_level=opt_level))["main"](*fed.values())
    for mine, theirs in zip(found if isinstance(found, (list, tuple)) else [found], expected, strict=True):
        mine = np.asarray(mine)
        if off_by and theirs.dtype.kind in "iu":
            assert np.abs(mine.astype("int64") - theirs.astype("int64")).max(initial=0) <= off_by
        else:
            compare(mine, theirs)


def runtime_results(model: Any, fed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes, without optimizing the graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, fed)]
