"""Peers on the same device and stream: PyTorch if installed with CUDA, and cuBLAS directly."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.gpu.workloads import Workload

Once = Callable[[], object]


def peers(work: Workload, arrays: list[Any], stream: int) -> Iterator[tuple[str, Once]]:
    """Return the name and function of each peer that supports the workload; `arrays` are mlcc's, on the device."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            yield f"torch {torch.__version__}", with_torch(work, arrays, stream, torch)
    if work.peer == "matmul":
        library = find_cublas()
        if library is not None:
            yield "cuBLAS", with_cublas(work, arrays, stream, library)


def with_torch(work: Workload, arrays: list[Any], stream: int, torch: Any) -> Once:
    torch.backends.cuda.matmul.allow_tf32 = False
    given = [torch.from_dlpack(a) for a in arrays]
    if work.dtype == "bfloat16":
        given = [a.view(torch.bfloat16) for a in given]
    ours = torch.cuda.ExternalStream(stream)
    function: dict[str, Callable[..., Any]] = {
        "matmul": torch.matmul, "add": torch.add, "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, g, b: torch.nn.functional.layer_norm(x, x.shape[-1:], g, b),
    }  # fmt: skip
    run = function[work.peer]

    def once() -> object:
        with torch.cuda.stream(ours):
            return run(*given)

    return once


def find_cublas() -> ctypes.CDLL | None:
    """Load the library from a wheel of NVIDIA, or from the system."""
    spec = importlib.util.find_spec("nvidia")
    places = [str(Path(r)) for r in (spec.submodule_search_locations or ())] if spec else []
    names = [n for p in places for n in sorted(glob.glob(f"{p}/*/lib/libcublas.so.*"))]
    names += [n for n in ("libcublas.so.13", "libcublas.so.12", "libcublas.so") if n]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


_F32, _BF16 = 0, 14  # cudaDataType
_COMPUTE_32F = 68  # CUBLAS_COMPUTE_32F
_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT


def with_cublas(work: Workload, arrays: list[Any], stream: int, library: ctypes.CDLL) -> Once:
    """Call cublasGemmEx on row-major arrays, as the product of the transposes in column-major order."""
    handle = ctypes.c_void_p()
    if library.cublasCreate_v2(ctypes.byref(handle)) or library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)):
        raise RuntimeError("cuBLAS cannot be started")
    a, b = arrays
    (m, k), n = a.shape, b.shape[1]
    kind = _BF16 if work.dtype == "bfloat16" else _F32
    result = type(a).empty(a._block.pool, (m, n), a.dtype)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    address = ctypes.c_void_p

    def once() -> object:
        code = library.cublasGemmEx(
            handle, 0, 0, n, m, k, ctypes.byref(one), address(b.address), kind, n, address(a.address), kind, k,
            ctypes.byref(zero), address(result.address), kind, n, _COMPUTE_32F, _DEFAULT,
        )  # fmt: skip
        if code:
            raise RuntimeError(f"cublasGemmEx failed with code {code}")
        return result

    return once
