"""The soak campaign: cases of all surfaces in turn, in one process at a time, until the time is over.

The state is a file, written after each slice of cases: a campaign that ends, or is killed, goes on where it was. A
slice that was interrupted runs again; its cases count once.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.children import in_children
from tests.soak.surfaces import Surface

ROOT = Path(__file__).resolve().parents[2]
SLICE_SECONDS = 90.0  # a slice ends after so long; the rest of its cases belongs to the next one
MOST_REDUCED = 3  # findings of one kind that are reduced
REDUCE_SECONDS = 60
_ENDED = re.compile(r"\S+ \d+: (ended with -?\d+|hung for \d+ s)")  # what `in_children` says of a case without an end


@dataclass
class Progress:
    """What was done on one surface: `next` is the number of the next case, `void` counts numbers that give none."""

    next: int = 0
    cases: int = 0
    void: int = 0
    findings: int = 0
    seconds: float = 0.0


@dataclass
class Finding:
    surface: str
    number: int
    text: str
    folder: str
    reduced: bool = False


@dataclass
class State:
    """A campaign: its seed, when it began, and how far it came."""

    seed: str
    begun: str
    compiler: str = ""
    surfaces: dict[str, Progress] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def of(self, surface: Surface) -> Progress:
        return self.surfaces.setdefault(surface.name, Progress())

    @staticmethod
    def read(path: Path) -> State:
        raw = json.loads(path.read_text())
        raw["surfaces"] = {name: Progress(**values) for name, values in raw["surfaces"].items()}
        raw["findings"] = [Finding(**values) for values in raw["findings"]]
        return State(**raw)

    def write(self, path: Path) -> None:
        """Replace the file at once: an interruption leaves the old or the new state."""
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n")
        os.replace(temporary, path)


@dataclass
class Campaign:
    """A campaign in a folder, which has

    state.json   the state
    shared/      what `prepare` of each surface wrote
    work/        the folders of the cases that run
    findings/    those of the cases that found something, or ended their process
    """

    folder: Path
    state: State
    surfaces: Sequence[Surface]
    write: Callable[[str], object] = functools.partial(print, flush=True)

    @staticmethod
    def open(folder: Path, seed: str, surfaces: Sequence[Surface], compiler: str = "") -> Campaign:
        """The campaign of a folder, or a new one with this seed."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "state.json"
        begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        state = State.read(path) if path.exists() else State(seed, begun, compiler)
        return Campaign(folder.absolute(), state, surfaces)

    def run(self, seconds: float) -> None:
        """Run slices until the time is over; the surface that is furthest from its goal is next."""
        import_what_cases_use(self.surfaces)
        end = time.monotonic() + seconds
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        while time.monotonic() < end:
            surface = min(self.surfaces, key=lambda s: self.state.of(s).cases / s.goal)
            self.prepare(surface)
            self.slice(surface, min(end, time.monotonic() + SLICE_SECONDS))
            self.state.write(self.folder / "state.json")

    def prepare(self, surface: Surface) -> None:
        """Write what the cases of a surface share, once, in a process of its own. Raises RuntimeError."""
        shared = self.folder / "shared" / surface.name
        if shared.exists():
            return
        made = shared.with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        call = f"from pathlib import Path; from {surface.module_name} import prepare; prepare(Path({str(made)!r}))"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLCC_CACHE": "0"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", call], cwd=made, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{surface.name} cannot be prepared: {done.stderr[-2000:]}")
        made.rename(shared)

    def slice(self, surface: Surface, end: float) -> None:
        """Run the next cases of a surface in children."""
        progress, counts = self.state.of(surface), Counter[str]()
        work = self.folder / "work" / surface.name
        numbers = range(progress.next, progress.next + surface.per_child)
        cases = [(surface.name, number) for number in numbers]
        run = functools.partial(_run, surface, self.folder / "shared" / surface.name, work, self.state.seed)
        began = time.monotonic()
        said = in_children(run, cases, end, counts, patience=surface.patience)
        progress.seconds += time.monotonic() - began
        judged = counts[surface.name] + sum(bool(_ENDED.fullmatch(text)) for text in said)
        progress.cases += judged
        progress.void += counts["none"]
        progress.next += judged + counts["none"]
        for text in said:
            self.keep(surface, text, work)
        shutil.rmtree(work, ignore_errors=True)

    def keep(self, surface: Surface, text: str, work: Path) -> None:
        """Record a finding with the files of its case."""
        head, _, told = text.partition(": ")
        number = int(head.split()[1])
        kept = self.folder / "findings" / f"{surface.name}-{self.state.seed}-{number}"
        if (work / str(number)).exists():
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(exist_ok=True)
            shutil.move(work / str(number), kept)
            (kept / "finding").write_text(told + "\n")
        alike = sum(kind_of(f.text) == kind_of(told) for f in self.state.findings)
        finding = Finding(surface.name, number, told, str(kept.relative_to(self.folder)))
        self.state.findings.append(finding)
        self.state.of(surface).findings += 1
        self.write(f"{surface.name} {self.state.seed} {number}: {told}")
        if alike < MOST_REDUCED and surface.name in ("texts", "graphs"):
            finding.reduced = reduce(kept, told)
        elif alike < MOST_REDUCED and (kept / "mutated").exists():
            finding.reduced = reduce_file(kept, surface.module.DOCUMENTED)


def import_what_cases_use(surfaces: Sequence[Surface]) -> None:
    """Import once, before children are made, what every child would."""
    for name in ("main", "cmd_check", "cmd_compile", "cmd_fmt", "cmd_inspect", "cmd_passes", "cmd_run", "cmd_schedule"):
        importlib.import_module(f"mlcc.cli.{name}")
    for name in ("llvm.object.compile", "llvm.backend", "cuda.backend", "c.backend"):
        importlib.import_module(f"mlcc.targets.{name}")
    import mlcc

    mlcc.parse('@R.function\ndef main(x: R.Tensor((1,), "int8")):\n    return x\n')  # which reads the tables
    for surface in surfaces:
        importlib.import_module(surface.module_name)


def _run(surface: Surface, shared: Path, work: Path, seed: str, case: tuple[str, int], counts: Counter[str]) -> str:
    """Run one case in a folder of its own, which stays if something is wrong."""
    _, number = case
    here = work / str(number)
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    os.chdir(here)
    os.environ["MLCC_CACHE"] = "0"
    if surface.memory:
        resource.setrlimit(resource.RLIMIT_AS, (surface.memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    said = ""
    try:
        said = surface.module.case(shared, seed, number)
    except BaseException:
        said = "raised"
        raise
    finally:
        if not said:
            os.chdir(work)
            shutil.rmtree(here, ignore_errors=True)
    return str(said)


def kind_of(text: str) -> str:
    """What findings of one kind have in common: their text without numbers and paths, up to some length."""
    return re.sub(r"\S*/\S*|\d+", "", text)[:80]


def reduce(folder: Path, told: str) -> bool:
    """Reduce the text of a finding by `mlcc reduce` to FOLDER/reduced.mlc. False if it does not reproduce alone."""
    case = folder / "case.mlc"
    if not case.exists():
        return False
    level = re.search(r"-O(\d)", told)
    options = ["--keep", "differs" if "differs" in told else "crash"] + ([f"-O{level[1]}"] if level else [])
    command = [sys.executable, "-m", "mlcc", "reduce", str(case), "-o", str(folder / "reduced.mlc"), "--force"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done: Any = subprocess.run(
        [*command, *options, "--time", str(REDUCE_SECONDS)], env=environment, capture_output=True, text=True
    )
    (folder / "reduce.txt").write_text(done.stdout + done.stderr)
    return bool(done.returncode == 0)


def reduce_file(folder: Path, documented: Sequence[int]) -> bool:
    """Reduce the file named in FOLDER/mutated, for the command in FOLDER/argv. False if it does not fail alone."""
    name = (folder / "mutated").read_text()
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.file_reduction", name, ",".join(map(str, documented))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLCC_CACHE": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    (folder / "reduce.txt").write_text(done.stdout + done.stderr)
    return (folder / f"reduced-{name}").exists()
