"""Runners of models in their own frameworks, for comparison: PyTorch, ONNX Runtime, the ONNX reference evaluator.

They execute the code in a file with the user's rights, which nothing else in `mlcc.frontend` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.frontend.compare import FrameworkRunner, ModelRejected
from mlcc.frontend.source import suffix_of

if TYPE_CHECKING:
    import numpy as np

_FIRST_LINE = 200  # shown characters of a framework's error message


def framework_runner(path: str) -> FrameworkRunner:
    """Return the runner of a model. Raises CompileError E1077 if the framework is missing or rejects the model."""
    make = RUNNERS.get(suffix_of(path))
    if make is None:
        raise CompileError(error("E1077", f"there is no framework to compare {path} with"))
    try:
        return make(path)
    except ImportError as exc:
        text = f"comparing {path} needs the package `{exc.name}`"
        raise CompileError(error("E1077", text, help="pip install torch, or onnxruntime for .onnx")) from None
    except ModelRejected as exc:
        raise CompileError(error("E1077", f"the framework of {path} cannot run it: {exc}")) from None


def _refusal(exc: Exception) -> ModelRejected:
    lines = str(exc).strip().splitlines() or [""]
    return ModelRejected(f"{type(exc).__name__}: {lines[0][:_FIRST_LINE]}")


# ---------------------------------------------------------------- PyTorch


class TorchRunner:
    """An exported program in PyTorch."""

    name = "PyTorch"

    def __init__(self, path: str) -> None:
        import torch

        self._torch = torch
        try:
            self._program = torch.export.load(path)
        except Exception as exc:  # noqa: BLE001 - whatever it raises
            raise _refusal(exc) from exc

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Runner`."""
        from torch.utils import _pytree as pytree

        spec = self._program.call_spec.in_spec
        args, kwargs = pytree.tree_unflatten(self._arguments(inputs), spec)
        try:
            with self._torch.no_grad():
                result = self._program.module()(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc
        return [self._array(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, self._torch.Tensor)]

    def node_values(self, inputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """See `Runner`."""
        torch, by_node = self._torch, {}
        array = self._array

        class Recorder(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def run_node(self, node: Any) -> Any:
                outputs = super().run_node(node)
                first = outputs[0] if isinstance(outputs, (list, tuple)) and outputs else outputs
                if node.op == "call_function" and isinstance(first, torch.Tensor):
                    by_node[node.name] = array(first.clone())  # a later node may write into it
                return outputs

        program = self._program
        held = {**program.state_dict, **program.constants}
        given = iter(self._arguments(inputs))
        arguments = []
        for spec in program.graph_signature.input_specs:
            is_user = spec.kind.name == "USER_INPUT"
            arguments.append(next(given) if is_user else _copied(torch, held.get(spec.target)))
        try:
            with torch.no_grad():
                Recorder(program.graph_module).run(*arguments)
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc
        return by_node

    def _arguments(self, inputs: Sequence[np.ndarray]) -> list[Any]:
        """Return the arguments in order: the user's tensors, and the constants that the export fixed."""
        arrays = iter(inputs)
        values = {node.name: node.meta.get("val") for node in self._program.graph.nodes if node.op == "placeholder"}
        arguments: list[Any] = []
        for spec in self._program.graph_signature.input_specs:
            if spec.kind.name == "USER_INPUT":
                meta = values.get(getattr(spec.arg, "name", ""))
                if isinstance(meta, self._torch.Tensor):
                    arguments.append(self._tensor(next(arrays), meta.dtype))
                else:
                    arguments.append(getattr(spec.arg, "value", None))
        return arguments

    def _tensor(self, array: np.ndarray, dtype: Any) -> Any:
        import numpy as np

        tensor = self._torch.from_numpy(np.array(array))
        return tensor if tensor.dtype == dtype else tensor.view(dtype)

    def _array(self, tensor: Any) -> np.ndarray:
        torch = self._torch
        data = tensor.detach().cpu()
        is_lacking = data.dtype == torch.bfloat16 or str(data.dtype).startswith("torch.float8")
        return (data.float() if is_lacking else data).contiguous().numpy()


def _copied(torch: Any, value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


# ---------------------------------------------------------------- ONNX


class OnnxRuntimeRunner:
    """A model in ONNX Runtime."""

    name = "ONNX Runtime"

    def __init__(self, path: str) -> None:
        import onnxruntime

        self._package = onnxruntime
        self._path = path
        self._main = self._session(path)

    def _session(self, model: str | bytes) -> Any:
        options = self._package.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = self._package.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            return self._package.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Runner`."""
        return self._run(self._main, inputs)

    def _run(self, session: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        names = [given.name for given in session.get_inputs()]
        try:
            return list(session.run(None, dict(zip(names, inputs, strict=True))))
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc

    def node_values(self, inputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """See `Runner`."""
        model, nodes = _with_all_outputs(self._path)
        count = len(self._main.get_outputs())
        results = self._run(self._session(model.SerializeToString()), inputs)
        return dict(zip(nodes, results[count:], strict=True))


class OnnxReferenceRunner:
    """A model in the reference evaluator of the onnx package."""

    name = "the ONNX reference evaluator"

    def __init__(self, path: str) -> None:
        import onnx

        self._path = path
        self._main = self._evaluator(onnx.load(path))

    def _evaluator(self, model: Any) -> Any:
        from onnx.reference import ReferenceEvaluator

        try:
            return ReferenceEvaluator(model)
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `Runner`."""
        return self._run(self._main, inputs)

    def _run(self, evaluator: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        initial = {tensor.name for tensor in evaluator.proto_.graph.initializer}
        names = [name for name in evaluator.input_names if name not in initial]
        try:
            return list(evaluator.run(None, dict(zip(names, inputs, strict=True))))
        except Exception as exc:  # noqa: BLE001
            raise _refusal(exc) from exc

    def node_values(self, inputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """See `Runner`."""
        model, nodes = _with_all_outputs(self._path)
        count = len(model.graph.output) - len(nodes)
        return dict(zip(nodes, self._run(self._evaluator(model), inputs)[count:], strict=True))


def _with_all_outputs(path: str) -> tuple[Any, list[str]]:
    """Return the model with the first result of every node as an additional output, and the nodes' names."""
    import onnx

    model = onnx.load(path)
    known = {out.name for out in model.graph.output}
    nodes = [node for node in model.graph.node if node.output and node.output[0] and node.output[0] not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in nodes)
    return model, [node.name or node.output[0] for node in nodes]


def _onnx(path: str) -> FrameworkRunner:
    try:
        return OnnxRuntimeRunner(path)
    except ImportError:
        return OnnxReferenceRunner(path)


RUNNERS: dict[str, Callable[[str], FrameworkRunner]] = {".pt2": TorchRunner, ".onnx": _onnx}
