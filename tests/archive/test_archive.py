"""Files of every version are read, run and upgraded for ever, with the results that they had."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.errors import MachineError
from mlcc.records.database import Database
from mlcc.runtime.loader import read_manifest
from mlcc.runtime.manifest import read
from mlcc.runtime.native import NativeExecutable
from tests.archive.add import main as add
from tests.archive.files import ARTIFACTS, SCRIPTS, TEXTS, arrays, digests, index, interpreted, make, versions

VERSIONS = versions()
NATIVE = ("today.o", "versions.o", "today.so", "libtoday.a", "arm.o")
EMULATED = ("today.ptx", "today.mlca")


def of_all(names: Any) -> pytest.MarkDecorator:
    """A test for the files of these names in every version that has them."""
    found = [(folder, name) for folder in VERSIONS for name in names if (folder / name).exists()]
    return pytest.mark.parametrize(("folder", "name"), found, ids=[f"{f.name}/{n}" for f, n in found])


def assert_results(have: list[np.ndarray], folder: Path, stem: str) -> None:
    want = arrays(folder / f"{stem}.results.npz")
    assert len(have) == len(want)
    for h, w in zip(have, want, strict=True):
        assert h.shape == w.shape and h.dtype == w.dtype
        np.testing.assert_allclose(h, w, 1e-5, 1e-6)


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda f: f.name)
def test_nothing_in_the_archive_changes(folder: Path) -> None:
    assert index(folder)["sha256"] == digests(folder)


def test_the_archive_has_every_kind_of_file() -> None:
    names = {path.name for path in VERSIONS[0].iterdir()}
    assert names >= {*TEXTS, *SCRIPTS, *ARTIFACTS, "today.h", "tune.db", "weights.npz", "today.npz", "app.c"}


@of_all([*TEXTS, "lowered.mlc", "tuned.mlc"])
def test_texts_mean_what_they_meant(folder: Path, name: str) -> None:
    module = mlcc.parse(folder / name)
    stem = {"lowered.mlc": "today", "tuned.mlc": "kernel"}.get(name, Path(name).stem)
    given = arrays(folder / f"{stem}.inputs.npz")
    assert_results(interpreted(module, given), folder, stem)
    main = mlcc.load(mlcc.build(module, target="llvm"))["main"]
    buffers = [array.copy() for array in given]
    result = main(*buffers)
    if stem == "kernel":
        assert_results(buffers[-1:], folder, stem)
    else:
        assert_results(list(result) if isinstance(result, tuple) else [result], folder, stem)


@of_all([*TEXTS, *SCRIPTS, "lowered.mlc", "auto.mls", "tune.db", "tune-1.db"])
def test_files_are_upgraded(folder: Path, name: str, tmp_path: Path) -> None:
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    assert run(["upgrade", str(tmp_path / name)]) == 0
    assert run(["upgrade", "--check", str(tmp_path / name)]) == 0
    if name.endswith(".mlc"):
        assert mlcc.structural_equal(mlcc.parse(tmp_path / name), mlcc.parse(folder / name))
        new, old = ((base / name).read_text().splitlines() for base in (tmp_path, folder))
        comments = [line for line in old if line.lstrip().startswith("#") and "import" not in line]
        assert [line for line in comments if line not in new and "sblock" not in line] == []


@of_all([*SCRIPTS, "auto.mls"])
def test_scripts_do_what_they_did(folder: Path, name: str) -> None:
    module = mlcc.parse(folder / "kernel.mlc")
    scheduled = mlcc.apply_schedule(module, (folder / name).read_text())
    assert not mlcc.structural_equal(scheduled, module)
    assert_results(interpreted(scheduled, arrays(folder / "kernel.inputs.npz")), folder, "kernel")


@of_all(["tune.db", "tune-1.db"])
def test_records_are_read(folder: Path, name: str, tmp_path: Path) -> None:
    with Database(str(folder / name), reads_only=True) as database:
        records = database.records()
        (key,) = {record.workload for record in records}
    assert len(records) > 1
    assert run(["tune", "--db", str(folder / name), "--list"]) == 0
    shutil.copy(folder / name, tmp_path / name)
    assert run(["tune", "--db", str(tmp_path / name), "--export", key, str(tmp_path / "best.mls")]) == 0
    module = mlcc.parse(folder / "kernel.mlc")
    best = mlcc.apply_schedule(module, (tmp_path / "best.mls").read_text())
    assert_results(interpreted(best, arrays(folder / "kernel.inputs.npz")), folder, "kernel")


@of_all([*NATIVE, *EMULATED])
def test_manifests_are_read(folder: Path, name: str) -> None:
    raw = read_manifest(str(folder / name))
    assert {"main", "scale"} == set(raw["functions"]) and raw["mlcc"]["abi"] >= 1
    assert run(["inspect", str(folder / name)]) == 0


@of_all([*NATIVE])
def test_objects_run(folder: Path, name: str) -> None:
    try:
        main = mlcc.load(folder / name)["main"]
    except MachineError:
        assert (name == "arm.o") == (platform.machine() == "x86_64")
        return
    assert_results([main(*arrays(folder / "today.inputs.npz"))], folder, "today")


@of_all(EMULATED)
def test_kernels_of_gpus_are_emulated(folder: Path, name: str, tmp_path: Path) -> None:
    given = dict(zip(("x", "y"), arrays(folder / "today.inputs.npz"), strict=True))
    np.savez(tmp_path / "x.npz", **given)
    words = ["run", str(folder / name), "--emulate", "--in", str(tmp_path / "x.npz"), "--out", str(tmp_path / "y.npz")]
    assert run(words) == 0
    assert_results(arrays(tmp_path / "y.npz"), folder, "today")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@of_all(["today.c"])
def test_c_source_compiles_and_runs(folder: Path, name: str, tmp_path: Path) -> None:
    library = tmp_path / "today.so"
    command = ["cc", "-std=c99", "-O1", "-shared", "-fPIC", str(folder / name), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    code = ctypes.CDLL(str(library))

    def find(symbol: str) -> int:
        return ctypes.cast(getattr(code, symbol), ctypes.c_void_p).value or 0

    exe = NativeExecutable(read(json.loads((folder / "today.c.json").read_text())), find, (0, 0))
    assert_results([exe["main"](*arrays(folder / "today.inputs.npz"))], folder, "today")


@pytest.mark.skipif(shutil.which("cc") is None or platform.machine() != "x86_64", reason="no C compiler for x86-64")
@of_all(["app.c"])
def test_c_programs_link_and_run(folder: Path, name: str, tmp_path: Path) -> None:
    for library in ("today.o", "libtoday.a"):
        files = [str(folder / name), str(folder / library)]
        subprocess.run(["cc", *files, f"-I{folder}", "-o", str(tmp_path / "app"), "-lm"], check=True)
        given = b"".join(array.tobytes() for array in arrays(folder / "today.inputs.npz"))
        done = subprocess.run([str(tmp_path / "app")], input=given, capture_output=True, check=True)
        have = np.array([float(line) for line in done.stdout.split()], "float32").reshape(3, 6)
        assert_results([have], folder, "today")


def test_a_version_is_added_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add() == 1 and "stays as it is" in capsys.readouterr().err


def test_what_this_version_writes_is_like_the_archive(tmp_path: Path) -> None:
    """The script that adds a version still makes every file."""
    make(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} >= {p.name for p in VERSIONS[-1].iterdir()}
    about = index(tmp_path)["written by"]
    assert about == index(VERSIONS[-1])["written by"], "a version has grown: run python -m tests.archive.add"
