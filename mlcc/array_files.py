"""Files of arrays by name: .npz, .safetensors and .npy, read when an array is asked for, written in a stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.files import Content, byte_chunks, map_file, write_atomic

if TYPE_CHECKING:
    import numpy as np

    from mlcc.runtime.npz import Validator

SUFFIXES = (".npz", ".safetensors")
NPY_START = b"\x93NUMPY"  # how .npy files begin
ALIGNMENT = 64  # of the elements in archives that mlcc writes: a mapped one is used where it lies
_TO_WRITE = "write it with numpy.savez(path, name=array, ...), or safetensors.numpy.save_file({name: array}, path)"
_MOST_NAMES = 12  # names of arrays that a message lists
_ZIP64_FROM = 1 << 30  # bytes from which on a member of a zip has 64-bit sizes
_ZIP64_EXTRA = 20  # bytes that they take


def is_safetensors(path: str) -> bool:
    """Return True if a path has the suffix of a .safetensors file."""
    return os.path.splitext(path)[1].lower() == ".safetensors"


def is_npy(path: str) -> bool:
    """Return True if a path has the suffix of a .npy file."""
    return os.path.splitext(path)[1].lower() == ".npy"


def _refuse_pickle(path: str, archive: Any) -> None:
    """Raise CompileError E0003 for a file of torch.save: a zip with a pickle, which is never loaded."""
    if archive.is_pickle:
        help = (
            "write the weights as safetensors: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )
        raise CompileError(error("E0003", f"{path} is a file of torch.save, a pickle of Python", help=help, file=path))


class ArrayFile(Mapping[str, "np.ndarray"]):
    """The arrays of an .npz or .safetensors file, each read on demand. Nothing is ever unpickled.

    A .npy file has one array, which is known by the file's name without suffix. `is_unnamed` says so.
    A dtype that NumPy lacks is read as its bits; `mlcc.runtime.abi.dtype_tag` says which it is, if the file does.
    Raises CompileError E0003 for what is not sound.
    """

    def __init__(self, path: str) -> None:
        from mlcc.runtime.npz import Arrays, Damaged

        self.path = path
        self._read: dict[str, np.ndarray] = {}
        data = map_file(path)
        is_zip = data[:2] == b"PK"
        self.is_unnamed = data[: len(NPY_START)] == NPY_START
        if not is_zip and not self.is_unnamed and not is_safetensors(path) and data[8:9] != b"{":
            message = f"{path} is not an .npz, .npy or .safetensors file"
            raise CompileError(error("E0003", message, help=_TO_WRITE, file=path))
        try:
            if is_zip:
                self._arrays: Any = Arrays(data)
                _refuse_pickle(path, self._arrays)
            elif self.is_unnamed:
                from mlcc.runtime.npz import OneArray

                self._arrays = OneArray(data, os.path.splitext(os.path.basename(path))[0])
            else:
                from mlcc.runtime.safetensors import Tensors

                self._arrays = Tensors(data)
        except Damaged as exc:
            raise self._unreadable(exc) from None
        self.comment: bytes = self._arrays.comment

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """Read an array. `judge` checks its shape and dtype before memory is allocated.

        `judge` may raise any exception, and returns True if a declaration fixes the size.
        """
        from mlcc.runtime.npz import Damaged

        known = self._read.get(name)
        if known is None:
            try:
                self._read[name] = self._arrays.read(name, judge)
            except Damaged as exc:
                raise self._unreadable(exc) from None
        elif judge is not None:
            judge(known.shape, known.dtype)
        return self._read[name]

    def kind(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return the shape and dtype of an array without reading its elements."""
        from mlcc.runtime.npz import Damaged

        try:
            head = self._arrays.header(name)
        except Damaged as exc:
            raise self._unreadable(exc) from None
        return head.shape, head.dtype

    def holds(self, name: str, array: np.ndarray) -> bool:
        """Return True if `array` is the array `name` of this file: the same memory, not just equal elements."""
        known = self._read.get(name)
        return known is not None and known.shape == array.shape and _address(known) == _address(array)

    def _unreadable(self, exc: Exception) -> CompileError:
        return CompileError(error("E0003", f"cannot read {self.path}: {exc}", file=self.path))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays.members)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays.members

    def __len__(self) -> int:
        return len(self._arrays.members)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


class RenamedArray(Mapping[str, "np.ndarray"]):
    """One array of a file under a name of the user's choice, read when it is asked for."""

    is_unnamed = False

    def __init__(self, name: str, path: str, arrays: ArrayFile | MergedArrays, key: str) -> None:
        self.path = path
        self._name, self._arrays, self._key = name, arrays, key

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """See `ArrayFile.read`."""
        return self._arrays.read(self._key, judge)

    def kind(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """See `ArrayFile.kind`."""
        return self._arrays.kind(self._key)

    def __getitem__(self, name: str) -> np.ndarray:
        if name != self._name:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1


class MergedArrays(Mapping[str, "np.ndarray"]):
    """The arrays of several files, read when they are asked for. `unnamed` are those of .npy files.

    Raises CompileError E0004 if two files have an array of the same name.
    """

    def __init__(self, files: Iterable[ArrayFile | RenamedArray]) -> None:
        self._files: dict[str, ArrayFile | RenamedArray] = {}
        self.unnamed: list[str] = []
        for file in files:
            for name in file:
                if name in self._files:
                    raise CompileError(error("E0004", f"array `{name}` of {file.path} is also in an earlier file"))
                self._files[name] = file
            self.unnamed += file if file.is_unnamed else ()

    def read(self, name: str, judge: Validator | None = None) -> np.ndarray:
        """See `ArrayFile.read`."""
        return self._files[name].read(name, judge)

    def path(self, name: str) -> str:
        """The path of the file that has an array."""
        return self._files[name].path

    def kind(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """See `ArrayFile.kind`."""
        return self._files[name].kind(name)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __len__(self) -> int:
        return len(self._files)


class InputArrays(MergedArrays):
    """The arguments of a call, read from files by name.

    `weights` are names of arrays that need not be parameters of the function.
    """

    def __init__(
        self, files: Iterable[ArrayFile | RenamedArray], weights: Iterable[ArrayFile | RenamedArray] = ()
    ) -> None:
        later = list(weights)
        super().__init__([*files, *later])
        self.weights = {name for file in later for name in file}


def read_array(arrays: Mapping[str, np.ndarray], name: str, judge: Validator) -> np.ndarray:
    """Return the array of that name. `judge` checks its shape and dtype before the array is read from a file."""
    if isinstance(arrays, (ArrayFile, MergedArrays)):
        return arrays.read(name, judge)
    import numpy as np

    array = np.asarray(arrays[name])
    judge(array.shape, array.dtype)
    return array


def array_names_by_param(arrays: Iterable[str], params: Sequence[str]) -> dict[str, list[str]]:
    """Map each parameter to the arrays that match its name.

    An exact match wins; otherwise an array matches if its name as an identifier, as importers write it, equals the
    parameter's name, with or without the prefix `p_`: `layer1.0.weight` matches `p_layer1_0_weight`."""
    candidates: dict[str, list[str]] = {name: [] for name in params}
    for name in arrays:
        spelled = re.sub(r"[^A-Za-z0-9_]", "_", name)
        mine = next((one for one in (name, spelled, f"p_{spelled}") if one in candidates), None)
        if mine is not None:
            candidates[mine].append(name)
    return {param: [param] if param in names else names for param, names in candidates.items()}


def load_arrays(path: str) -> ArrayFile | MergedArrays:
    """Return the arrays of an .npz or .safetensors file by name, each read on demand. Nothing is unpickled.

    `path` may also be an index of several files (`model.safetensors.index.json`) or a folder; see `load_files`.
    """
    files = load_files(path)
    return files[0] if len(files) == 1 else MergedArrays(files)


def load_files(path: str) -> list[ArrayFile]:
    """Open the array files at a path: the file itself, those listed by an index, or those in a folder.

    Raises CompileError E0003 for a damaged file or index, and for an array that is missing from the file that the
    index names.
    """
    from mlcc.array_folders import listed_array_files

    files = []
    for name, keys in listed_array_files(path).items():
        file = ArrayFile(name)
        absent = next((key for key in keys if key not in file), None)
        if absent is not None:
            raise CompileError(error("E0003", f"{name} has no array `{absent}`, although {path} lists it there"))
        files.append(file)
    return files


class ArraySource(NamedTuple):
    """An argument `[NAME=]FILE[:ARRAY]`: the file, one of its arrays, and the name to give it."""

    path: str
    name: str | None = None
    key: str | None = None

    @staticmethod
    def parse(text: str) -> ArraySource:
        """Read it from a command line. A file that has `=` or `:` in its name is meant where there is one."""
        path, name, key = text, None, None
        match = re.match(r"([A-Za-z_][\w.]*)=(.+)", text, re.DOTALL)
        if match is not None and not os.path.lexists(text):
            name, path = match[1], match[2]
        before, colon, after = path.rpartition(":")
        if colon and before and not os.path.lexists(path):
            path, key = before, after
        return ArraySource(path, name, key)

    def load(self) -> Sequence[ArrayFile | RenamedArray]:
        """The files that it stands for, or the one array. Raises CompileError E0001, E0003, E0004."""
        if self.name is None and self.key is None:
            return load_files(self.path)
        arrays = load_arrays(self.path)
        return [RenamedArray(self.name or self.key or "", self.path, arrays, self._key(arrays))]

    def _key(self, arrays: ArrayFile | MergedArrays) -> str:
        if self.key is None and len(arrays) == 1:
            return next(iter(arrays))
        key = self.key or self.name or ""
        if key in arrays:
            return key
        some = ", ".join(list(arrays)[:_MOST_NAMES]) + (", ..." if len(arrays) > _MOST_NAMES else "")
        if self.key is None:
            text = f"{self.path} has {len(arrays)} arrays, none of which is `{key}`"
            raise CompileError(error("E0004", text, help=f"say which: {self.name}={self.path}:ARRAY; it has {some}"))
        hint = did_you_mean(key, arrays) or f"it has {some or 'none'}"
        raise CompileError(error("E0004", f"{self.path} has no array `{key}`", help=hint))


# ---------------------------------------------------------------- writing


def save_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays atomically, in the format given by the suffix. Equal arrays give equal bytes."""
    write_atomic(path, arrays_content(path, arrays))


def arrays_content(path: str, arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> Content:
    """Return a writer of the arrays to a file: a .safetensors or .npy if the path has that suffix, else an .npz."""
    write = write_safetensors if is_safetensors(path) else write_one if is_npy(path) else write_npz
    return lambda file: write(file, arrays, comment)


def write_one(file: IO[bytes], arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> None:
    """Write a .npy. There must be just one array; its name is not in the file."""
    (array,) = arrays.values()
    _write_npy(file, array)


def write_safetensors(file: IO[bytes], arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> None:
    """Write a .safetensors file with aligned arrays. Raises CompileError E1070 for a dtype that the format lacks."""
    import numpy as np

    from mlcc.runtime.safetensors import NoDtype, header_bytes, in_order

    try:
        file.write(header_bytes(arrays, comment.decode()))
    except NoDtype as exc:
        raise CompileError(error("E1070", str(exc), help="write an .npz")) from None
    for _, array in in_order(arrays):
        file.writelines(byte_chunks(np.ascontiguousarray(array)))


def npz_bytes(arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> bytes:
    """An .npz in memory; see `write_npz`."""
    import io

    stream = io.BytesIO()
    write_npz(stream, arrays, comment)
    return stream.getvalue()


def write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray], comment: bytes = b"") -> None:
    """Write an .npz file with aligned arrays and without timestamps. `comment` is the zip comment."""
    import zipfile

    import numpy as np

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = comment
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            is_large = array.nbytes >= _ZIP64_FROM
            extra = _ZIP64_EXTRA if is_large else 0
            entry.extra = _padding(file.tell() + 30 + len(entry.filename.encode()) + extra)
            with archive.open(entry, "w", force_zip64=is_large) as member:
                _write_npy(member, np.asanyarray(array))


def _write_npy(member: IO[bytes], array: np.ndarray) -> None:
    """Write an array in the .npy format, as numpy.save does."""
    import numpy as np

    if array.dtype.metadata is not None:
        array = array.view(np.dtype(array.dtype.str))
    if array.nbytes < 1 << 20 or not (array.flags.c_contiguous or array.flags.f_contiguous):
        np.lib.format.write_array(member, array, allow_pickle=False)
        return
    np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
    member.writelines(byte_chunks(array if array.flags.c_contiguous else array.T))


def _padding(at: int) -> bytes:
    """Return a zip extra field that pads from offset `at` to an aligned offset, in the format of Android's zipalign."""
    size = -(at + 6) % ALIGNMENT
    return b"\x35\xd9" + (2 + size).to_bytes(2, "little") + bytes(2 + size)
