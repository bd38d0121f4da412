"""The package of samples/plugin, and others, as an installer leaves them: mlcc finds what they name as entry points."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "plugin"
Command = Callable[..., "subprocess.CompletedProcess[str]"]
GROUPS = ("mlcc.passes", "mlcc.operators", "mlcc.schedule_rules")


def install(site: Path, name: str, points: dict[str, dict[str, str]], files: dict[str, str]) -> None:
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for g, entries in points.items() for line in (f"[{g}]", *(f"{k} = {v}" for k, v in entries.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for path, text in files.items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with the sample in it."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text())
    (package,) = project["tool"]["setuptools"]["packages"]
    files = {f"{package}/{path.name}": path.read_text() for path in (SAMPLE / package).glob("*.py")}
    install(tmp_path / "site", project["project"]["name"], project["project"]["entry-points"], files)
    return tmp_path / "site"


@pytest.fixture
def command(site: Path, tmp_path: Path) -> Command:
    """`mlcc` in a process of its own, where the packages of `site` are installed."""
    for name in ("model.mlc", "one_file.py"):
        shutil.copy(SAMPLE / name, tmp_path)
    environment = {"PYTHONPATH": f"{ROOT}:{site}", "MLCC_CACHE_DIR": str(tmp_path / "cache"), "PATH": ""}

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "mlcc", *words]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def hardswish(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x + 3, 0, 6) / 6


def test_the_package_works_when_it_is_installed(command: Command, tmp_path: Path) -> None:
    x = np.linspace(-5, 5, 256, dtype="float32").reshape(8, 32)
    np.savez(tmp_path / "x.npz", x=x)

    def result(*words: str) -> np.ndarray:
        command("run", "model.mlc", "--in", "x.npz", "--out", "y.npz", *words)
        return np.load(tmp_path / "y.npz")["out"]

    silu = x * sigmoid(x)
    np.testing.assert_allclose(result(), (silu + x) * sigmoid(silu + x), rtol=1e-5, atol=1e-6)
    got = result("-p", "approximate-silu,O2,lower")
    np.testing.assert_allclose(got, hardswish(hardswish(x) + x), rtol=1e-5, atol=1e-6)
    got = result("-p", "approximate-silu{limit=1},O2,lower")
    half = hardswish(x) + x
    np.testing.assert_allclose(got, half * sigmoid(half), rtol=1e-5, atol=1e-6)
    torch = pytest.importorskip("torch")
    want = torch.nn.functional.hardswish(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(hardswish(x), want, rtol=1e-5, atol=1e-6)


def test_it_is_listed_explained_and_dumped(command: Command) -> None:
    summary = "Compute `nn.hardswish` in place of `nn.silu`, which takes an exponential per element."
    assert re.search(rf"^approximate-silu +{re.escape(summary)}$", command("passes", "--list").stdout, re.M)
    help = command("explain", "approximate-silu").stdout
    assert summary in help and "limit: an integer (default 0)" in help
    assert "x * clip(x + 3, 0, 6) / 6 of each element." in command("explain", "R.nn.hardswish").stdout
    assert "R.nn.hardswish(data)" in command("ops", "hardsw").stdout
    words = ("passes", "model.mlc", "-p", "approximate-silu{limit=1},O2", "--dump-after=approximate-silu")
    done = command(*words, "--why-schedule")
    assert "R.nn.hardswish" in done.stderr.partition("# --- after approximate-silu")[2]
    assert "rule small-elementwise: 256 elements in one loop, 16 at a time" in done.stderr
    assert "did you mean `approximate-silu`?" in command("passes", "model.mlc", "-p", "aproximate-silu", code=1).stderr


def test_installed_and_loaded_together(command: Command, tmp_path: Path) -> None:
    words = ("--load", "one_file.py", "-p", "approximate-silu,count-calls{attribute=n}")
    assert '"n": 3' in command("passes", "model.mlc", *words).stdout
    (tmp_path / "again.py").write_text(
        (SAMPLE / "one_file.py").read_text().replace("count-calls", "approximate-silu").replace("rows-in", "rows_in")
    )
    done = command("passes", "model.mlc", "--load", "again.py", code=1)
    assert "E0550" in done.stderr and "lower-case words" in done.stderr  # the rule; then the pass
    (tmp_path / "again.py").write_text((SAMPLE / "one_file.py").read_text().replace("count-calls", "approximate-silu"))
    assert "E0551" in command("passes", "model.mlc", "--load", "again.py", code=1).stderr


def test_the_cache_knows_the_package(command: Command, site: Path) -> None:
    words = ("-v", "run", "model.mlc", "--random", "-p", "approximate-silu,O2,lower")
    assert "from the cache" not in command(*words).stderr
    command("run", "model.mlc", "--random")
    rule = site / "hardswish" / "rule.py"
    first = command("-v", "run", "model.mlc", "--random").stderr
    rule.write_text(rule.read_text().replace("LIMIT = 4096", "LIMIT = 16"))
    second = command("-v", "run", "model.mlc", "--random").stderr
    assert "from the cache" in first and "from the cache" not in second
    shutil.rmtree(site / "mlcc_hardswish-1.0.dist-info")
    assert "from the cache" not in command("-v", "run", "model.mlc", "--random").stderr
    assert "E0501" in command(*words, code=1).stderr


PASS = """
from dataclasses import dataclass
from mlcc.passes import Pass

@dataclass(frozen=True)
class DoIt(Pass):
    \"\"\"Do it.\"\"\"
    name = "do-it"
    def run(self, module, ctx):
        return module.nothing

from mlcc.passes.auto_schedule.rule import Rule
RULE = Rule("matmul", lambda kernel: "taken")
OTHER = Rule("other", lambda kernel: kernel.nothing)
"""


@pytest.mark.parametrize(
    ("group", "entry", "said"),
    [
        ("mlcc.passes", "do-it = nothing_there:X", "E0552"),
        ("mlcc.passes", "do-it = bad:RULE", "is no subclass of mlcc.passes.Pass"),
        ("mlcc.passes", "do-so = bad:DoIt", "calls itself `do-it`"),
        ("mlcc.operators", "toy.op = bad:RULE", "is no mlcc.ops.registry.Impl"),
        ("mlcc.operators", "toy.op = nothing_there:X", "cannot be loaded: ModuleNotFoundError"),
        ("mlcc.schedule_rules", "matmul = bad:RULE", "has a rule `matmul`, and so has mlcc"),
        ("mlcc.schedule_rules", "mine = bad:RULE", "calls itself `matmul`"),
        ("mlcc.schedule_rules", "mine = bad:DoIt", "is no mlcc.passes.auto_schedule.rule.Rule"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    command: Command, site: Path, tmp_path: Path, group: str, entry: str, said: str
) -> None:
    name, _, value = entry.partition(" = ")
    install(site, "bad-one", {group: {name: value}}, {"bad.py": PASS})
    text = (tmp_path / "model.mlc").read_text()
    (tmp_path / "toy.mlc").write_text(text.replace("nn.silu(x)", "toy.op(x)") if group == GROUPS[1] else text)
    pipeline = name if group == GROUPS[0] else "O2"
    assert said in command("passes", "toy.mlc", "-p", pipeline, code=1).stderr
    command("passes", "--list")  # which goes on
    command("ops")
    command("explain", "--list")
    command("passes", "model.mlc", "-p", "approximate-silu")


def test_a_pass_of_a_package_that_fails_is_shown_at_its_place(command: Command, site: Path) -> None:
    points = {"mlcc.passes": {"do-it": "bad:DoIt"}, "mlcc.schedule_rules": {"other": "bad:OTHER"}}
    install(site, "bad-one", points, {"bad.py": PASS})
    done = command("passes", "model.mlc", "-p", "do-it", code=1)
    assert re.search(r"bad\.py:10:16: error\[E0553\]: pass `do-it` failed: AttributeError", done.stderr)
    done = command("passes", "model.mlc", "-p", "O2")
    assert re.search(r"bad\.py:14:\d+: warning\[W0503\]: a rule failed on `fused_silu", done.stderr)


def test_clashes_of_packages(command: Command, site: Path) -> None:
    install(site, "bad-one", {"mlcc.passes": {"fuse": "bad:DoIt"}}, {"bad.py": PASS})
    listed = command("passes", "--list").stdout
    assert "bad-one (bad:DoIt) is not available: mlcc has a pass of that name" in listed
    assert "Fuse" in command("explain", "fuse").stdout
    install(site, "bad-two", {"mlcc.passes": {"approximate-silu": "bad:DoIt"}}, {})
    said = command("passes", "model.mlc", "-p", "approximate-silu", code=1).stderr
    assert "E0551" in said and "bad-two" in said and "mlcc-hardswish" in said


def test_the_pages_show_the_entry_points_of_the_sample() -> None:
    project = (SAMPLE / "pyproject.toml").read_text()
    names = ("adding-a-pass", "adding-an-operator", "auto-schedule")
    pages = [(ROOT / "docs" / f"{name}.md").read_text() for name in names]
    shown = [block for page in pages for block in re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M)]
    assert len(shown) == 3 and all(block in project for block in shown)
