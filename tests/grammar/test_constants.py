"""Data lines, FILE.npz, hashes, keys."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.array_files import save_arrays
from mlcc.errors import CompileError, Source
from mlcc.grammar.constants import CHUNK, ConstantKeys, Constants, as_tensor, data_lines, stored_arrays, strip_data
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import TensorData

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool", "float8_e5m2"]


def tensor(dtype: str, shape: tuple[int, ...], seed: int = 0, key: str = "w") -> TensorData:
    made = DType.of(dtype)
    random = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype == "bool":
        array = random.integers(0, 2, count).astype(bool)
    else:
        from mlcc.ir.tensor_data import storage_dtype

        array = random.integers(0, 100, count).astype(storage_dtype(made))
    return TensorData(made, shape, array.reshape(shape), key)


def constants(*lines: str) -> Constants:
    return Constants(Source("m.mlc", "x\n" + "\n".join(lines) + "\n"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 4), (3, 5), (2, 1, CHUNK)])
def test_data_lines_round_trip(dtype: str, shape: tuple[int, ...]) -> None:
    old = tensor(dtype, shape)
    lines = list(data_lines({"w": old}))
    new = constants(*lines).resolve("w", old.dtype, shape, old.sha256, None)
    assert new.same_as(old) and new.sha256 == old.sha256
    assert max(map(len, lines)) < 4200
    assert strip_data("a\n" + "\n".join(lines) + "\nb\n") == "a\nb\n"


@given(st.text(min_size=1, max_size=8))
def test_any_key_is_written_and_read(key: str) -> None:
    line = next(data_lines({key: tensor("int8", (2,), key=key)}))
    found = constants(line).resolve(key, None, None, None, None)
    if all(not 0xD800 <= ord(c) < 0xE000 for c in key):
        assert found.array is not None and found.shape == (2,)


def test_keys_are_unique_by_content() -> None:
    keys = ConstantKeys()
    a, b, same = tensor("int8", (4,), 1), tensor("int8", (4,), 2), tensor("int8", (4,), 1)
    assert [keys.of(t) for t in (a, b, same, b)] == ["w", "w_1", "w", "w_1"]
    absent = TensorData(DType.of("int8"), (4,), None, "w")
    assert keys.of(absent) == "w_2"
    assert list(stored_arrays(keys.tensors)) == ["w", "w_1"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_npz_files_beside_the_text_are_read(tmp_path: Path, dtype: str) -> None:
    old = tensor(dtype, (3, 4))
    save_arrays(str(tmp_path / "m.npz"), stored_arrays({"w": old}))
    source = Source(str(tmp_path / "m.mlc"), "")
    assert Constants(source, None, str(tmp_path)).resolve("w", old.dtype, (3, 4), old.sha256, None).same_as(old)
    assert Constants(source, None, None).resolve("w", old.dtype, (3, 4), None, None).array is None
    assert Constants(source, None, str(tmp_path)).resolve("other", old.dtype, (3, 4), None, None).array is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_safetensors_beside_the_text_are_read(tmp_path: Path, dtype: str) -> None:
    old = tensor(dtype, (3, 4))
    save_arrays(str(tmp_path / "m.safetensors"), stored_arrays({"w": old}))
    for text in ("", "# mlcc.data-file m.safetensors\n", "# mlcc.data-file m.safetensors\n# mlcc.data-file m.npz\n"):
        source = Source(str(tmp_path / "m.mlc"), text)
        assert Constants(source, None, str(tmp_path)).resolve("w", old.dtype, (3, 4), old.sha256, None).same_as(old)
        assert Constants(source, None, str(tmp_path)).resolve("w", None, None, None, None).same_as(old)


def test_data_in_two_files_are_ambiguous(tmp_path: Path) -> None:
    made = {key: tensor("float32", (4,), seed, key) for seed, key in enumerate("ab")}
    save_arrays(str(tmp_path / "m.safetensors"), stored_arrays(made))
    save_arrays(str(tmp_path / "m.npz"), stored_arrays({"a": made["b"]}))
    data = Constants(Source("m.mlc", ""), None, str(tmp_path))
    assert data.resolve("b", None, None, None, None).same_as(made["b"])
    assert code_of(lambda: data.resolve("a", None, None, None, None)) == "E1071"
    named = Constants(Source("m.mlc", "# mlcc.data-file m.safetensors\n"), None, str(tmp_path))
    assert named.resolve("a", None, None, None, None).same_as(made["a"])


def test_given_data_come_first() -> None:
    new = np.arange(4, dtype="float32")
    source = Source("m.mlc", "\n".join(data_lines({"w": tensor("float32", (4,))})))
    found = Constants(source, {"w": new}).resolve("w", DType.of("float32"), (4,), None, None)
    np.testing.assert_array_equal(found.array, new)


def test_absent_is_legal() -> None:
    absent = constants().resolve("w", DType.of("float32"), (4,), "ab" * 32, None)
    assert absent.array is None and absent.sha256 == "ab" * 32
    unknown = constants().resolve("metadata", None, None, None, None)
    assert unknown.dtype.is_void and unknown.shape == ()


def code_of(call: object) -> str:
    with pytest.raises(CompileError) as caught:
        call()  # type: ignore[operator]
    return caught.value.diagnostics[0].code


GOOD = next(data_lines({"w": TensorData.of(np.arange(4, dtype="float32"))}))


@pytest.mark.parametrize(
    "lines",
    [
        ["# mlcc.data w"],
        ["# mlcc.data w float32 4 AAAA BBBB"],
        ["# mlcc.data w float33 4 AAAA"],
        ["# mlcc.data w float32 4x-1 AAAA"],
        ["# mlcc.data w float32 99999999999999999999 AAAA"],
        ["# mlcc.data w handle 1 AAAA"],
        ["# mlcc.data w float32 4 !!!!"],
        [GOOD[:-8]],
        [GOOD[:-1]],
        [GOOD, "# mlcc.data w + AAAA"],
        [GOOD, GOOD],
        ["# mlcc.data w + AAAA"],
        ["# mlcc.data w bool 1 Ag=="],
    ],
)
def test_damaged_lines_are_refused(lines: list[str]) -> None:
    assert code_of(lambda: constants(*lines).resolve("w", None, None, None, None)) == "E0901"


def test_unused_lines_are_checked_on_request() -> None:
    damaged = constants(GOOD, "# mlcc.data v float32 4 AAAA")
    damaged.resolve("w", None, None, None, None)
    assert code_of(damaged.check_unused) == "E0901"


def test_wrong_kind_and_wrong_hash() -> None:
    data = constants(GOOD)
    assert code_of(lambda: data.resolve("w", DType.of("float32"), (2, 2), None, None)) == "E0902"
    assert code_of(lambda: data.resolve("w", DType.of("int32"), (4,), None, None)) == "E0902"
    assert code_of(lambda: data.resolve("w", DType.of("float32"), (4,), "00" * 32, None)) == "E0903"
    right = data.resolve("w", DType.of("float32"), (4,), None, None).sha256
    assert right is not None
    assert data.resolve("w", DType.of("float32"), (4,), right[:16], None).array is not None


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    with open(tmp_path / "m.npz", "wb") as file:
        np.savez(file, w=np.array([{"a": 1}], dtype=object))
    data = Constants(Source("m.mlc", ""), None, str(tmp_path))
    assert code_of(lambda: data.resolve("w", DType.of("float32"), (1,), None, None)) == "E0003"


def test_data_stay_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "away").mkdir()
    save_arrays(str(tmp_path / "away" / "m.npz"), {"w": np.zeros(4, "float32")})
    os.symlink(tmp_path / "away" / "m.npz", tmp_path / "home" / "m.npz")
    data = Constants(Source("../away/m.mlc", ""), None, str(tmp_path / "home"))
    assert code_of(lambda: data.resolve("w", None, None, None, None)) == "E0906"
    climbing = Constants(Source("x.mlc", ""), None, str(tmp_path / "home"))
    assert climbing.resolve("../away/m.npz", None, None, None, None).array is None


def test_arrays_of_foreign_types_are_refused() -> None:
    bits = np.array([0x3F80, 0x4000], "uint16")
    for array in (bits, bits.view("V2")):
        made = as_tensor(array, DType.of("bfloat16"), "k")
        assert made.dtype is DType.of("bfloat16") and made.array is not None and made.array[1] == 0x4000
    for array in (np.array(["a"]), np.array([1j]), bits.view("V2")):
        assert code_of(lambda a=array: as_tensor(a, None, "k")) == "E0902"
