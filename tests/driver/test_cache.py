"""What is kept between processes: found again only as long as nothing that it follows from has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.cache import folder as cache
from mlcc.cache import object_cache as kept
from mlcc.cache.folder import FileCache, default_cache, private_folder
from mlcc.errors import CompileError, error
from mlcc.files import read_bytes

ROOT = Path(__file__).resolve().parents[2]
KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    monkeypatch.delenv("MLCC_CACHE")
    monkeypatch.setenv("MLCC_CACHE_DIR", str(tmp_path / "cache"))
    found = default_cache()
    assert found is not None and found.folder == str(tmp_path / "cache" / "compiled")
    return found


# ---------------------------------------------------------------- the store


def test_what_was_put_is_found(place: FileCache) -> None:
    assert place.get(KEY) is None
    place.put(KEY, b"one")
    place.put(OTHER, b"")
    assert place.get(KEY) == b"one" and place.get(OTHER) == b""
    place.put(KEY, b"two")
    assert place.get(KEY) == b"two"
    assert place.stat().entries == 2
    assert place.clear() == 2 and place.get(KEY) is None and place.stat().bytes == 0


def test_a_damaged_entry_is_a_miss(place: FileCache) -> None:
    place.put(KEY, b"0123456789")
    (path,) = Path(place.folder).iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", whole[:40], b"", whole.replace(b"5", b"6"), b"\0" * len(whole)):
        path.write_bytes(damaged)
        assert place.get(KEY) is None
    place.put(KEY, b"0123456789")
    assert place.get(KEY) == b"0123456789"


def test_what_others_can_write_is_not_believed(place: FileCache, tmp_path: Path) -> None:
    place.put(KEY, b"one")
    (path,) = Path(place.folder).iterdir()
    path.chmod(0o666)
    assert place.get(KEY) is None
    moved = tmp_path / "elsewhere"
    path.chmod(0o600)
    path.rename(moved)
    path.symlink_to(moved)
    assert place.get(KEY) is None
    Path(place.folder).chmod(0o777)
    assert default_cache() is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert private_folder(str(tmp_path / "link")) is None
    (tmp_path / "file").write_text("")
    assert private_folder(str(tmp_path / "file")) is None


def test_switched_off_caches_are_not_used(place: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("0", "off", "OFF", "no"):
        monkeypatch.setenv("MLCC_CACHE", word)
        assert default_cache() is None
    monkeypatch.setenv("MLCC_CACHE", "1")
    assert default_cache() is not None
    for size, limit in (("3", 3 << 20), ("many", 1 << 30), ("-1", 1 << 30)):
        monkeypatch.setenv("MLCC_CACHE_SIZE", size)
        found = default_cache()
        assert found is not None and found.limit == limit
    monkeypatch.setenv("MLCC_CACHE_SIZE", "0")
    assert default_cache() is None
    monkeypatch.setenv("MLCC_CACHE_DIR", "/proc/no/such")
    assert default_cache() is None


def test_what_was_not_used_for_longest_goes_first(place: FileCache) -> None:
    small = FileCache(place.folder, 10_000)
    now = time.time()
    for index in range(9):
        small.put(f"{index:064x}", bytes(1000))
        os.utime(small._path(f"{index:064x}"), (now - 1000 + index, now - 1000 + index))
    assert small.get(f"{0:064x}") is not None  # used again
    (Path(place.folder) / ".half").write_text("written by somebody who died")
    os.utime(Path(place.folder) / ".half", (now - 9999, now - 9999))
    small.put(KEY, bytes(2000))
    left = small.stat()
    assert left.bytes <= 7500 and not (Path(place.folder) / ".half").exists()
    assert small.get(KEY) is not None and small.get(f"{0:064x}") is not None and small.get(f"{1:064x}") is None
    small.put(OTHER, bytes(2501))
    assert small.get(OTHER) is None, "a quarter of all is too much for one"


def test_many_writers(place: FileCache) -> None:
    contents = [bytes([i]) * (1000 + i) for i in range(8)]
    seen: list[bytes | None] = []

    def work(content: bytes) -> None:
        for _ in range(40):
            place.put(KEY, content)
            seen.append(place.get(KEY))

    threads = [threading.Thread(target=work, args=(c,)) for c in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= set(contents) and place.stat().entries == 1
    assert [p.name for p in Path(place.folder).iterdir()] == [KEY + cache.SUFFIX]


# ---------------------------------------------------------------- compiled texts


class Maker:
    """Counts how often something is compiled; it reads what a compilation would."""

    def __init__(self, *paths: Path) -> None:
        self.paths, self.count = paths, 0

    def __call__(self) -> list[bytes]:
        self.count += 1
        return [*(read_bytes(str(p)) for p in self.paths), str(self.count).encode()]


def test_the_same_is_made_once(place: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, weights = tmp_path / "m.mlc", tmp_path / "m.npz"
    text.write_text("text")
    weights.write_text("weights")
    make = Maker(text, weights)
    options: dict[str, Any] = {"target": "llvm", "level": 2}

    def get(**more: Any) -> bytes:
        return b"".join(kept.cached_object(str(text), {**options, **more}, make))

    assert get() == get() == b"textweights1" and make.count == 1
    assert get(level=3) == b"textweights2" and get() == b"textweights1"
    assert get(target="llvm{cpu=native}") == get(target="llvm{cpu=native}") == b"textweights3"
    weights.write_text("other")
    assert get() == get() == b"textother4"
    weights.unlink()
    with pytest.raises(CompileError):
        get()
    weights.write_text("other")
    assert get() == b"textother4"
    text.write_text("text two")
    assert get() == b"text twoother6"
    monkeypatch.setenv("MLCC_NUM_THREADS", "1")
    assert get() == b"text twoother7"
    monkeypatch.setattr(kept, "compiler", lambda: ["another version"])
    assert get() == b"text twoother8"


def test_failures_are_not_kept(place: FileCache, tmp_path: Path) -> None:
    text = tmp_path / "m.mlc"
    text.write_text("")

    def fail() -> list[bytes]:
        raise CompileError(error("E0001", "no"))

    for _ in range(2):
        with pytest.raises(CompileError):
            kept.cached_object(str(text), {}, fail)
    assert place.stat().entries == 0


def test_machine_code_is_made_once(place: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlcc.targets.llvm.object.units as units

    mod = mlcc.parse("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.negative(x)\n")
    compiled = []

    def count(*args: Any) -> Any:
        compiled.append(args)
        return compile_unit(*args)

    compile_unit = units.compile_unit
    monkeypatch.setattr(units, "compile_unit", count)
    first = mlcc.build(mod).emit("obj")
    assert mlcc.build(mod).emit("obj") == first
    assert len(compiled) == place.stat().entries == 3, "the kernel, helpers, and the host code"
    mlcc.build(mod, opt_level=1).emit("obj")
    assert len(compiled) == place.stat().entries == 6


# ---------------------------------------------------------------- the command line


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MLCC_CACHE"}
    environment |= {"MLCC_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    code = "import sys; from mlcc.cli.main import run; code = run(sys.argv[1:]); "
    code += "print('compiled' if 'llvmlite' in sys.modules else 'found', file=sys.stderr); sys.exit(code)"
    return subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_all_sources_of_the_compiler_count() -> None:
    known = {entry[0] for entry in kept.compiler() if isinstance(entry, tuple)}
    parts = [ROOT / part for part in kept._FOLDERS]
    sources = {str(path) for part in parts for end in ("py", "lark", "ll", "mlc") for path in part.rglob(f"*.{end}")}
    assert any(path.endswith(".mlc") for path in sources) and not sources - known


def test_a_package_in_an_archive_compiles(tmp_path: Path) -> None:
    """Its sources are those of the archive."""
    with zipfile.ZipFile(tmp_path / "mlcc.zip", "w") as archive:
        for part in kept._FOLDERS:
            for path in (ROOT / part).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, Path("mlcc", *path.relative_to(ROOT).parts[part == "mlcc" :]))
    program = f"""
import sys
sys.path[:0] = [{str(tmp_path / "mlcc.zip")!r}]
import mlcc, numpy
assert "mlcc.zip" in mlcc.__file__
text = "@R.function\\ndef main(x: R.Tensor((2,), 'float32')): return R.add(x, x)"
artifacts = [mlcc.build(mlcc.parse(text), target) for target in ("llvm", "cuda")]
assert mlcc.load(artifacts[0])["main"](numpy.ones(2, "float32"))[0] == 2
"""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"MLCC_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("MLCC_CACHE", None)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commands_find_what_was_compiled(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.array([1, 2, 3], np.float32))
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 3), np.float32))
    (tmp_path / "m.mlc").write_text(
        "@R.function\ndef main(x: R.Tensor((2, 3), 'float32'), w: R.Tensor((3,), 'float32')):\n    return R.add(x, w)\n"
    )
    command = ("run", "m.mlc", "--in", "in.npz", "--out", "out.npz", "-p", "bind-params{params=w.npz},lower-to-tir")
    for expected in ("compiled", "found"):
        done = run(tmp_path, *command)
        assert done.returncode == 0 and done.stderr == f"{expected}\n"
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["out"], [[1, 2, 3]] * 2)
    np.savez(tmp_path / "w.npz", w=np.array([4, 5, 6], np.float32))
    assert run(tmp_path, *command).stderr == "compiled\n"
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["out"], [[4, 5, 6]] * 2)
    assert run(tmp_path, "compile", "m.mlc", "-o", "a.o", "--header", "a.h").stderr == "compiled\n"
    first = (tmp_path / "a.o").read_bytes(), (tmp_path / "a.h").read_text()
    (tmp_path / "a.o").unlink()
    again = run(tmp_path, "compile", "m.mlc", "-o", "a.o", "--header", "a.h")
    assert again.returncode == 0 and ((tmp_path / "a.o").read_bytes(), (tmp_path / "a.h").read_text()) == first
    shown = run(tmp_path, "cache", "stat").stdout
    assert f"folder   {tmp_path}/cache/compiled" in shown and "entries  0" not in shown
    assert "removed" in run(tmp_path, "cache", "clear").stdout
    assert "entries  0" in run(tmp_path, "cache", "stat").stdout


def test_an_environment_is_not_part_of_the_key_so_nothing_is_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32))
    (tmp_path / "env.py").write_text("")
    (tmp_path / "m.mlc").write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.negative(x)\n")
    for _ in range(2):
        done = run(tmp_path, "run", "m.mlc", "--in", "in.npz", "--env", "env.py")
        assert done.returncode == 0 and done.stderr == "compiled\n"
