"""Cases of the suite: models with inputs and the outputs that they must give."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

FROZEN, RUN_TIME = "frozen", "run time"
MODES = (FROZEN, RUN_TIME)
EXPANDED = "_expanded"
FILES = ("simple", "pytorch-converted", "pytorch-operator")

PLAIN = frozenset(
    {"float16", "float32", "float64", "bool"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)

# Inputs that the schema asks for as tensors and that real models have as initializers: shapes, axes, pads, counts.
SHAPE_LIKE: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,),
    "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2), "Expand": (1,), "HammingWindow": (0,),
    "HannWindow": (0,), "Loop": (0,), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4), "OneHot": (1, 2), "Pad": (1, 2, 3), "Range": (0, 1, 2), "Reshape": (1,),
    "Resize": (1, 2, 3), "STFT": (1, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,),
    "Squeeze": (1,), "Tile": (1, 2), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,), "Upsample": (1,),
    "SequenceAt": (1,), "SequenceInsert": (2,), "SequenceErase": (1,),
    **{f"Reduce{name}": (1,) for name in (
        "Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"
    )},
}  # fmt: skip


@dataclass(frozen=True)
class SuiteCase:
    """One case of the suite."""

    name: str
    group: str  # "node", or the folder it is a file of
    model: Any
    data: tuple[tuple[list[Any], list[Any]], ...]  # inputs and outputs
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """What the case is about: its operator, or that of the case whose function it has expanded."""
        kept = _whole_cases().get(self.name.split(EXPANDED)[0]) if EXPANDED in self.name else None
        nodes = (kept or self).model.graph.node
        named = [f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in nodes]
        return next((n for n in ("Loop", "Scan", "If") if n in named), named[0]) if named else "none"

    @property
    def plain(self) -> bool:
        """Whether all inputs and outputs are tensors of floats of 16 to 64 bits, integers of 8 to 64, or bools."""
        from onnx import TensorProto, helper

        for value in (*self.model.graph.input, *self.model.graph.output):
            kind = value.type.WhichOneof("value")
            if kind != "tensor_type" or value.type.tensor_type.elem_type == TensorProto.STRING:
                return False
            if str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)) not in PLAIN:
                return False
        return True

    @property
    def shape_inputs(self) -> frozenset[str]:
        """The inputs that are frozen: those that a node takes as a shape, or as axes, pads and the like."""
        whole = _whole_cases().get(self.name.split(EXPANDED)[0], self) if EXPANDED in self.name else self
        wanted = set()
        for node in whole.model.graph.node:
            at = SHAPE_LIKE.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
            wanted |= {node.input[i] for i in at if i < len(node.input)}
        places = {whole.model.graph.input[i].name: i for i in range(len(whole.model.graph.input))}
        mine = [given.name for given in self.model.graph.input]
        return frozenset(mine[places[name]] for name in wanted if name in places and places[name] < len(mine))

    def in_mode(self, mode: str) -> tuple[Any, tuple[tuple[list[Any], list[Any]], ...]]:
        """The model and its data, with shape-like inputs as initializers in mode `FROZEN`."""
        import onnx

        frozen = self.shape_inputs if mode == FROZEN else frozenset()
        if not frozen or len(self.data) != 1:
            return self.model, self.data
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        inputs, outputs = self.data[0]
        kept = []
        for given, value in zip(self.model.graph.input, inputs, strict=False):
            if given.name in frozen and isinstance(value, np.ndarray | np.generic):
                model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), given.name))
            else:
                kept.append((given, value))
        del model.graph.input[:]
        model.graph.input.extend(given for given, _ in kept)
        return model, (([value for _, value in kept], outputs),)


@functools.cache
def node_cases() -> tuple[SuiteCase, ...]:
    """The cases of single operators."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return tuple(SuiteCase(c.name, "node", c.model, tuple(c.data_sets), c.rtol, c.atol) for c in found)


@functools.cache
def file_cases() -> tuple[SuiteCase, ...]:
    """The cases that are files of the onnx package: small models, and what PyTorch exported once."""
    from onnx.backend.test.loader import load_model_tests

    return tuple(_read(case, group) for group in FILES for case in load_model_tests(kind=group) if case.model_dir)


def all_cases() -> Iterable[SuiteCase]:
    """Every case that has its data with it."""
    return sorted((*node_cases(), *file_cases()), key=lambda case: (case.group, case.name))


@functools.cache
def _whole_cases() -> dict[str, SuiteCase]:
    return {case.name: case for case in node_cases() if EXPANDED not in case.name}


def _read(case: Any, group: str) -> SuiteCase:
    import onnx

    model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
    folders = sorted(entry.path for entry in os.scandir(case.model_dir) if entry.is_dir())
    data = tuple((_values(f, "input", model.graph.input), _values(f, "output", model.graph.output)) for f in folders)
    return SuiteCase(case.name, group, model, data, case.rtol, case.atol)


def _values(folder: str, kind: str, infos: Any) -> list[Any]:
    import onnx
    from onnx import numpy_helper

    readers = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    made = []
    for i, info in enumerate(infos):
        path = os.path.join(folder, f"{kind}_{i}.pb")
        if not os.path.exists(path):
            break
        proto, read = readers[info.type.WhichOneof("value")]
        parsed = proto()
        with open(path, "rb") as f:
            parsed.ParseFromString(f.read())
        made.append(read(parsed))
    return made
