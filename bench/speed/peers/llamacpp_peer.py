"""llama.cpp's products of few bits: ggml, of the package `llama_cpp_python` or of the folder in `GGML_LIBRARY`.

The weights of an ONNX model's products become ggml's blocks of 32 with their codes as they are and scales in float16:
Q8_0, Q4_0, with zero points Q4_1; float16 and bfloat16 as they are. They lie in the buffer that llama.cpp would choose,
which repacks them where the CPU has a kernel for that.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.speed.peers.base import Peer, Ready, Work, onnx_bytes

BLOCK = 32
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30  # enum ggml_type
_POINTERS = (
    "ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_get_data", "ggml_new_graph_custom",
    "ggml_backend_cpu_init", "ggml_backend_get_device", "ggml_backend_dev_backend_reg",
    "ggml_backend_reg_get_proc_address", "ggml_backend_buft_alloc_buffer", "ggml_backend_buffer_get_base",
    "ggml_backend_alloc_ctx_tensors_from_buft", "ggml_backend_cpu_buffer_type",
)  # fmt: skip
_STRINGS = ("ggml_version", "ggml_backend_buft_name")
_SIZES = ("ggml_tensor_overhead", "ggml_graph_overhead_custom", "ggml_backend_buft_get_alloc_size", "ggml_nbytes")


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Library:
    """The functions of ggml, found in its libraries by name."""

    def __init__(self) -> None:
        folder = _folder()
        names = ("ggml-base", "ggml-cpu")
        self.libraries = [ctypes.CDLL(str(folder / f"lib{name}.so"), ctypes.RTLD_GLOBAL) for name in names]

    def __getattr__(self, name: str) -> Any:
        for library in self.libraries:
            if hasattr(library, name):
                function = getattr(library, name)
                if name in _POINTERS:
                    function.restype = ctypes.c_void_p
                elif name in _SIZES:
                    function.restype = ctypes.c_size_t
                elif name == "ggml_backend_dev_supports_op":
                    function.restype = ctypes.c_bool
                elif name in _STRINGS:
                    function.restype = ctypes.c_char_p
                setattr(self, name, function)
                return function
        raise AttributeError(name)


def _folder() -> Path:
    if "GGML_LIBRARY" in os.environ:
        return Path(os.environ["GGML_LIBRARY"])
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise ImportError("neither `llama_cpp_python` nor GGML_LIBRARY")
    return Path(found.origin).parent / "lib"


class LlamaCpp:
    def __init__(self, threads: int) -> None:
        self.ggml = _Library()
        self.backend = _pointer(self.ggml.ggml_backend_cpu_init())
        self.ggml.ggml_backend_cpu_set_n_threads(self.backend, ctypes.c_int(threads))
        self.device = _pointer(self.ggml.ggml_backend_get_device(self.backend))

    def versions(self) -> dict[str, str]:
        return {"ggml": self.ggml.ggml_version().decode()}

    def prepare(self, work: Work) -> Ready:
        ((_, x),) = work.inputs.items()
        rows, inner = x.shape
        ggml = self.ggml
        weights = list(_weights(onnx_bytes(work)))
        data = self._tensor(F32, inner, rows)
        self._allocate(ggml.ggml_backend_cpu_buffer_type(), data)
        _floats(ggml.ggml_get_data(data), x.shape)[:] = x
        size = ctypes.c_size_t(2 * len(weights) + 2)
        graph = _pointer(
            ggml.ggml_new_graph_custom(self._context(ggml.ggml_graph_overhead_custom(size, False)), size, False)
        )
        outputs, buffers = [], set()
        for kind, columns, stored in weights:
            product, buffer = self._product(kind, inner, columns, stored, data)
            ggml.ggml_build_forward_expand(graph, product)
            outputs.append(_floats(ggml.ggml_get_data(product), (rows, columns)))
            buffers.add(buffer)
        return Ready(
            lambda: ggml.ggml_backend_graph_compute(self.backend, graph),
            lambda: np.concatenate(outputs, 1),
            note=", ".join(sorted(buffers)),
        )

    def _product(
        self, kind: int, inner: int, columns: int, stored: np.ndarray, data: ctypes.c_void_p
    ) -> tuple[ctypes.c_void_p, str]:
        """Put a matrix where the CPU has the best kernel for it; return the product and the name of that memory."""
        ggml = self.ggml
        for buffer_type in (*self._extra_buffer_types(), ggml.ggml_backend_cpu_buffer_type()):
            matrix = self._tensor(kind, inner, columns)
            if ggml.ggml_nbytes(matrix) != stored.nbytes:
                raise ValueError(f"{stored.nbytes} bytes of blocks, of which ggml wants {ggml.ggml_nbytes(matrix)}")
            self._allocate(buffer_type, matrix)
            context = self._context(ggml.ggml_tensor_overhead())
            product = _pointer(ggml.ggml_mul_mat(context, matrix, data))
            if ggml.ggml_backend_dev_supports_op(self.device, product):
                break
        else:
            raise ValueError(f"ggml does not multiply by type {kind}")
        length = ctypes.c_size_t(stored.nbytes)
        ggml.ggml_backend_tensor_set(matrix, _pointer(stored.ctypes.data), ctypes.c_size_t(0), length)
        self._allocate(ggml.ggml_backend_cpu_buffer_type(), product)
        return product, ggml.ggml_backend_buft_name(_pointer(buffer_type)).decode()

    def _extra_buffer_types(self) -> list[int]:
        """Return the addresses of the buffer types for which the CPU backend repacks weights."""
        registry = _pointer(self.ggml.ggml_backend_dev_backend_reg(self.device))
        address = self.ggml.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        listed = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(self.device)
        return list(itertools.takewhile(bool, (listed[n] for n in itertools.count())))  # type: ignore[arg-type]

    def _context(self, size: int) -> ctypes.c_void_p:
        return _pointer(self.ggml.ggml_init(_InitParams(size, None, True)))

    def _tensor(self, kind: int, inner: int, rows: int) -> ctypes.c_void_p:
        """Return a tensor without memory for its data."""
        context = self._context(self.ggml.ggml_tensor_overhead())
        sizes = ctypes.c_int64(inner), ctypes.c_int64(rows)
        return _pointer(self.ggml.ggml_new_tensor_2d(context, ctypes.c_int(kind), *sizes))

    def _allocate(self, buffer_type: int, tensor: ctypes.c_void_p) -> None:
        size = self.ggml.ggml_backend_buft_get_alloc_size(_pointer(buffer_type), tensor)
        buffer = _pointer(self.ggml.ggml_backend_buft_alloc_buffer(_pointer(buffer_type), ctypes.c_size_t(size)))
        self.ggml.ggml_backend_tensor_alloc(buffer, tensor, _pointer(self.ggml.ggml_backend_buffer_get_base(buffer)))


def _pointer(address: int) -> ctypes.c_void_p:
    if not address:
        raise MemoryError("ggml returned NULL")
    return ctypes.c_void_p(address)


def _floats(address: int, shape: tuple[int, ...]) -> np.ndarray:
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, shape)


def _weights(model: bytes) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the type, the number of columns and the bytes of the weights of each product of an ONNX model.

    Raises ValueError for a model with anything but products of its input with weights.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(model).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    made = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        if node.op_type in ("Concat", "DequantizeLinear", "Cast"):
            continue
        if node.op_type == "MatMulNBits":
            arrays = [numpy_helper.to_array(tensors[name]) for name in node.input[1:]]
            yield _int4(*arrays)
        elif node.op_type == "MatMul" and node.input[1] in made:
            arrays = [numpy_helper.to_array(tensors[name]) for name in made[node.input[1]].input]
            yield _int8(*arrays) if len(arrays) == 2 else _half(*arrays)
        else:
            raise ValueError(f"{node.op_type} is no product with weights of few bits")


def _half(matrix: np.ndarray) -> tuple[int, int, np.ndarray]:
    kind = F16 if matrix.dtype == np.float16 else BF16
    return kind, matrix.shape[1], np.ascontiguousarray(matrix.T).view(np.uint16)


def _int8(codes: np.ndarray, scale: np.ndarray) -> tuple[int, int, np.ndarray]:
    inner, columns = codes.shape
    blocks = np.empty((columns, inner // BLOCK), np.dtype([("d", "<f2"), ("qs", "i1", (BLOCK,))]))
    blocks["d"] = scale[:, None]
    blocks["qs"] = codes.T.reshape(blocks["qs"].shape)
    return Q8_0, columns, blocks


def _int4(packed: np.ndarray, scale: np.ndarray, points: np.ndarray | None = None) -> tuple[int, int, np.ndarray]:
    columns, groups, half = packed.shape
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(columns, -1, 2, BLOCK // 2)
    repeats = 2 * half // BLOCK
    fields = [("d", "<f2"), *([("m", "<f2")] if points is not None else []), ("qs", "u1", (BLOCK // 2,))]
    blocks = np.empty((columns, groups * repeats), np.dtype(fields))
    blocks["d"] = np.repeat(scale.reshape(columns, groups), repeats, 1)
    blocks["qs"] = codes[:, :, 0] | codes[:, :, 1] << 4
    if points is not None:
        each = np.stack([points & 15, points >> 4], -1).reshape(columns, -1)[:, :groups]
        blocks["m"] = np.repeat(-scale.reshape(columns, groups) * each, repeats, 1)
    return Q4_0 if points is None else Q4_1, columns, blocks


def make(threads: int) -> Peer:
    return LlamaCpp(threads)
