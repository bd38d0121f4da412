"""The data of a graph-level constant: an array, or a reference by key and hash to an array that is not loaded."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from mlcc.files import byte_chunks, release_pages
from mlcc.ir.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

INLINE_LIMIT = 16  # constants of up to this many elements are printed in the text


class TensorData:
    """An immutable array of `shape` and `dtype`, or a reference to absent data (`array is None`).

    A reference names its data by `key` and, if known, by `sha256`.

    The array is C-contiguous in the storage type of the dtype: bfloat16 is kept as uint16 bit patterns, float8 as
    uint8, bool as numpy bool. Two constants are equal if their dtypes, shapes and hashes
    are; references without a hash, if their keys are.
    """

    __slots__ = ("_array", "_sha256", "dtype", "key", "shape")

    def __init__(
        self, dtype: DType, shape: tuple[int, ...], array: Any = None, key: str = "", sha256: str | None = None
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(int(n) for n in shape)
        self.key = key
        self._sha256 = sha256
        if array is not None:
            import numpy as np

            array = np.ascontiguousarray(array, storage_dtype(dtype)).reshape(self.shape)
            array.flags.writeable = False
        self._array = array

    @staticmethod
    def of(array: Any, dtype: DType | None = None, key: str = "") -> TensorData:
        """Return the data of a NumPy array. Pass `dtype` only for types that NumPy lacks, such as bfloat16."""
        return TensorData(dtype or DType.of(str(array.dtype)), array.shape, array, key)

    @property
    def array(self) -> np.ndarray | None:
        """The data, read-only; None if absent."""
        return self._array  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def sha256(self) -> str | None:
        """The hex digest of dtype, shape and bytes; None for a reference without one."""
        if self._sha256 is None and self._array is not None:
            digest = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
            for piece in byte_chunks(self._array):
                digest.update(piece)
            self._sha256 = digest.hexdigest()
        return self._sha256

    def release(self) -> None:
        """Let the system reclaim the memory of an array in a mapped file; reading an element loads it again."""
        if self._array is not None:
            release_pages(self._array)

    def same_as(self, other: TensorData) -> bool:
        """Return True if the content is equal; a hash may be a prefix of the full one."""
        if self is other:
            return True
        if self.dtype is not other.dtype or self.shape != other.shape:
            return False
        mine, theirs = self.sha256, other.sha256
        if mine is None or theirs is None:
            return mine is theirs and self.key == other.key
        length = min(len(mine), len(theirs))
        return mine[:length] == theirs[:length]

    def __repr__(self) -> str:
        return f"TensorData({self.key!r}, {self.dtype}, {self.shape}{'' if self._array is not None else ', absent'})"


def is_ndarray(value: Any) -> TypeGuard[np.ndarray]:
    """Return True if the value is a NumPy array. Does not import NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def storage_dtype(dtype: DType) -> str:
    """Return the NumPy type that holds elements of `dtype`."""
    if dtype.kind == "bfloat":
        return "uint16"
    if dtype.kind.startswith("float8"):
        return "uint8"
    return str(dtype.element)
