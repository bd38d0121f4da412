"""Soak testing: long campaigns over all surfaces, which go on where they ended.

    python -m tests.soak --hours 2 [--folder build/soak] [--only texts,kills] [--seed 7] [--new]

A run continues the campaign in the folder; `--new` begins another one, with a seed that no recorded run had. At the
end, and every ten minutes, the counts go into tests/soak/record.json and the tables of docs/soak.md (`--no-record`:
they do not). Exit code 1 if this run found something; the files are in FOLDER/findings.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.soak import record
from tests.soak.campaign import ROOT, Campaign
from tests.soak.surfaces import BY_NAME, SURFACES, Surface

RECORD_SECONDS = 600.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=duration, default=0.0)
    parser.add_argument("--seconds", type=duration, default=0.0)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "soak")
    parser.add_argument("--only", help="surfaces, with commas: " + ", ".join(BY_NAME))
    parser.add_argument("--seed", help="the seed of a new campaign")
    parser.add_argument("--new", action="store_true", help="begin another campaign in the folder")
    parser.add_argument("--case", help="run one case here, as SURFACE:NUMBER, and keep its files")
    parser.add_argument("--no-record", action="store_true")
    asked = parser.parse_args(argv)
    chosen = [_surface(parser, name) for name in asked.only.split(",")] if asked.only else list(SURFACES)
    if asked.new:
        shutil.rmtree(asked.folder, ignore_errors=True)
    campaign = Campaign.open(asked.folder, asked.seed or record.next_seed(record.read()), chosen, _compiler())
    if asked.seed not in (None, campaign.state.seed):
        parser.error(
            f"the campaign in {asked.folder} has the seed {campaign.state.seed}: give --new, or another folder"
        )
    if asked.case:
        return _one(parser, campaign, asked.case)
    seconds = asked.hours * 3600 + asked.seconds or 600.0
    print(f"seed {campaign.state.seed}, {seconds:.0f} s, {campaign.folder}", flush=True)
    known = len(campaign.state.findings)
    signal.signal(signal.SIGTERM, _interrupt)
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            campaign.run(min(left, RECORD_SECONDS))
            if not asked.no_record:
                _record(campaign)
    except KeyboardInterrupt:
        print("interrupted: the next run goes on from the last slice")
        if not asked.no_record:
            _record(campaign)
    for name, progress in campaign.state.surfaces.items():
        print(f"{name:10} {progress.cases:9,} cases {progress.findings:5} findings {progress.seconds:8.0f} s")
    return int(len(campaign.state.findings) > known)


def duration(text: str) -> float:
    """Read a length of time. Raises ValueError."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _surface(parser: argparse.ArgumentParser, name: str) -> Surface:
    if name not in BY_NAME:
        parser.error(f"no surface `{name}`; there are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _one(parser: argparse.ArgumentParser, campaign: Campaign, text: str) -> int:
    name, _, number = text.partition(":")
    surface = _surface(parser, name)
    campaign.prepare(surface)
    here = campaign.folder / "one"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    os.chdir(here)
    os.environ["MLCC_CACHE"] = "0"
    said = surface.module.case(campaign.folder / "shared" / name, campaign.state.seed, int(number))
    print(f"{said or 'nothing found'}; the files are in {here}")
    return int(bool(said))


def _compiler() -> str:
    """The commit that is tested, or the version where there is none."""
    import mlcc

    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or mlcc.__version__


def _record(campaign: Campaign) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    whole = record.with_entry(record.read(), record.entry(campaign.state, now, machine))
    record.write(whole)
    if record.PAGE.exists():
        record.PAGE.write_text(record.updated_page(record.PAGE.read_text(), whole))


if __name__ == "__main__":
    sys.exit(main())
