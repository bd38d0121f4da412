"""What a function finds wrong with its arguments when C calls it: the kind, and the one argument that is wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

import mlcc
from mlcc.runtime.abi import kind_of
from mlcc.runtime.loader import load

TEXT = """
@R.function
def main(
    a: R.Tensor((2, 3), "float32"),
    b: R.Tensor((3,), "int64"),
    c: R.Tensor((), "float32"),
    k: R.Prim("int32"),
    d: R.Tensor(("n", 3), "float32"),
    e: R.Tensor((3, "n"), "float16"),
    f: R.Tensor((4, 0, 2), "float32"),
    g: R.Tensor((1, 3, 1), "float32"),
) -> R.Tensor(("n", 3), "float32"):
    y = R.add(d, R.reshape(g, (1, 3)))
    return y
"""
SIZES = {"a": (2, 3), "b": (3,), "c": (), "d": (5, 3), "e": (3, 5), "f": (4, 0, 2), "g": (1, 3, 1), "out": (5, 3)}
DTYPES = {"b": np.int64, "e": np.float16}
CODES = {np.float32: (2, 32), np.int64: (0, 64), np.float16: (2, 16)}


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def int64_array(*values: int) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


class Arguments:
    """Good arguments, to be spoilt."""

    def __init__(self) -> None:
        self.arrays = {name: np.ones(shape, DTYPES.get(name, np.float32)) for name, shape in SIZES.items()}
        self.tensors: dict[str, DLTensor | None] = {}
        for name, array in self.arrays.items():
            code, bits = CODES[array.dtype.type]
            self.tensors[name] = DLTensor(
                array.ctypes.data, 1, 0, array.ndim, code, bits, 1, int64_array(*array.shape), None, 0
            )
        self.number = 7

    def pass_to(self, function: Callable[..., int]) -> int:
        pointers = [None if t is None else ctypes.byref(t) for t in self.tensors.values()]
        return function(*pointers[:3], ctypes.c_int64(self.number), *pointers[3:])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("entry") / "m.so"
    mlcc.build(mlcc.parse(TEXT), prefix="m").save(path)
    found = ctypes.CDLL(str(path))
    found.m_main_error.restype = ctypes.c_char_p
    return found


def error_of(library: ctypes.CDLL, arguments: Arguments) -> str:
    """Kind and text of what comes back."""
    code = arguments.pass_to(library.m_main)
    kind = kind_of(code)
    assert kind is not None
    return "" if code == 0 else f"{kind.name} {library.m_main_error(code).decode()}"


def test_good_arguments_are_accepted(library: ctypes.CDLL) -> None:
    given = Arguments()
    assert error_of(library, given) == ""
    assert np.all(given.arrays["out"] == 2)


@pytest.mark.parametrize("name", SIZES)
def test_what_is_wrong_is_named(library: ctypes.CDLL, name: str) -> None:
    ndim = len(SIZES[name])
    size = np.dtype(DTYPES.get(name, np.float32)).itemsize

    def spoilt(**fields: object) -> str:
        given = Arguments()
        tensor = given.tensors[name]
        assert tensor is not None
        for field, value in fields.items():
            setattr(tensor, field, value)
        return error_of(library, given)

    missing = Arguments()
    missing.tensors[name] = None
    assert error_of(library, missing) == f"NULL `{name}` is null"
    assert spoilt(ndim=ndim + 1).startswith(f"NDIM `{name}` must have {ndim} dimension")
    assert spoilt(ndim=-1).startswith("NDIM")
    assert spoilt(lanes=2) == f"DTYPE `{name}` must be {np.dtype(DTYPES.get(name, np.float32))}"
    assert spoilt(device_type=2) == f"DEVICE `{name}` must be in the memory of the CPU"
    assert spoilt(device_type=3) == ""
    if ndim:
        assert spoilt(shape=None) == f"NULL the shape of `{name}` is null"
    for index, extent in enumerate(SIZES[name]):
        for wrong in (extent + 1, -1, -2):
            dims = [*SIZES[name][:index], wrong, *SIZES[name][index + 1 :]]
            found = spoilt(shape=int64_array(*dims))
            if (name, index) == ("d", 0):  # it says what n is
                want = "SHAPE dimension 0 of `d` is negative" if wrong < 0 else "SYMBOL dimension 1 of `e` must be n"
            elif (name, index) == ("e", 1):
                want = "SYMBOL dimension 1 of `e` must be n, which dimension 0 of `d` gives"
            elif (name, index) == ("out", 0):
                want = "SYMBOL dimension 0 of `out` must be n, which dimension 0 of `d` gives"
            else:
                want = f"SHAPE dimension {index} of `{name}` must be {extent}"
            assert found.startswith(want)
    if name == "f":  # nothing is in it
        assert spoilt(data=None, byte_offset=1, strides=int64_array(5, 5, 5)) == ""
        return
    assert spoilt(data=None) == f"NULL the data of `{name}` are null"
    assert spoilt(byte_offset=size // 2) == f"ALIGN `{name}` must be aligned to {size} bytes"
    if ndim:
        strides = [s // size for s in np.ones(SIZES[name], DTYPES.get(name, np.float32)).strides]
        assert spoilt(strides=int64_array(*strides)) == ""
        for index, extent in enumerate(SIZES[name]):
            moved = int64_array(*(s + 7 * (i == index) for i, s in enumerate(strides)))
            assert spoilt(strides=moved) == ("" if extent == 1 else f"STRIDES `{name}` must be contiguous")


def test_scalars_and_shared_memory_are_checked(library: ctypes.CDLL) -> None:
    given = Arguments()
    given.number = 1 << 31
    assert error_of(library, given) == "VALUE `k` does not fit int32"
    for name in ("a", "d", "g"):
        given = Arguments()
        out, other = given.tensors["out"], given.tensors[name]
        assert out is not None and other is not None
        out.data = other.data
        assert error_of(library, given) == "OVERLAP `out` shares memory with another argument"


def test_the_first_is_named(library: ctypes.CDLL) -> None:
    """Arguments are looked at in order."""
    given = Arguments()
    for name in reversed(SIZES):
        given.tensors[name] = None
        assert error_of(library, given) == f"NULL `{name}` is null"


def test_the_runtime_says_the_same() -> None:
    main = load(mlcc.build(mlcc.parse(TEXT)))["main"]
    arrays = Arguments().arrays
    arrays.pop("out")
    values = list(arrays.values())
    with pytest.raises(mlcc.CallError, match="dim n of `d` is 4, of `e` is 5"):
        main(*values[:3], 7, values[3][:4], *values[4:])
