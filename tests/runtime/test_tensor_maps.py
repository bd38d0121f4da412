"""Tensor maps on hardware, by stand-ins: what the driver's function is given, errors, and what is encoded only once."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from mlcc.errors import CallError
from mlcc.runtime.cuda import tensor_maps
from mlcc.runtime.cuda.device import CudaDevice
from mlcc.runtime.cuda.driver import ArgumentBlock, DriverError
from mlcc.runtime.launch.tensor_map import MapSpec, encode_as_numbers, tensor_map
from tests.runtime.fake_driver import FakeDriver

SPEC = MapSpec("A", "bfloat16", (64, 128), (1, 1), 128)


def numbers(kind: Any, address: int, count: int) -> list[int]:
    return list((kind * count).from_address(address))


class Function:
    """cuTensorMapEncodeTiled: notes its arguments, and fills the map with a pattern."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.seen: list[Any] = []

    def __call__(self, to: int, dtype: int, rank: int, address: int, dims: int, strides: int, box: int, steps: int,
                 *rest: int) -> int:  # fmt: skip
        assert to % 64 == 0
        lists = [numbers(ctypes.c_uint64, dims, rank), numbers(ctypes.c_uint64, strides, rank - 1)]
        lists += [numbers(ctypes.c_uint32, at, rank) for at in (box, steps)]
        self.seen.append((dtype, rank, address, *lists, rest))
        ctypes.memset(to, 0x5A, 128)
        return self.code


def test_what_the_driver_is_given() -> None:
    function = Function()
    made = tensor_map(SPEC, 4096, [1000, 77], [2048])
    assert tensor_maps.encode(made, function) == b"\x5a" * 128
    # bfloat16 is 9; no interleave, swizzle of 128 bytes, promotion to 128 bytes in L2, zeros outside
    assert function.seen == [(9, 2, 4096, [1000, 77], [2048], [64, 128], [1, 1], (0, 3, 2, 0))]
    one = tensor_map(MapSpec("A", "int8", (16,), (1,)), 4096, [5], [])
    tensor_maps.encode(one, function)
    assert function.seen[1] == (0, 1, 4096, [5], [], [16], [1], (0, 0, 2, 0))


def test_a_tensor_without_elements_is_one_zero() -> None:
    """A condition may leave nothing of a tensor that is copied all the same."""
    driver = FakeDriver()
    device = CudaDevice(driver)
    for dims in ([0, 77], [64, -3], [64, 0]):
        device.tensor_map(tensor_map(SPEC, 0, dims, [2048]))
    ((_, made),) = driver.called("encode")
    assert (made.dims, made.strides) == ((1, 1), (16,)) and made.address % 16 == 0
    assert ctypes.string_at(made.address, 256) == bytes(256)


def test_what_the_driver_refuses() -> None:
    with pytest.raises(DriverError, match=r"`A` \(extents \[1000, 77\].*refused \(INVALID_VALUE\)"):
        tensor_maps.encode(tensor_map(SPEC, 4096, [1000, 77], [2048]), Function(1))


def test_missing_drivers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_maps, "LIBRARY", "libcuda-that-is-not-there.so")
    tensor_maps._function.cache_clear()
    with pytest.raises(DriverError, match="NOT_FOUND"):
        tensor_maps.encode(tensor_map(SPEC, 4096, [1000, 77], [2048]))
    tensor_maps._function.cache_clear()


@pytest.mark.parametrize(
    ("address", "dims", "strides", "message"),
    [
        (4104, [8, 8], [16], "address 0x1008 is not a multiple"),
        (4096, [7, 8], [14], "row stride of 14 bytes is not a multiple of 16"),
        (4096, [7, 8], [1 << 40], "must be less than 1099511627776"),
        (4096, [1 << 33, 8], [16], "an extent of 8589934592"),
    ],
)
def test_limits_are_said_before_the_driver_is_asked(
    address: int, dims: list[int], strides: list[int], message: str
) -> None:
    with pytest.raises(CallError, match=f"E0879.*{message}"):
        tensor_map(SPEC, address, dims, strides)


def test_a_device_encodes_each_map_once() -> None:
    driver = FakeDriver()
    device = CudaDevice(driver)
    first, second = (tensor_map(SPEC, 4096, [64, n], [2048]) for n in (5, 6))
    for made in (first, second, tensor_map(SPEC, 4096, (64, 5), (2048,)), second):
        assert device.tensor_map(made) == encode_as_numbers(made)
    assert driver.called("encode") == [("encode", first), ("encode", second)]
    driver.faults["encode"] = ["INVALID_VALUE"]
    with pytest.raises(CallError, match="E0864"):
        device.tensor_map(tensor_map(SPEC, 8192, [64, 5], [2048]))


def test_a_launch_passes_maps_by_value_where_they_are_aligned() -> None:
    block = ArgumentBlock(["ptr", "int32", "bytes128", "ptr"])
    assert [at for at, _, _ in block.places] == [0, 8, 64, 192]
    block.fill([1, 2, b"\x5a" * 128, 3])
    assert block.content[64:192] == b"\x5a" * 128
    pointers = numbers(ctypes.c_uint64, block.pointers, 4)
    assert pointers[2] % 64 == 0 and ctypes.string_at(pointers[2], 128) == b"\x5a" * 128
