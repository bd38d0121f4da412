"""The data of a graph-level constant: an array with a key and a content hash, or a reference to absent data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from mlcc.files import file_map
from mlcc.ir.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

INLINE_LIMIT = 16  # constants of up to so many elements are written out in the text


class TensorData:
    """An immutable array of `shape` and `dtype`, or a reference (`array is None`) by `key` and, if known, `sha256`.

    The array is C-contiguous in the storage type of the dtype: bfloat16 is kept as uint16 bit patterns, float8 as
    uint8, bool as numpy bool. Two constants are equal if dtype, shape and content are; absent ones by hash, or key.
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
        """From a NumPy array; `dtype` only for those that NumPy does not have."""
        return TensorData(dtype or DType.of(str(array.dtype)), array.shape, array, key)

    @property
    def array(self) -> np.ndarray | None:
        """The data, read-only; None if absent."""
        return self._array  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def sha256(self) -> str | None:
        """Hex digest of dtype, shape and bytes; None for a reference that was written without one."""
        if self._sha256 is None and self._array is not None:
            digest = hashlib.sha256(f"{self.dtype}{self.shape}".encode())
            digest.update(self._array.data if self._array.size else b"")
            self._sha256 = digest.hexdigest()
            self.release()
        return self._sha256

    def release(self) -> None:
        """Give back the memory of elements that lie in a file that mlcc mapped, until somebody reads them again.

        A gigabyte of weights that were looked at and not needed would else count in full beside what was made of them.
        Maps of others stay as they are: what was written to them is nowhere else.
        """
        import mmap

        import numpy as np

        base: Any = self._array
        while isinstance(base, np.ndarray):
            base = base.base
        mapped = base.obj if isinstance(base, memoryview) else base
        if not isinstance(mapped, file_map()) or self._array is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = _address(self._array) - _address(np.frombuffer(mapped, np.uint8))
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (start + self._array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
        if length > 0:
            mapped.madvise(mmap.MADV_DONTNEED, first, length)

    def same_as(self, other: TensorData) -> bool:
        """Equal content; a hash may be a prefix of the full one."""
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


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


def storage_dtype(dtype: DType) -> str:
    """The NumPy type that holds elements of `dtype`."""
    if dtype.kind == "bfloat":
        return "uint16"
    if dtype.kind.startswith("float8"):
        return "uint8"
    return str(dtype.element)
