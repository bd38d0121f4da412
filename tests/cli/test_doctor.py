"""`mlcc doctor`: what it finds, on this machine and with faults planted."""

from __future__ import annotations

import configparser
import importlib.metadata
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc.report import doctor
from tests.cli.test_cli import Tool

ROOT = Path(__file__).resolve().parents[2]
NET = """
@R.function
def main(x: R.Tensor((8,), "float32")):
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
    return y
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLCC_CACHE", raising=False)
    monkeypatch.setenv("MLCC_CACHE_DIR", str(tmp_path / "cache"))
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", NET)
    return tool


def checks(mlcc: Tool, *files: str, code: int = 0) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(mlcc("doctor", "--json", *files, code=code))}


def test_a_sound_installation_has_no_faults(mlcc: Tool) -> None:
    shown = mlcc("doctor")
    assert "  fault" not in shown
    found = checks(mlcc)
    assert found["numpy"]["value"] == np.__version__
    assert sys.executable in found["python"]["value"]
    assert found["graph"]["value"] == "compiled code runs, and agrees with NumPy"
    for check in found.values():
        assert check["name"] in shown
        assert check["state"] == "ok" or check["help"]


def test_extras_are_those_of_the_installation() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    stated = {
        extra: tuple(sorted(re.match(r"[\w-]+", line)[0] for line in text.strip().splitlines()))  # type: ignore[index]
        for extra, text in config["options.extras_require"].items()
    }
    assert {extra: tuple(sorted(names)) for extra, (names, _) in doctor.EXTRAS.items()}.items() <= stated.items()
    required = config["options"]["install_requires"].strip().splitlines()
    assert sorted(doctor.REQUIRED) == sorted(re.match(r"\w+", line)[0] for line in required)  # type: ignore[index]


def test_packages_that_are_not_there(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = checks(mlcc, code=1)
    assert (found["torch"]["state"], found["torch"]["help"]) == ("missing", "pip install 'mlcc[torch]'")
    assert (found["lark"]["state"], found["lark"]["help"]) == ("fault", "pip install lark")


def test_an_invalid_variable_is_a_fault(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCC_JOBS", "many")
    monkeypatch.setenv("MLCC_NUM_THREADS", "1")
    found = checks(mlcc, code=1)
    assert found["variable"]["state"] == "fault"
    assert "MLCC_JOBS is `many`" in found["variable"]["value"]
    assert found["MLCC_NUM_THREADS"]["value"] == "1"


def test_the_reason_why_a_cache_is_not_used(mlcc: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("MLCC_CACHE_DIR", str(shared))
    found = checks(mlcc, code=1)["cache"]
    assert found["state"] == "fault"
    assert found["value"] == f"not used: {shared} is a link, belongs to another user, or others may write it"
    monkeypatch.setenv("MLCC_CACHE", "0")
    assert checks(mlcc)["cache"]["state"] == "missing"


def test_artifacts(mlcc: Tool) -> None:
    mlcc("compile", "net.mlc", "-o", "net.o")
    mlcc("compile", "net.mlc", "-t", "llvm{triple=aarch64-linux-gnu}", "-o", "arm.o")
    damaged = bytearray(Path("net.o").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    Path("damaged.o").write_bytes(damaged)
    assert checks(mlcc, "net.o")["net.o"]["value"].startswith("fits this machine")
    assert "aarch64" in checks(mlcc, "net.o", "arm.o", code=6)["arm.o"]["value"]
    assert checks(mlcc, "net.o", "arm.o", "damaged.o", code=1)["damaged.o"]["state"] == "fault"
    assert checks(mlcc, "no.o", code=1)["no.o"]["state"] == "fault"


def test_wrong_results_are_a_fault(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SELF_TEST", doctor._SELF_TEST.replace("R.nn.relu(a)", "R.negative(a)"))
    assert checks(mlcc, code=1)["graph"]["value"] == "wrong results"
