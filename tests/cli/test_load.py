"""`--load FILE`: passes, operators and schedule rules of a Python file."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc import ops, plugins
from mlcc.ops.registry import Impl
from mlcc.passes import PASSES, Pass, register, unregister
from mlcc.passes.auto_schedule import rules
from mlcc.passes.auto_schedule.rule import Rule
from tests.cli.test_cli import Tool

ROOT = Path(__file__).resolve().parents[2]
ONE_FILE = (ROOT / "samples" / "plugin" / "one_file.py").read_text()
RULE = ONE_FILE[: ONE_FILE.index("rules.register(")].count("\n") + 1
GRAPH = """
@R.function
def main(x: R.Tensor((4, 16), "float32")):
    y = R.exp(x)
    return R.add(y, y)
"""
SOFTSIGN = """
@R.function
def main(x: R.Tensor((4, 16), "float32")):
    return R.nn.softsign(x)
"""
PASS = """from dataclasses import dataclass
from typing import ClassVar

from mlcc.passes import Pass


@dataclass(frozen=True)
class DoIt(Pass):
    \"\"\"Do it.\"\"\"

    name: ClassVar[str] = "do-it"

    def run(self, module, ctx):
        BODY
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("one_file.py", ONE_FILE)
    tool.file("m.mlc", GRAPH)
    tool.file("s.mlc", SOFTSIGN)
    return tool


LOAD = ("--load", "one_file.py")


def test_a_loaded_pass_is_one_like_the_others(mlcc: Tool) -> None:
    text = mlcc("passes", "m.mlc", *LOAD, "-p", "count-calls{attribute=n},O1", "--dump-after=count-calls")
    assert '"n": 2' in text and '"n": 2' in mlcc.err.partition("# --- after count-calls")[2]
    listed = re.findall(r"^count-calls +(.*)$", mlcc("passes", "--list", *LOAD), re.M)
    assert listed == ["Write the number of calls in each function into its attribute `calls`."]
    help = mlcc("passes", *LOAD, "--help-pass", "count_calls")
    assert "attribute: a word or string (default calls)" in help and "Before:" in help
    assert mlcc("explain", *LOAD, "count-calls") == help
    assert "count-calls" in mlcc("explain", *LOAD, "--list").splitlines()
    assert mlcc("passes", "m.mlc", *LOAD, "-p", "count-calls", "--print-pipeline") == "count-calls\n"


def test_nothing_is_left_after_the_command(mlcc: Tool) -> None:
    before = dict(PASSES), {*ops.names()}
    mlcc("passes", "m.mlc", *LOAD, "-p", "count-calls")
    mlcc("passes", "m.mlc", "-p", "count-calls", code=1)
    assert "no pass `count-calls`" in mlcc.err
    assert (dict(PASSES), {*ops.names()}) == before
    assert not plugins.loaded_paths() and not any(name.startswith("mlcc_loaded") for name in sys.modules)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count-calls{atribute=n}", "did you mean `attribute`?"),
        ("count-call", "did you mean `count-calls`?"),
        ("count-calls,nothing", "no pass `nothing`"),
    ],
)
def test_mistakes_in_its_use_are_those_of_any_pass(mlcc: Tool, text: str, said: str) -> None:
    mlcc("passes", "m.mlc", *LOAD, "-p", text, code=1)
    assert said in mlcc.err


def test_commands_that_take_pipelines_or_texts_load(mlcc: Tool) -> None:
    x = np.linspace(-3, 3, 64, dtype="float32").reshape(4, 16)
    mlcc.npz("x.npz", x=x)
    mlcc("check", "s.mlc", code=1)
    mlcc("check", "s.mlc", *LOAD)
    mlcc("run", "s.mlc", *LOAD, "-p", "count-calls,O2,lower", "--in", "x.npz", "--out", "y.npz")
    np.testing.assert_allclose(np.load("y.npz")["out"], x / (1 + np.abs(x)), rtol=1e-6)
    mlcc("compile", "s.mlc", *LOAD, "-o", "s.o")
    mlcc("run", "s.o", "--in", "x.npz", "--expect", "y.npz")  # what is compiled needs the file no more
    assert "median" in mlcc("bench", "s.mlc", *LOAD, "--in", "x.npz", "--repeat", "2")
    assert "R.nn.softsign(data)" in mlcc("ops", "softsign", *LOAD)
    assert "R.nn.softsign(data)" in mlcc("explain", "R.nn.softsign", *LOAD)
    mlcc("passes", "s.mlc", *LOAD, "-p", "O1", "-o", "low.mlc", "--why-schedule")
    mlcc("passes", "s.mlc", *LOAD, "-p", "lower-to-tir", "-o", "tir.mlc")
    assert "sch.parallel" in mlcc("schedule", "tir.mlc", *LOAD, "--auto", "--why")
    assert "rule rows-in-parallel: rows in parallel" in mlcc.err
    mlcc.file("rule.mls", 'sch.schedule_by_rule("rows-in-parallel", {}, func_name="softsign", target="llvm")\n')
    assert "T.parallel(" in mlcc("schedule", "tir.mlc", "--script", "rule.mls", *LOAD)
    mlcc("schedule", "tir.mlc", "--script", "rule.mls", code=1)
    assert "there is no rule `rows-in-parallel`" in mlcc.err
    mlcc("schedule", "tir.mlc", "--auto", "--why")
    assert "rows-in-parallel" not in mlcc.err


def test_every_such_command_says_whose_rights_it_has(mlcc: Tool) -> None:
    for name in ("passes", "compile", "run", "bench", "schedule", "check", "analyze", "explain", "ops"):
        words = " ".join(mlcc(name, "--help").split())
        assert "--load FILE" in words and "runs with your rights" in words, name


def place(found: str) -> tuple[str, int, int, str]:
    match = re.search(r"^(\S+):(\d+):(\d+): error\[(E\d+)\]", found, re.M)
    assert match is not None, found
    return match[1], int(match[2]), int(match[3]), match[4]


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("x = (1,\n", (1, 5, "E0550"), "never closed"),
        ("import nothing_of_that_name\n", (1, 1, "E0550"), "No module named"),
        ("def f():\n    'é'; raise KeyError('a')\nf()\n", (2, 10, "E0550"), "KeyError: 'a'"),
        ("raise SystemExit(3)\n", (1, 1, "E0550"), "SystemExit: 3"),
        ("import re\nre.compile('(')\n", (2, 1, "E0550"), "unterminated subpattern"),
        (PASS.replace('"do-it"', '"fuse"'), (8, 1, "E0551"), "there is a pass `fuse` already"),
        (PASS.replace('"do-it"', '"remove-unused"'), (8, 1, "E0551"), "`remove-unused` already"),
        (PASS.replace('"do-it"', '"lower"'), (8, 1, "E0551"), "there is a group of passes `lower` already"),
        (PASS.replace('"do-it"', '"Do_It"'), (8, 1, "E0550"), "lower-case words with dashes"),
        (PASS.replace("@dataclass(frozen=True)", ""), (8, 1, "E0550"), "no frozen dataclass"),
        (PASS.replace("ClassVar[str] =", "str ="), (8, 1, "E0550"), "annotate it as ClassVar"),
        (PASS.replace("def run", "def ran"), (8, 1, "E0550"), "no method `run`"),
        (PASS.replace("    def run", "    it: object = None\n    def run"), (8, 1, "E0550"), "an option `it`"),
        ("from mlcc import ops\nops.register('nn.relu', ops.Impl('x'))\n", (2, 1, "E0551"), "operator `nn.relu`"),
        ("from mlcc import ops\nops.register('a', ops.Impl('x: what'))\n", (2, 1, "E0550"), "not a parameter"),
        (ONE_FILE.replace('"rows-in-parallel"', '"matmul"'), (RULE, 1, "E0551"), "there is a rule `matmul` already"),
        (
            ONE_FILE.replace("_parallel))", "_parallel, before='x'))"),
            (RULE, 1, "E0550"),
            "none of winograd, fixed",
        ),
    ],
)
def test_what_cannot_be_loaded_is_shown_at_its_place(
    mlcc: Tool, text: str, where: tuple[int, int, str], said: str
) -> None:
    mlcc.file("wrong.py", text.replace("BODY", "return module"))
    before = dict(PASSES), {*ops.names()}
    mlcc("passes", "--load", "wrong.py", "m.mlc", "-p", "O0", code=1)
    assert place(mlcc.err) == ("wrong.py", *where) and said in mlcc.err
    assert (dict(PASSES), {*ops.names()}) == before  # nor is anything before the mistake registered


@pytest.mark.parametrize(
    ("body", "where", "said"),
    [
        ("return 1 / 0", (14, 16), "ZeroDivisionError: division by zero"),
        ("return module.nothing", (14, 16), "has no attribute 'nothing'"),
        ("return max(module.functions.values(), 1)", (14, 16), "TypeError"),  # raised in what it calls
        ("raise SystemExit(0)", (14, 9), "SystemExit: 0"),
        ("return None", (8, 1), "`run` returned NoneType, not a module"),
        ("module.functions.clear(); return module", (8, 1), "changed the module that it was given"),
    ],
)
def test_a_pass_that_fails_is_shown_at_its_place(mlcc: Tool, body: str, where: tuple[int, int], said: str) -> None:
    mlcc.file("wrong.py", PASS.replace("BODY", body))
    for command in (("passes",), ("compile", "-o", "m.o")):
        mlcc(*command, "--load", "wrong.py", "m.mlc", "-p", "do-it", code=1)
        assert place(mlcc.err) == ("wrong.py", *where, "E0553")
        assert said in mlcc.err and "pass `do-it` failed" in mlcc.err and "bug in mlcc" not in mlcc.err
    mlcc("--diagnostics", "json", "passes", "--load", "wrong.py", "m.mlc", "-p", "do-it", code=1)
    assert json.loads(mlcc.err)["code"] == "E0553"


def test_operators_and_rules_that_fail_are_shown_at_their_places(mlcc: Tool) -> None:
    mlcc.file("wrong.py", ONE_FILE.replace("te.abs(v)", "te.absolute(v)"))
    mlcc("run", "s.mlc", "--load", "wrong.py", "--random", code=1)
    assert place(mlcc.err)[::3] == ("wrong.py", "E0553") and "pass `lower-to-tir" in mlcc.err
    mlcc.file("wrong.py", ONE_FILE.replace("infer_float,", "lambda call: call.shape,"))
    mlcc("check", "s.mlc", "--load", "wrong.py", code=1)
    assert place(mlcc.err)[::3] == ("wrong.py", "E0553") and "no attribute 'shape'" in mlcc.err
    mlcc.file("wrong.py", ONE_FILE.replace("sch.vectorize(columns)", "sch.vectorise(columns)"))
    mlcc("passes", "s.mlc", "--load", "wrong.py", "-o", "out.mlc")
    assert re.search(r"^wrong.py:\d+:\d+: warning\[W0503\]: a rule failed on `softsign`.*vectorise", mlcc.err, re.M)


def test_the_traceback_is_there_on_request(mlcc: Tool) -> None:
    mlcc.file("wrong.py", PASS.replace("BODY", "return 1 / 0"))
    command = [sys.executable, "-m", "mlcc", "passes", "--load", "wrong.py", "m.mlc", "-p", "do-it"]
    environment = {"PYTHONPATH": str(ROOT), "MLCC_TRACEBACK": "1", "PATH": ""}
    done = subprocess.run(command, cwd=mlcc.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" in done.stderr and "ZeroDivisionError" in done.stderr


def test_files_that_are_none(mlcc: Tool) -> None:
    mlcc("passes", "--load", "one_fil.py", "m.mlc", code=1)
    assert "E0001" in mlcc.err and "did you mean `one_file.py`" in mlcc.err
    mlcc("passes", "--load", "m.mlc", "m.mlc", code=1)
    assert "m.mlc is not a Python file" in mlcc.err
    mlcc("passes", "--load", "-", "m.mlc", code=2)
    mlcc("passes", *LOAD, "m.mlc", "-p", "count-calls", "-o", "one_file.py", code=1)
    assert Path("one_file.py").read_text() == ONE_FILE


def test_several_files(mlcc: Tool) -> None:
    mlcc.file("other.py", PASS.replace("BODY", "return module"))
    mlcc("passes", "m.mlc", *LOAD, *LOAD, "--load", "other.py", "-p", "count-calls,do-it")
    mlcc.file("third.py", PASS.replace("BODY", "return module"))
    mlcc("passes", "m.mlc", "--load", "other.py", "--load", "third.py", code=1)
    assert place(mlcc.err) == ("third.py", 8, 1, "E0551")


def test_the_cache_knows_the_files(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLCC_CACHE")
    monkeypatch.setenv("MLCC_CACHE_DIR", str(mlcc.folder / "cache"))
    monkeypatch.syspath_prepend(str(mlcc.folder))
    x = np.linspace(-3, 3, 64, dtype="float32").reshape(4, 16)
    mlcc.npz("x.npz", x=x)
    run = ("-v", "run", "s.mlc", *LOAD, "--in", "x.npz", "--out", "y.npz")

    def result(cached: bool) -> np.ndarray:
        mlcc(*run)
        assert ("from the cache" in mlcc.err) == cached, mlcc.err
        return np.load("y.npz")["out"]

    mlcc.file("softsign_bias.py", "BIAS = 1.0\n")
    text = ONE_FILE.replace("import numpy", "import softsign_bias\nimport numpy").replace(
        "1.0, v", "softsign_bias.BIAS, v"
    )
    mlcc.file("one_file.py", text)
    np.testing.assert_allclose(result(False), x / (1 + np.abs(x)), rtol=1e-6)
    result(True)
    mlcc.file("one_file.py", text.replace("softsign_bias.BIAS, v", "softsign_bias.BIAS + 1, v"))
    np.testing.assert_allclose(result(False), x / (2 + np.abs(x)), rtol=1e-6)
    mlcc.file("softsign_bias.py", "BIAS = 3.00\n")  # what the file imports
    del sys.modules["softsign_bias"]
    np.testing.assert_allclose(result(False), x / (4 + np.abs(x)), rtol=1e-6)
    mlcc("run", "s.mlc", "--in", "x.npz", code=1)  # without the file there is no such operator
    assert "E0440" in mlcc.err
    sys.modules.pop("softsign_bias")


def test_a_reproducer_of_a_bug_names_the_files(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.dead_code import DeadCode

    def fail(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(DeadCode, "run", fail)
    mlcc("passes", "m.mlc", *LOAD, "-p", "count-calls,dead-code,count-calls", code=70)
    (path,) = re.findall(r"bug in mlcc; (\S+) shows it", mlcc.err)
    first, second = Path(path).read_text().splitlines()[:2]
    assert first == "# PASSES: dead-code,count-calls"
    mlcc(*shlex.split(second.removeprefix("# mlcc ")), code=70)
    for made in set(re.findall(r"\S+mlcc-bug-\S+\.mlc", mlcc.err)):
        Path(made).unlink()
    Path(path).unlink(missing_ok=True)


def test_completion_runs_nothing(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    mlcc.file("mark.py", "open('mark', 'w').close()\n")
    monkeypatch.setenv("_MLCC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "mlcc passes --load mark.py -p fus")
    monkeypatch.setenv("COMP_CWORD", "5")
    with pytest.raises(SystemExit):
        mlcc()
    assert "fuse" in mlcc.capfd.readouterr().out
    assert not Path("mark").exists()


def test_registries_refuse_names_that_are_taken() -> None:
    scope: dict[str, type[Pass]] = {"__name__": __name__}  # type: ignore[dict-item]
    exec(compile(PASS.replace("BODY", "return module"), "pass", "exec", dont_inherit=True), scope)
    made = scope["DoIt"]
    try:
        assert register(made) is made
        with pytest.raises(ValueError, match="there is a pass `do-it` already"):
            register(made)
    finally:
        unregister("do-it")
    with pytest.raises(ValueError, match="no subclass of mlcc.passes.Pass"):
        register(int)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="`nn.relu` already"):
        ops.register("toy.relu", Impl("x", aliases=("nn.relu",)))
    with pytest.raises(ValueError, match="no mlcc.passes.auto_schedule.rule.Rule of a function"):
        rules.register(Rule("mine", "matmul:matmul"))


def test_an_archive_on_the_path_is_asked_only_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python lists an archive of its own library that is usually missing; it says nothing about packages."""
    archive = tmp_path / "python311.zip"
    monkeypatch.setattr(sys, "path", [str(archive)])
    monkeypatch.setattr(plugins, "_any_installed", functools.cache(plugins._any_installed.__wrapped__))
    assert not plugins._any_installed()
    archive.write_bytes(b"")
    plugins._any_installed.cache_clear()
    assert plugins._any_installed()


def test_a_run_does_not_read_the_metadata_of_packages(tmp_path: Path) -> None:
    (tmp_path / "m.mlc").write_text("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return R.add(x, x)\n")
    code = "import sys; from mlcc.cli.main import run; assert run(sys.argv[1:]) == 0; "
    code += "print('importlib.metadata' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(tmp_path / "m.mlc"), "--random", "--out", str(tmp_path / "y.npz")],
        capture_output=True, text=True, check=True, env={**os.environ, "MLCC_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stdout.split()[-1] == "False"
