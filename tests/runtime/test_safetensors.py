"""Files of tensors that others or mlcc wrote, well or badly: what is read is right, all else is a diagnostic."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.array_files import load_arrays, npz_bytes, save_arrays
from mlcc.cli.main import run
from mlcc.errors import CompileError
from mlcc.files import release_pages
from mlcc.runtime.abi import dtype_tag, tagged_dtype
from mlcc.runtime.npz import Damaged
from mlcc.runtime.safetensors import DTYPES, MAX_HEADER, Tensors, storage

ARRAYS = {
    "a": np.arange(24, dtype=np.float32).reshape(4, 6), "b": np.array([True, False, True]), "c": np.zeros((0, 5)),
    "d": np.array(3, np.float16), "e": np.arange(6, dtype=np.int32).reshape(2, 3), "layer.0.é": np.ones(7, np.uint8),
    "f": np.random.default_rng(0).standard_normal((100, 700)), "g": np.arange(4, dtype=np.uint64),
}  # fmt: skip
GOOD: dict[str, Any] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file_of(header: Any, data: bytes = b"", pad: bytes = b"") -> bytes:
    """A .safetensors with that header: plain data, or bytes as they are."""
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + pad
    return len(text).to_bytes(8, "little") + text + data


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    tensors = Tensors(content)
    return {name: tensors.read(name) for name in tensors.members}


def same(found: np.ndarray, want: np.ndarray) -> bool:
    return found.dtype == want.dtype and found.shape == want.shape and found.tobytes() == want.tobytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "x.safetensors")
    save_arrays(path, ARRAYS)
    found = load_arrays(path)
    assert set(found) == set(ARRAYS) and len(found) == len(ARRAYS) and "z" not in found
    for name, array in ARRAYS.items():
        assert found.kind(name) == (array.shape, array.dtype)
        assert same(found[name], array), name
    first = Path(path).read_bytes()
    save_arrays(path, dict(reversed(ARRAYS.items())))
    assert Path(path).read_bytes() == first


def test_the_library_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path = str(tmp_path / "x.safetensors")
    save_arrays(path, ARRAYS)
    theirs = library.load_file(path)
    assert theirs.keys() == ARRAYS.keys() and all(same(theirs[name], array) for name, array in ARRAYS.items())
    library.save_file(ARRAYS, path, {"format": "np"})
    found = load_arrays(path)
    assert all(same(found[name], array) for name, array in ARRAYS.items())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_lacks_are_read_and_written(tmp_path: Path, name: str) -> None:
    """Their bits come with the name, and a file is written with it."""
    bits = np.arange(64, dtype=storage(name)).view(tagged_dtype(name, storage(name)))
    path = str(tmp_path / "x.safetensors")
    save_arrays(path, {"w": bits})
    found = load_arrays(path)["w"]
    assert dtype_tag(found.dtype) == name and same(found, bits)
    save_arrays(str(tmp_path / "x.npz"), {"w": bits})
    plain = load_arrays(str(tmp_path / "x.npz"))["w"]
    assert dtype_tag(plain.dtype) is None and same(plain, bits)


def test_large_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.safetensors")
    big = np.arange(5 << 20, dtype=np.float32)
    save_arrays(path, {"big": big, "small": np.ones(3, np.uint8)})
    found = load_arrays(path)["big"]
    assert not found.flags.owndata and found.ctypes.data % 64 == 0
    np.testing.assert_array_equal(found, big)
    found.flags.writeable = False
    release_pages(found)
    np.testing.assert_array_equal(found, big)


def test_other_orders_and_paddings_are_read() -> None:
    header = {"x": {"shape": [2], "data_offsets": [8, 10], "dtype": "U8"}, "__metadata__": {"format": "pt"}, "y": GOOD}
    content = file_of(header, np.array([1, 2], np.float32).tobytes() + b"\1\2", b"  \n ")
    found = arrays_of(content)
    assert found["x"].tolist() == [1, 2] and found["y"].tolist() == [1.0, 2.0]
    assert arrays_of(file_of({}, b"")) == {}
    empty = {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]}
    assert arrays_of(file_of({"e": empty, "y": GOOD}, bytes(8)))["e"].shape == (0, 3)


def with_fields(**fields: Any) -> bytes:
    return file_of({"x": {**GOOD, **fields}}, bytes(8))


DAMAGED = {
    "cut off before": b"\0\0\0",
    "header is cut off": file_of({"x": GOOD})[:20],
    "more than": (MAX_HEADER + 1).to_bytes(8, "little") + bytes(MAX_HEADER + 1),
    "is not JSON": file_of(b'{"x": '),
    "no map of names": file_of([GOOD]),
    "twice": file_of(b'{"x": 1, "x": 2}'),
    "says `dtype` twice": file_of(b'{"x": {"dtype": "F32", "dtype": "F32"}}'),
    "and nothing else": file_of({"x": {**GOOD, "more": 1}}, bytes(8)),
    "no map of strings": file_of({"__metadata__": {"format": 1}}),
    "dtype `F31`": with_fields(dtype="F31"),
    "dtype `F4`": with_fields(dtype="F4"),
    "dtype `\\['F32'\\]`": with_fields(dtype=["F32"]),
    "malformed shape": with_fields(shape=[-2]),
    "has a malformed": with_fields(shape=[2.0]),
    "`x` has a malformed": with_fields(shape=[1 << 62, 4]),
    "a malformed shape": with_fields(shape=[0, 1 << 62]),
    "malformed": with_fields(shape=[1] * 40),
    "does not lie inside": with_fields(data_offsets=[0, 16], shape=[4]),
    "not lie inside the": with_fields(data_offsets=[8, 0]),
    "lie inside the file": with_fields(data_offsets=[0, 4, 8]),
    "inside the file": with_fields(data_offsets=[True, 8]),
    "takes 12 bytes, and has 8": with_fields(shape=[3]),
    "overlaps": file_of({"x": GOOD, "y": GOOD}, bytes(8)),
    "overlaps another": file_of({"x": GOOD, "y": {**GOOD, "data_offsets": [4, 12]}}, bytes(12)),
    "begins 4 bytes behind": with_fields(shape=[1], data_offsets=[4, 8]),
    "belong to no tensor": with_fields(shape=[1], data_offsets=[0, 4]),
    "that are no bools": file_of({"x": {**GOOD, "dtype": "BOOL", "data_offsets": [0, 2]}}, b"\1\2"),
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_what_is_not_sound_is_refused(reason: str) -> None:
    with pytest.raises(Damaged, match=reason):
        arrays_of(DAMAGED[reason])


def test_deep_headers_are_no_recursion() -> None:
    for text in (b"[" * 100_000, b'{"x":' * 100_000, b"1" * 5000, b'{"x": NaN}', b'{"x": 1e999}', b'"\xff"'):
        with pytest.raises(Damaged):
            Tensors(file_of(text))


def test_bytes_changed_at_random_are_read_or_refused() -> None:
    """Whatever a header says: the arrays lie inside the file, and nothing else than Damaged is raised."""
    rng = random.Random(0)
    header = {"x": GOOD, "b": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [8, 12]}}
    good = bytearray(file_of(header, bytes(range(12))))
    digits = b'0123456789-[]{},:" .eBFIU'
    refused = 0
    for _ in range(4000):
        content = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(content))
            content[at] = rng.choice(digits) if rng.random() < 0.7 else rng.randrange(256)
        cut = bytes(content[: rng.choice([len(content), len(content), rng.randrange(len(content))])])
        try:
            found = arrays_of(cut)
        except Damaged:
            refused += 1
            continue
        assert sum(array.nbytes for array in found.values()) <= 12
    assert refused > 1000


def test_arrays_that_no_safetensors_holds(tmp_path: Path) -> None:
    for array in (np.zeros(3, complex), np.array(["text"])):
        with pytest.raises(CompileError, match="E1070"):
            save_arrays(str(tmp_path / "x.safetensors"), {"w": array})
    assert list(tmp_path.iterdir()) == []


def test_every_dtype_has_a_storage() -> None:
    assert {storage(name).itemsize for name in DTYPES.values()} == {1, 2, 4, 8}


# ---------------------------------------------------------------- on the command line


SCALE = """
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    y = R.multiply(x, w)
    return y
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.mlc").write_text(SCALE)
    save_arrays("x.safetensors", {"x": np.arange(4, dtype=np.float32)})
    save_arrays("w.safetensors", {"w": np.full(4, 3, np.float32)})
    return tmp_path


def test_command_line_reads_and_writes_safetensors(folder: Path) -> None:
    assert run(["run", "m.mlc", "--in", "x.safetensors", "--in", "w.safetensors", "--out", "y.safetensors"]) == 0
    assert load_arrays("y.safetensors")["out"].tolist() == [0, 3, 6, 9]
    bound = ["-p", "bind-params{params=w.safetensors},O2"]
    assert run(["run", "m.mlc", *bound, "--in", "x.safetensors", "--expect", "y.safetensors"]) == 0
    save_arrays("z.safetensors", {"out": np.zeros(4, np.float32)})
    assert run(["run", "m.mlc", *bound, "--in", "x.safetensors", "--expect", "z.safetensors"]) == 3


def test_files_that_are_neither(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in {"a.npz": b"nothing", "b.safetensors": b"short", "c.safetensors": npz_bytes({})}.items():
        (folder / name).write_bytes(content)
        assert run(["run", "m.mlc", "--in", name]) == 1
        error = capsys.readouterr().err
        assert ("E0003" in error) is (name != "c.safetensors"), error


def test_a_dtype_is_never_taken_for_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bits of bfloat16 are neither float16, nor uint16."""
    bits = np.full(4, 0x3F80, np.uint16)
    for declared, code in {"bfloat16": 0, "float16": 1, "uint16": 1}.items():
        (folder / "n.mlc").write_text(SCALE.replace("float32", declared))
        save_arrays("n.safetensors", dict.fromkeys("xw", bits.view(tagged_dtype("bfloat16", bits.dtype))))
        assert run(["run", "n.mlc", "--in", "n.safetensors"]) == code
        bind = "bind-params{params=n.safetensors}"
        assert run(["passes", "n.mlc", "-p", bind, "-o", "o.mlc", "--force"]) == code
        errors = capsys.readouterr().err
        assert code == 0 or ("E0804" in errors and "E0507" in errors and "bfloat16" in errors)


def test_names_of_weights_are_spelled_as_identifiers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, w = np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)
    for name in ("w", "a_b_c", "p_a_b_c"):
        (folder / "n.mlc").write_text(SCALE.replace("w", name))
        save_arrays("n.safetensors", {name if name == "w" else "a.b-c": w})
        want = ["--in", "x.safetensors", "--out", "y.npz"]
        assert run(["run", "n.mlc", "-p", "bind-params{params=n.safetensors},O2", *want]) == 0
        assert run(["run", "n.mlc", "--in", "n.safetensors", *want]) == 0
        assert load_arrays("y.npz")["out"].tolist() == (x * w).tolist()
    capsys.readouterr()
    save_arrays("n.safetensors", {"a.b.c": w, "a_b.c": w})
    assert run(["run", "n.mlc", "-p", "bind-params{params=n.safetensors},O2", "--in", "x.safetensors"]) == 1
    assert "`a.b.c` and `a_b.c` are both spelled `p_a_b_c`" in capsys.readouterr().err
    assert run(["run", "n.mlc", "--in", "n.safetensors", "--in", "x.safetensors"]) == 1
    assert "`a.b.c` and `a_b.c` both match parameter `p_a_b_c`" in capsys.readouterr().err


def test_constants_are_written_to_the_file_that_is_named(folder: Path) -> None:
    big = np.arange(64, dtype=np.float32)
    (folder / "m.mlc").write_text(SCALE.replace("(4,)", "(64,)"))
    save_arrays("w.safetensors", {"w": big})
    bind = ["passes", "m.mlc", "-p", "bind-params{params=w.safetensors}"]
    assert run([*bind, "-o", "a.mlc"]) == 0
    assert "mlcc.data-file" not in (folder / "a.mlc").read_text()
    assert run([*bind, "-o", "b.mlc", "--data", "b.safetensors"]) == 0
    assert run([*bind, "-o", "c.mlc", "--data", "rest.safetensors"]) == 0
    save_arrays("x.npz", {"x": big})
    for name in "abc":
        assert run(["run", f"{name}.mlc", "--in", "x.npz", "--out", "y.npz"]) == 0
        np.testing.assert_array_equal(load_arrays("y.npz")["out"], big * big)
    assert run([*bind, "-o", "b.mlc"]) == 0  # b.npz beside b.safetensors: the text says which
    assert run(["run", "b.mlc", "--in", "x.npz"]) == 0
    assert run(["compile", "a.mlc", "-t", "cuda", "-o", "k.ptx", "--data", "k.safetensors"]) == 1
