"""Equal inputs give equal bytes, whatever the folder, the hash seed, the locale, the time, the threads, the cache and
the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlcc
from mlcc.machine import host
from tests.driver.build_everything import COMMANDS

SCRIPT = Path(__file__).with_name("build_everything.py")
PLAIN = {
    "MLCC_CACHE": "0",
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C",
    "TZ": "UTC",
    "MLCC_JOBS": "1",
    "MLCC_NUM_THREADS": "1",
}
MANY = {"MLCC_JOBS": "4", "MLCC_NUM_THREADS": "7", "PYTHONHASHSEED": "31"}
ELSEWHERE = {
    "PYTHONHASHSEED": "12345", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu", "COLUMNS": "40",
    "HOME": "/nonexistent", "USER": "somebody", "PYTHONDONTWRITEBYTECODE": "1", "SOURCE_DATE_EPOCH": "1",
}  # fmt: skip
VARIANTS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {  # the folder, the environment, the arguments
    "elsewhere": ("a folder/böse 漢/x.y", ELSEWHERE, ("this", "123456789")),
    "threads": ("t", MANY, ()),
    "hash seed": ("h", {"PYTHONHASHSEED": "random"}, ()),
    "one core": ("c", {"PYTHONHASHSEED": "2"}, ("one",)),
    "another machine": ("m", {"PYTHONHASHSEED": "3"}, ("other", "5000")),
}


def build(folder: Path, variables: dict[str, str], *arguments: str) -> dict[str, bytes]:
    """What the script writes there, by name."""
    folder.mkdir(parents=True, exist_ok=True)

    def on_one_core() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    alone = arguments[:1] == ("one",)
    command = [sys.executable, str(SCRIPT), *(() if alone else arguments)]
    environment = {**os.environ, **PLAIN, **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True,
        preexec_fn=on_one_core if alone else None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, bytes]]:
    made = build(tmp_path_factory.mktemp("first"), {})
    outputs = {words[words.index("-o") + 1] for words in COMMANDS}
    assert made.keys() == outputs | {"m.mlc", "w.npz", "m.h", "m.npz", "fused.npz"}
    yield made


def differing(have: dict[str, bytes], want: dict[str, bytes]) -> list[str]:
    return sorted(name for name in have.keys() | want.keys() if have.get(name) != want.get(name))


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_are_equal(variant: str, expected: dict[str, bytes], tmp_path: Path) -> None:
    folder, variables, arguments = VARIANTS[variant]
    assert differing(build(tmp_path / folder, variables, *arguments), expected) == []


def test_bytes_are_equal_with_the_cache(expected: dict[str, bytes], tmp_path: Path) -> None:
    cache = {"MLCC_CACHE": "1", "MLCC_CACHE_DIR": str(tmp_path / "cache")}
    assert differing(build(tmp_path / "cold", cache), expected) == []
    assert list((tmp_path / "cache" / "compiled").glob("*.kept"))
    assert differing(build(tmp_path / "warm", {**cache, **MANY}), expected) == []


TEXT = """@R.function
def main(x: R.Tensor((64, 96), "float32"), w: R.Tensor((96, 80), "float32")):
    return R.matmul(x, w)
"""


def test_a_native_object_names_what_it_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = mlcc.parse(TEXT)
    here = mlcc.build(module, target="llvm{cpu=native}").manifest["target"]
    known = host.caches()
    wanted = {"l1": known.l1, "l2": known.l2, "l3": known.l3, "line": known.line, "cores": host.num_cores()}
    assert here["native"] == wanted and here["cpu"] == host.cpu_name() != "native"
    other = host.Caches(48 << 10, 2 << 20, 96 << 20)
    monkeypatch.setattr(host, "caches", lambda: other)
    monkeypatch.setattr(host, "num_cores", lambda: 48)
    there = mlcc.build(module, target="llvm{cpu=native}").manifest["target"]
    assert there["native"] == {"l1": 48 << 10, "l2": 2 << 20, "l3": 96 << 20, "line": 64, "cores": 48}
    assert {**there, "native": 0} == {**here, "native": 0}
    assert "native" not in mlcc.build(module, target="llvm").manifest["target"]
