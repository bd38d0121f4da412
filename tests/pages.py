"""Pages followed to the letter: files written, commands run by bash, output compared."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Example(NamedTuple):
    """A fenced block: its language, its text, its line on the page, and the prose line before it."""

    kind: str
    text: str
    line: int
    before: str


def examples(path: Path, title: str) -> list[Example]:
    """Return the fenced blocks of the section of a page whose heading begins with `title`."""
    page = path.read_text()
    (section,) = re.finditer(rf"^## {re.escape(title)}.*?(?=^## |\Z)", page, re.S | re.M)
    found = []
    for match in re.finditer(r"([^\n]*)\n\n```(\w+)\n(.*?)^```", section.group(), re.S | re.M):
        line = page.count("\n", 0, section.start() + match.start(2)) + 1
        found.append(Example(match.group(2), match.group(3), line, match.group(1)))
    assert len(found) == len(re.findall(r"^```\w", section.group(), re.M)), f"{title}: a fence without a line before it"
    return found


def matches(expected: str, output: str) -> bool:
    """Return whether the output is as expected: `...` stands for anything, decimal fractions may differ a little."""
    parts = re.split(r"(\.\.\.|-?\d+\.\d+(?:e[-+]?\d+)?)", expected.rstrip("\n"))
    numbers = [float(part) for part in parts[1::2] if part != "..."]
    parts[1::2] = [".*" if part == "..." else r"(-?\d+\.\d*(?:e[-+]?\d+)?)" for part in parts[1::2]]
    parts[::2] = [re.escape(part) for part in parts[::2]]
    found = re.fullmatch("".join(parts), output.rstrip("\n"), re.S)
    return found is not None and [float(n) for n in found.groups()] == pytest.approx(numbers, rel=1e-3, abs=1e-3)


def environment(programs: Path) -> dict[str, str]:
    """Return an environment whose PATH has `mlcc` and `python3` of this checkout, in a new folder."""
    programs.mkdir(exist_ok=True)
    for name, module in (("mlcc", " -m mlcc"), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}


def run_bash(commands: str, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Return the exit status of the commands, and what they write to either stream; the first failure ends them."""
    shell = ["bash", "-o", "pipefail", "-ec", "exec 2>&1\n" + commands]
    done = subprocess.run(shell, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    return done.returncode, done.stdout


def follow(page: Path, folder: Path, *titles: str) -> None:
    """Do what sections of a page say, in order, in the folder `work` below one: write their files, run their commands.

    A line such as "Write `net.mlc`:" before a fence names its file; Python without such a line is run. The output of a
    shell fence is that of the text fence after it, unless "For example:" stands between them.
    """
    env = environment(folder / "bin")
    work = folder / "work"
    work.mkdir(exist_ok=True)
    steps = [example for title in titles for example in examples(page, title)]
    output = ""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        place = f"{page.name}:{step.line}"
        if step.kind == "sh":
            status, output = run_bash(step.text, work, env)
            fails = following is not None and following.kind == "text" and "error[" in following.text
            assert status == (1 if fails else 0), f"{place}: status {status}\n{output}"
        elif step.kind == "text" and step.before != "For example:":
            assert matches(step.text, output), f"{place}: expected\n{step.text}\nfound\n{output}"
        elif step.kind != "text":
            name = re.search(r"`([\w.]+)`:$", step.before)
            assert name or step.kind == "python", f"{place}: no line before it names the file"
            (work / (name.group(1) if name else "step.py")).write_text(step.text)
            status, output = (0, "") if name else run_bash("python3 step.py", work, env)
            assert status == 0, f"{place}: status {status}\n{output}"


def needs(package: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where a package is missing."""
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (extra `[models]`)")
