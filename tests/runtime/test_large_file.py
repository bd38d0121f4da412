"""Objects with large constants: loading takes their size once, and nothing that happens to the file later matters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import LoadError
from mlcc.runtime import large_file
from mlcc.runtime.loader import load, read_manifest

ROWS, COLUMNS = 1 << 19, 32  # 64 MiB
TEXT = f"""
@R.function
def main(i: R.Tensor((2,), "int32")) -> R.Tensor((2, {COLUMNS}), "float32"):
    table = R.data("table", R.Tensor(({ROWS}, {COLUMNS}), "float32"))
    return R.take(table, i, axis=0)
"""
PEAK = """
import resource, sys
import numpy, mlcc
mlcc.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = mlcc.load(sys.argv[2])["main"](numpy.array([7, -1], "int32"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, *found[:, 0])
"""


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


@pytest.fixture(scope="module")
def saved(table: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.o"
    mlcc.build(mlcc.parse(TEXT, data={"table": table})).save(path)
    return path


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.o"
    path.write_bytes(saved.read_bytes())
    return path


def test_loading_takes_the_size_once(saved: Path, table: np.ndarray, tmp_path: Path) -> None:
    small = tmp_path / "small.o"
    text = TEXT.replace(str(ROWS), "8")
    mlcc.build(mlcc.parse(text, data={"table": table[:8]})).save(small)
    said = subprocess.run([sys.executable, "-c", PEAK, small, saved], capture_output=True, check=True, text=True).stdout
    grown, *found = map(float, said.split())
    assert found == [table[7, 0], table[-1, 0]]
    assert grown < 1.4 * table.nbytes / 1024  # KiB


def test_what_happens_to_the_file_later_does_not_matter(copy: Path, table: np.ndarray) -> None:
    main = load(copy)["main"]
    os.truncate(copy, 100)
    copy.write_bytes(b"other")
    np.testing.assert_array_equal(main(np.array([1, ROWS // 2], np.int32)), table[[1, ROWS // 2]])


@pytest.mark.parametrize("place", [5000, 1 << 20, 63 << 20])
def test_a_changed_byte_is_found(copy: Path, place: int) -> None:
    with open(copy, "r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
    for look in (load, read_manifest):
        with pytest.raises(LoadError, match=r"copy\.o: not a valid artifact: "):
            look(str(copy))


@pytest.mark.parametrize("size", [64, 1 << 20, 5 << 20, 64 << 20])
def test_a_file_that_was_cut_off_is_refused(copy: Path, size: int) -> None:
    os.truncate(copy, size)
    with pytest.raises(LoadError, match=r"copy\.o: not a valid artifact: "):
        load(copy)


def test_a_file_that_is_written_to_meanwhile_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = large_file.LargeFile.crc32

    def meddle(file: large_file.LargeFile, start: int, end: int, value: int = 0) -> int:
        found = checked(file, start, end, value)
        os.truncate(copy, 1 << 20)
        return found if start else checked(file, start, end, value)

    monkeypatch.setattr(large_file.LargeFile, "crc32", lambda *args: meddle(*args))
    with pytest.raises(LoadError):
        load(copy)


def test_manifests_are_read_without_the_constants(saved: Path) -> None:
    assert read_manifest(str(saved))["functions"].keys() == {"main"}


def test_files_are_closed(saved: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        load(saved)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_object_comes_through_a_named_pipe(tmp_path: Path) -> None:
    """It is opened once: who writes to it would else be told that nobody reads."""
    text = mlcc.parse('@T.prim_func\ndef main(A: T.Buffer((4,), "float32")):\n    A[0] = T.float32(3)\n')
    content = mlcc.build(text, opt_level=0).emit("obj")
    pipe = tmp_path / "m.o"
    for _ in range(10):
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        a = np.zeros(4, np.float32)
        mlcc.load(str(pipe))["main"](a)
        writer.join()
        assert a[0] == 3
        pipe.unlink()
