"""The target of docs/adding-a-target.md works as the page says: its files are written to a folder and used."""

from __future__ import annotations

import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import backends, outputs, passes
from mlcc.cache.object_cache import covers_target
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.machine import target
from mlcc.machine.target import Target

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-target.md").read_text()
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
NETWORK = """
@R.function
def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 4), "float32")):
    y = R.nn.relu(R.matmul(x, w))
    a = R.add(y, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
    b = R.permute_dims(R.concat((a, y), axis=1))
    return (R.nn.softmax(b), R.mean(b, axis=[0]))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `toy`, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    files = {name: text for text in CODE for name in re.findall(r"^# (toy/\w+\.py)$", text, re.M)}
    assert {"toy/backend.py"} < {*files}
    files["toy/__init__.py"] = ""
    (entry,) = re.findall(r"^toy = \"(.*)\"$", PAGE, re.M)
    files["toy-1.0.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"
    files["toy-1.0.dist-info/entry_points.txt"] = f"[mlcc.targets]\ntoy = {entry}\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def toy(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[backends.Backend[Any]]:
    """The target in this process; it is forgotten again."""
    monkeypatch.syspath_prepend(str(package))
    tables: list[dict[str, Any]] = [target.KINDS, outputs.KINDS, passes.PASSES, backends._KNOWN]
    before = [dict(table) for table in tables]
    yield backends.of("toy")
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)
    target._parse.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


@pytest.fixture
def command(package: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`mlcc` in a process of its own, where the package is installed and `m.mlc` is the network."""
    (tmp_path / "m.mlc").write_text(NETWORK)
    start = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(package)!r}]; "

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-c", f"{start}from mlcc.cli.main import main; main()", *words]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_the_example_of_the_page_runs(toy: backends.Backend[Any]) -> None:
    (example,) = [text for text in CODE if "mlcc.build" in text]
    scope: dict[str, Any] = {}
    exec(example, scope)
    np.testing.assert_array_equal(scope["y"], np.tile([9.0, 10.0, 11.0, 12.0], (4, 1)))


@pytest.mark.parametrize("level", range(4))
def test_it_computes_what_the_interpreter_does(toy: backends.Backend[Any], level: int) -> None:
    module = mlcc.parse(NETWORK)
    rng = np.random.default_rng(level)
    x, w = (rng.random(shape, np.float32) - 0.5 for shape in ((4, 8), (8, 4)))
    got = mlcc.build(module, "toy", level).function("main")(x, w)
    for have, want in zip(got, run_function(module, "main", [x, w]), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)


def test_compiling_goes_on_after_any_of_its_steps(toy: backends.Backend[Any]) -> None:
    module = mlcc.parse(NETWORK)
    whole = mlcc.build(module, "toy").text
    for n in range(len(toy.lowering)):
        part = mlcc.run_passes(module, ",".join(("O2,remove-unused-functions", *toy.lowering[: n + 1])), target="toy")
        again = mlcc.parse(mlcc.script(part))
        assert mlcc.build(again, "toy", pipeline="").text == whole, toy.lowering[n]
        with pytest.raises(CompileError, match="E0546.*for toy, not for llvm"):
            mlcc.build(again, "llvm", pipeline="")


def test_its_options_are_its_own(toy: backends.Backend[Any]) -> None:
    made = Target.parse("toy -indent=2")
    assert made == Target("toy", indent=2) == Target.parse(str(made)) == Target.parse('{"kind": "toy", "indent": 2}')
    assert mlcc.build(mlcc.parse(NETWORK), made).text.count("\n  arg_0 =") == 1
    for text, said in (
        ("toy{indnt=2}", "did you mean `indent`"), ("toy{indent=9}", "1 to 8 spaces"), ("toy{indent=x}", "an integer"),
        ("toy{cpu=native}", "no option `cpu`"), ("tov", "did you mean `toy`"), ("llvm{indent=2}", "no option `indent`"),
    ):  # fmt: skip
        with pytest.raises(CompileError, match=said):
            Target.parse(text)


def test_the_command_line_knows_it(command: Callable[..., Any], tmp_path: Path) -> None:
    listed = command("passes", "--list", "-t", "toy").stdout
    assert "drop-unit-loops" in listed.splitlines()[-2]
    assert "Put the body of a loop that runs once in its place." in listed
    assert "drop-unit-loops" in command("passes", "-t", "toy", "--print-pipeline").stdout
    dumped = command("passes", "m.mlc", "-t", "toy", "-p", "O1,lower", "--dump-after=drop-unit-loops", "-o", "low.mlc")
    assert dumped.returncode == 0
    assert "drop-unit-loops" in dumped.stderr
    assert command("compile", "m.mlc", "-t", "toy{indent=3}").returncode == 0
    assert "\n   arg_0 =" in (tmp_path / "m.py").read_text()
    assert command("compile", "m.mlc", "-t", "toy{indent=3}", "-O1", "-o", "one.py").returncode == 0
    assert command("compile", "low.mlc", "-t", "toy{indent=3}", "-o", "two.py").returncode == 0
    assert (tmp_path / "one.py").read_text() == (tmp_path / "two.py").read_text()


@pytest.mark.parametrize(
    ("words", "rc", "said"),
    [
        (["compile", "m.mlc", "--emit", "asm"], 1, "cannot write `asm` for toy"),
        (["compile", "m.mlc", "-o", "m.o"], 1, "cannot write `obj` for toy"),
        (["compile", "m.mlc", "--emit", "pyton"], 2, "did you mean `python`"),
        (["compile", "m.mlc", "--header", "m.h"], 2, "--header is for the target c or llvm"),
        (["compile", "m.mlc", "--sanitize"], 1, "cannot be sanitized"),
        (["compile", "m.mlc", "--fast-math"], 2, "not toy"),
        (["run", "m.mlc"], 1, "Python source, which mlcc does not load"),
        (["run", "m.mlc", "--emulate"], 1, "is not a GPU target"),
        (["passes", "m.mlc", "-p", "auto-schedule"], 1, "E0547"),
        (["passes", "m.mlc", "-p", "lower-loops"], 1, "the target is toy"),
        (["passes", "m.mlc", "-p", "lower,form-kernels"], 1, "a step for cuda"),
    ],
)
def test_what_it_has_not_is_refused(command: Callable[..., Any], words: list[str], rc: int, said: str) -> None:
    done = command(*words, "-t", "toy")
    assert (done.returncode, said in done.stderr) == (rc, True), done.stderr


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad-1.0.dist-info").mkdir()
    (tmp_path / "bad-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (tmp_path / "bad-1.0.dist-info" / "entry_points.txt").write_text("[mlcc.targets]\nbad = not_there_at_all:X\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CompileError, match="`not_there_at_all:X` of target `bad` cannot be loaded"):
        Target.parse("bad")


def test_nothing_is_kept_that_code_outside_of_mlcc_made() -> None:
    assert all(covers_target(text) for text in ("llvm", "llvm{cpu=native}", " llvm -mcpu=haswell", "cuda{arch=sm_80}"))
    assert not any(covers_target(text) for text in ("toy", "toy{indent=2}", ""))


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_records_name_what_there_is(kind: str) -> None:
    for function in vars(backends.get(kind)).values():
        if isinstance(function, backends.LazyFunction):
            module, _, name = function.place.partition(":")
            assert callable(attrgetter(name)(importlib.import_module(module)))


def test_levels_are_made_of_levels_of_the_same_target(toy: backends.Backend[Any]) -> None:
    dataclasses.replace(toy, levels={"O2": "dead-code", "O3": "O2,normalize"}).register()
    assert str(mlcc.Pipeline.parse("O3", target="toy")) == "dead-code,normalize"
