"""Archives of arrays that NumPy or others wrote, well or badly: what is read is right, all else is a diagnostic."""

from __future__ import annotations

import io
import itertools
import random
import resource
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.array_files import load_arrays, npz_bytes, save_arrays
from mlcc.cli.main import run
from mlcc.errors import CompileError
from mlcc.runtime import npz
from mlcc.runtime.npz import Arrays, Damaged

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
ARRAYS = {
    "a": np.arange(24, dtype=np.float32).reshape(4, 6), "b": np.array([True, False]), "c": np.zeros((0, 5)),
    "d": np.float16(3), "e": np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
    "f": np.random.default_rng(0).standard_normal((100, 700)), "g": np.array(["text", "more"]),
    "h.npy": np.arange(3), "é": np.ones(2, np.uint8), "v": np.zeros(3, "V2"),
}  # fmt: skip


def packed(arrays: dict[str, Any], method: int = zipfile.ZIP_STORED, **options: Any) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", **options) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return made.getvalue()


def member(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """A .npy file with that header."""
    text = header.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def archive_of(content: bytes, method: int = zipfile.ZIP_STORED, name: str = "A.npy") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"force_zip64": True}])
def test_what_numpy_writes_is_read(tmp_path: Path, method: int, options: dict[str, Any]) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(packed(ARRAYS, method, **options))
    found = load_arrays(str(path))
    assert list(found) == [name.removesuffix(".npy") if name != "h.npy" else "h.npy" for name in ARRAYS]
    with np.load(path) as judge:
        for name in found:
            want = judge[f"{name}.npy"]
            assert found[name].dtype.isnative and found[name].shape == want.shape
            if want.dtype.kind == "V":
                assert found[name].tobytes() == want.tobytes()
            else:
                np.testing.assert_array_equal(found[name], want)


def test_what_mlcc_writes_is_read_by_numpy(tmp_path: Path) -> None:
    save_arrays(str(tmp_path / "x.npz"), ARRAYS)
    with np.load(tmp_path / "x.npz") as found:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
    assert npz_bytes(ARRAYS) == npz_bytes(dict(ARRAYS))


def test_large_archives_are_mapped(tmp_path: Path) -> None:
    """Elements that mlcc wrote are used where they lie; writing to them writes to no file."""
    big = np.arange(6 << 20, dtype=np.float32)
    save_arrays(str(tmp_path / "x.npz"), {"small": np.ones(3), "big": big})
    before = (tmp_path / "x.npz").read_bytes()
    found = load_arrays(str(tmp_path / "x.npz"))["big"]
    assert not found.flags.owndata and found.ctypes.data % 64 == 0
    found[:] = 0
    assert (tmp_path / "x.npz").read_bytes() == before
    np.savez(tmp_path / "y.npz", abc=big)  # not aligned
    np.testing.assert_array_equal(load_arrays(str(tmp_path / "y.npz"))["abc"], big)


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }"
HEADERS = [
    GOOD.replace("(8,)", shape)
    for shape in ("(True, 8)", "(-8,)", "(8.0,)", "('8',)", "8", "[8]", "(8, 1 << 60)", "(1 << 9,)", "(0x8,)", "(8)",
                  "(8,,)", "((8,),)", "()", "(None,)", "(1000000000000,)", "(99999999999999999999999,)",
                  "(" + "1, " * 99 + ")", "(4294967296, 4294967296)", "(0, 4611686018427387904, 4611686018427387904)")
] + [
    GOOD.replace("'<f4'", descr)
    for descr in ("'|O'", "'O8'", "[('a', '<f4')]", "('<f4', (2,))", "'<f3'", "'V0'", "'S0'", "'a4'", "'<f4, <f4'",
                  "'V99999999999'", "'__import__'", "4", "None", "''", "'\\x3cf4'", "'<M8[ns]x'", "'i4[999999]'")
] + [
    GOOD.replace("False", "1"), GOOD.replace("False", "None"), "{}", "[]", "", "{'descr': '<f4'}", GOOD + GOOD,
    GOOD.replace("'shape'", "'descr'"), GOOD.replace("}", ""), "(" * 5000, "{" * 60000, GOOD + " " * 70000,
    GOOD.replace("(8,)", "(" + "(" * 300 + ")" * 300 + ")"), "\0" * 100, "1if 1else 2", GOOD.replace("{", "{'x': 1, "),
]  # fmt: skip


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_say_nonsense(header: str, method: int) -> None:
    for version in (1, 2):
        if version == 1 and len(header) > 65000:
            continue
        with pytest.raises(Damaged):
            Arrays(archive_of(member(header, bytes(32), version), method)).read("A")


def changed(data: bytes, at: int, size: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def test_members_that_are_not_what_they_say(tmp_path: Path) -> None:
    good = member(GOOD, bytes(32))
    stored, deflated = archive_of(good), archive_of(good, zipfile.ZIP_DEFLATED)
    entry = stored.index(b"PK\x01\x02")
    packed_entry = deflated.index(b"PK\x01\x02")
    cases = {
        "encrypted": changed(stored, entry + 8, 2, 1), "patched": changed(stored, entry + 8, 2, 0x20),
        "checksum": stored.replace(bytes(32), b"\1" + bytes(31)), "crc": changed(stored, entry + 16, 4, 7),
        "method": changed(stored, entry + 10, 2, 99), "longer": archive_of(good + b"x"), "cut": archive_of(good[:-1]),
        "size": changed(stored, entry + 24, 4, 1 << 31), "place": changed(stored, entry + 42, 4, 1 << 31),
        "unpacks to more": changed(deflated, packed_entry + 24, 4, len(good) - 32),
        "unpacks to less": changed(deflated, packed_entry + 24, 4, len(good) + 1),
        "a bad bool": archive_of(member(GOOD.replace("<f4", "|b1"), b"\2" * 8)),
        "an object": archive_of(member(GOOD.replace("<f4", "|O"), bytes(64))),
        "no array": archive_of(b"hello"), "empty": archive_of(b""), "bad lzma": changed(
            archive_of(good, zipfile.ZIP_LZMA), 39, 4, 0xFFFFFFFF),
    }  # fmt: skip
    for what, data in cases.items():
        with pytest.raises(Damaged):
            Arrays(data).read("A")
            pytest.fail(what)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = io.BytesIO(stored)
        with zipfile.ZipFile(twice, "a") as archive:
            archive.writestr("A.npy", good)
    with pytest.raises(Damaged, match="two"):
        Arrays(twice.getvalue())


def test_nothing_claims_memory_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that say terabytes, or unpack to very many, take no memory."""
    monkeypatch.setattr(npz, "UNPACKED", 32 << 20)
    liar = member(GOOD.replace("(8,)", "(1000000000000,)"), bytes(32))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive, \
            archive.open("A.npy", "w", force_zip64=True) as into:  # fmt: skip
        into.write(member(GOOD.replace("(8,)", f"({1 << 25},)")))
        for _ in range(8):
            into.write(bytes(16 << 20))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (archive_of(liar), archive_of(liar, zipfile.ZIP_DEFLATED), bomb.getvalue()):
        with pytest.raises(Damaged):
            Arrays(data).read("A")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 100_000  # KiB


def test_declared_shapes_come_before_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a function, a reference or a parameter declares is compared with the header alone."""
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as archive:
        archive.writestr("A.npy", member(GOOD.replace("(8,)", "(9,)"), bytes(35) + b"x"))
    data = bytearray(huge.getvalue())
    data[data.index(b"x\x00\x00") if b"x\x00\x00" in data else data.index(b"\0x")] ^= 1  # its checksum is wrong, too
    (tmp_path / "x.npz").write_bytes(data)
    (tmp_path / "w.npz").write_bytes(data)
    (tmp_path / "m.mlc").write_text(KERNEL)
    assert run(["run", str(tmp_path / "m.mlc"), "--in", str(tmp_path / "x.npz")]) == 1
    assert "has shape (9,), expected float32(8,)" in capsys.readouterr().err
    (tmp_path / "w.mlc").write_text(GRAPH)
    assert run(["check", str(tmp_path / "w.mlc")]) == 1
    assert "E0902" in capsys.readouterr().err
    (tmp_path / "p.mlc").write_text(PARAMETER)
    assert run(["passes", str(tmp_path / "p.mlc"), "-p", f'bind-params{{params="{tmp_path / "x.npz"}"}}']) == 1
    assert "E0507" in capsys.readouterr().err


def test_arrays_that_nobody_needs_are_not_read(tmp_path: Path) -> None:
    good = packed({"w": np.ones(40, np.float32), "broken": np.arange(50.0)})
    (tmp_path / "w.npz").write_bytes(good.replace(np.float64(3).tobytes(), np.float64(4).tobytes()))
    (tmp_path / "w.mlc").write_text(GRAPH.replace('"A"', '"w"').replace("(8,)", "(40,)"))
    assert run(["check", str(tmp_path / "w.mlc")]) == 0
    with pytest.raises(CompileError, match="checksum"):
        load_arrays(str(tmp_path / "w.npz"))["broken"]


KERNEL = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
"""
GRAPH = """
@R.function
def main(x: R.Tensor((8,), "float32")):
    y = R.add(x, R.data("A", R.Tensor((8,), "float32")))
    return y
"""
PARAMETER = """
@R.function
def main(x: R.Tensor((8,), "float32"), A: R.Tensor((8,), "float32")):
    y = R.add(x, A)
    return y
"""


def mutations(rng: random.Random, count: int) -> Iterator[bytes]:
    """Archives with changed bytes, fields, members and ends; half of them with checksums that are right again."""
    bases = [
        packed({"A": np.arange(8, dtype=np.float32), "C": np.ones((3, 2))}, m, force_zip64=z)
        for m, z in itertools.product(METHODS, (False, True))
    ]
    for number in range(count):
        data = bytearray(bases[number % len(bases)])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", b"PK\1\2", b"PK\3\4"))
                case 2:
                    del data[at : at + rng.randint(1, 9)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randint(1, 9))
                case 4:
                    places = [i for i in range(len(data)) if data.startswith((b"PK", b"{'descr"), i)]
                    if places:
                        data[min(rng.choice(places) + rng.randrange(46), len(data) - 1)] = rng.randrange(256)
            data = data or bytearray(b"P")
        if number % 2:
            data = with_correct_checksums(data)
        yield bytes(data)


def with_correct_checksums(data: bytearray) -> bytearray:
    """With the right checksum wherever a stored member still can be found."""
    at = data.find(b"PK\1\2")
    while at >= 0 and at + 46 <= len(data):
        start, size = (
            int.from_bytes(data[at + 42 : at + 46], "little"),
            int.from_bytes(data[at + 20 : at + 24], "little"),
        )
        body = start + 30 + sum(int.from_bytes(data[start + i : start + i + 2], "little") for i in (26, 28))
        data[at + 16 : at + 20] = zlib.crc32(data[body : body + size]).to_bytes(4, "little")
        at = data.find(b"PK\1\2", at + 1)
    return data


def test_mutated_archives_end_in_arrays_or_a_diagnostic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """None ends in a bug of mlcc, in a signal, or in much memory."""
    (tmp_path / "m.mlc").write_text(KERNEL)
    assert run(["compile", str(tmp_path / "m.mlc"), "-o", str(tmp_path / "m.o")]) == 0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = {0: 0, 1: 0}
    for data in mutations(random.Random(5), 800):
        (tmp_path / "x.npz").write_bytes(data)
        ends[
            run(["run", str(tmp_path / "m.o"), "--in", str(tmp_path / "x.npz"), "--out", str(tmp_path / "y.npz")])
        ] += 1
        try:
            found = Arrays(data)
            for name in found.members:
                found.read(name)
        except Damaged:
            pass
    assert ends[1] > 600 and "bug in mlcc" not in capfd.readouterr().err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown < 300_000  # KiB
