"""Packed functions of shared libraries: called from native code directly, and from Python."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CallError, error
from mlcc.runtime.abi import CPU, DLTENSOR, PackedFn
from mlcc.runtime.dlpack import NotATensor, Tensor, borrow


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """A packed function from a shared library: called from native code without Python in between."""

    name: str
    address: int
    context: int = 0

    def __call__(self, *args: Any) -> None:
        """Call it from Python with compact arrays, the last of which it writes. Raises CallError."""
        memory = [_dl_tensor(t) for t in self._borrowed(args)]
        pointers = (ctypes.c_void_p * len(memory))(*(ctypes.addressof(m) for m in memory))
        code = PackedFn(self.address)(self.context, ctypes.addressof(pointers), len(memory))
        if code != 0:
            raise CallError(error("E0812", f"packed function `{self.name}` failed with code {code}"))

    def _borrowed(self, args: tuple[Any, ...]) -> list[Tensor]:
        tensors = []
        for index, value in enumerate(args):
            try:
                tensor = borrow(value)
            except NotATensor as exc:
                raise CallError(error("E0803", f"argument {index} of `{self.name}` is {exc}")) from None
            if tensor.strides is not None:
                raise CallError(error("E0803", f"argument {index} of `{self.name}` is not contiguous"))
            tensors.append(tensor)
        return tensors


def _dl_tensor(tensor: Tensor) -> ctypes.Array[ctypes.c_char]:
    """A DLTensor with its shape behind it, for a compact tensor."""
    ndim = len(tensor.shape)
    memory = ctypes.create_string_buffer(DLTENSOR.size + 8 * ndim)
    base = ctypes.addressof(memory)
    DLTENSOR.pack_into(memory, 0, tensor.address, CPU, 0, ndim, *tensor.code, base + DLTENSOR.size, 0, 0)
    struct.pack_into(f"<{ndim}q", memory, DLTENSOR.size, *tensor.shape)
    return memory
