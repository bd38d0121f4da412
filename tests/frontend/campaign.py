"""Models imported each way, and what became of them: `python -m tests.frontend.campaign --help`.

A record is a file of JSON lines, one for each model and way. What it has as right is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.frontend.model_check import Outcome, Way, outcome
from tests.frontend.models import CASES as FIRST
from tests.frontend.more_models import CASES as MORE
from tests.frontend.unseen_models import CASES as UNSEEN
from tests.frontend.vision import import_torchvision

CASES = {**FIRST, **MORE, **UNSEEN}


def key(name: str, way: Way) -> dict[str, Any]:
    """What tells the line of a record from others."""
    levels = ["default" if level is None else str(level) for level in way.levels]
    return {"model": name, "via": way.via, "dynamic": way.dynamic, "cuda": way.cuda, "levels": levels}


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, the last of each model and way."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return list({json.dumps({k: line[k] for k in key("", Way())}): line for line in lines}.values())


def selected(names: list[str], way: Way, heavy: bool) -> list[str]:
    """The models whose names begin with one of `names` that can be tried this way."""
    wanted = [n for n, c in CASES.items() if n.startswith(tuple(names) or ("",)) and (heavy or not c.heavy)]
    return [n for n in wanted if not way.dynamic or CASES[n].dynamic is not None]


def _tried(name: str, way: Way) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        found = outcome(CASES[name], way)
    except Exception as problem:  # noqa: BLE001 - a crash is a result
        found = Outcome(f"crash: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    gc.collect()
    seconds = {stage: round(value, 2) for stage, value in found.seconds.items()}
    seconds["all"] = round(time.perf_counter() - start, 2)
    operators = dict(sorted(found.operators.items()))
    return {**key(name, way), "wrong": found.wrong, "seconds": seconds, "commit": _commit(), "operators": operators}


def _within(seconds: float, name: str, way: Way) -> dict[str, Any]:
    """What `_tried` says, in a process of its own that is ended after so many seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(_tried(name, way)), daemon=True)
    child.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            return dict(receiver.recv())
        wrong = f"not within {seconds:g} s"
    except EOFError:
        child.join()
        wrong = f"crash: ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()
    return {**key(name, way), "wrong": wrong, "seconds": {"all": seconds}, "commit": _commit(), "operators": {}}


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def main() -> None:
    """A line for each model, and how many of those that PyTorch exports are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.campaign", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PREFIX", help="of models; default: all")
    parser.add_argument("--via", choices=["pt2", "onnx", "fx"], default="pt2")
    parser.add_argument("--dynamic", action="store_true", help="with extents that vary, at three sizes")
    parser.add_argument("--cuda", action="store_true", help="on emulated CUDA")
    parser.add_argument("--levels", default="0,default", help="of optimization; none with ''")
    parser.add_argument("--heavy", action="store_true", help="models that take long, too")
    parser.add_argument("--again", action="store_true", help="what the record has as right, too")
    parser.add_argument("--seconds", type=float, default=600, help="that a model may take; default: %(default)g")
    parser.add_argument("--record", type=Path, help="file of JSON lines")
    options = parser.parse_args()
    with contextlib.suppress(ImportError):
        import_torchvision()
    levels = tuple(None if level == "default" else int(level) for level in options.levels.split(",") if level)
    way = Way(options.via, options.dynamic, options.cuda, levels)
    known = read(options.record) if options.record else []
    right = {line["model"] for line in known if not line["wrong"] and key(line["model"], way).items() <= line.items()}
    lines = []
    for name in selected(options.names, way, options.heavy):
        if name in right and not options.again:
            continue
        line = _within(options.seconds, name, way)
        lines.append(line)
        print(f"{'FAIL' if line['wrong'] else 'ok  '} {name} {line['seconds']['all']:.1f}s {line['wrong']}", flush=True)
        if options.record:
            with options.record.open("a") as file:
                file.write(json.dumps(line) + "\n")
    counted = [line for line in lines if not line["wrong"].startswith("export:")]
    print(f"{sum(not line['wrong'] for line in counted)} of {len(counted)} right, {len(right)} known to be")


if __name__ == "__main__":
    main()
