"""Networks and products in 8, 4 and 16 bits beside other libraries: `python -m bench precisions`.

ResNet-18 and an encoder that ONNX Runtime has quantized to int8, and in bfloat16; products with weights of few bits,
and of bfloat16 by bfloat16, in which PyTorch takes part; in the others with few bits llama.cpp does. The weights of
products of one row are larger than the caches. Their speed is given in bytes of the weights as they are stored,
relative to that of a loop that reads memory. `off` is the largest error relative to the largest value: of products, to
NumPy in float64, of networks, to ONNX Runtime in float32 between rounding steps. `avx2` is mlcc for CPUs without
products of bytes or bfloat16. The rows of a run replace those of earlier ones in a record, which `--write` writes as a
table.

`python -m bench precisions [--only NAMES] [--peers NAMES] [--threads 1,2] [--write]`
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.measure import default_level, machine
from bench.precisions.models import CASES, Model
from bench.speed.graph import Graph, Node
from bench.speed.record import milliseconds
from bench.speed.session import ROOT, Competitor, Result, SessionPlan, competitors, race_on
from mlcc.tune.peak_rates import measure

OURS = ("mlcc", "avx2")
PEERS = (*OURS, "onnxruntime", "openvino", "torch", "llamacpp")
FOLDER = ROOT / "build" / "bench" / "precisions"
PAGE = ROOT / "docs" / "speed.md"
RECORD = FOLDER / "results.json"
START, END = "<!-- what follows is written by `python -m bench precisions --write` -->", "<!-- end of precisions -->"
TOLERANCE = 0.3  # of the largest value: OpenVINO quantizes the data of products to int8, too


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark described in the module docstring."""
    options = _arguments(argv or [])
    words = options.only.split(",") if options.only else [""]
    chosen = [case for case in CASES if any(word in case.name for word in words)]
    plan = SessionPlan(rounds=options.rounds, level=options.level)
    FOLDER.mkdir(parents=True, exist_ok=True)
    record: dict[str, str] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    print(f"{datetime.date.today().isoformat()}, {machine()}, mlcc at `-O{options.level}`.")
    for threads in (int(n) for n in options.threads.split(",")):
        memory = measure(threads).levels[-1][1]
        print(f"{_threads(threads)}, memory is read at {memory / 1e9:.0f} GB/s:")
        peers = options.peers.split(",")
        with competitors(peers, threads) as started:
            running = [c for c in started if not c.missing]
            for missing in (c for c in started if c.missing):
                print(f"  {missing.peer} is skipped: {missing.missing}")
            for case in chosen:
                model = case.make(case.name)
                results = {r.peer: r for r in compare(model, running, plan)}
                print("\n".join(_lines(model, results, memory)), flush=True)
                record[f"{threads} {model.name}"] = _row(model, results, memory)
                RECORD.write_text(json.dumps(record))
    if options.write:
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text("\n".join([before + START, "", *_page(record), "", END + rest.partition(END)[2]]))
        print(f"wrote {PAGE}")
    return 0


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _page(record: dict[str, str]) -> list[str]:
    """Return the tables of the recorded rows, in the order of the cases."""
    lines = [f"{datetime.date.today().isoformat()}, {machine()}, milliseconds."]
    for count in sorted({int(key.partition(" ")[0]) for key in record}):
        lines += ["", f"{_threads(count)}:", "", f"| | {' | '.join(PEERS)} | mlcc / best | of memory speed | off |"]
        lines.append("| --- |" + " ---: |" * (len(PEERS) + 3))
        lines += [record[key] for case in CASES if (key := f"{count} {case.name}") in record]
    return lines


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench precisions", description="Compare in 8, 4 and 16 bits.")
    parser.add_argument("--only", help="cases whose names contain one of these, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--threads", default="1,2", help="default: %(default)s")
    parser.add_argument(
        "--level", type=int, default=default_level(), help="optimization level of mlcc; default: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=15, help="samples of each; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/speed.md")
    return parser.parse_args(argv)


def compare(model: Model, running: list[Competitor], plan: SessionPlan) -> list[Result]:
    """Compare all competitors on a model."""
    onnx, arrays = FOLDER / f"{model.name}.onnx", FOLDER / f"{model.name}.npz"
    onnx.write_bytes(model.onnx)
    kinds = {f"inputs/{key}": array for key, array in model.inputs.items()}
    kinds |= {f"weights/{key}": array for key, array in model.weights.items()}
    np.savez(arrays, **kinds, **{"expected/out": model.expected})  # type: ignore[arg-type]
    result = Node("model", tuple(model.inputs), {}, model.result, model.expected.shape)
    graph = Graph({key: array.shape for key, array in model.inputs.items()}, (result,), model.result)
    if model.graph is None:
        running = [c for c in running if c.peer != "torch"]
    else:
        graph = model.graph
    request = {
        "path": str(arrays), "graph": graph.plain(), "source": "", "folder": str(FOLDER), "onnx": str(onnx),
        "precision": model.precision, "dtype": model.dtype,
    }  # fmt: skip
    results = race_on(request, running, plan, TOLERANCE)
    for path in (onnx, arrays):
        Path(path).unlink()
    return results


def _times(results: dict[str, Result]) -> dict[str, float]:
    return {peer: result.median for peer, result in results.items() if result.times and not result.error}


def _ratio(times: dict[str, float]) -> float | None:
    """Return how many times as fast mlcc is as the best peer."""
    others = [time for peer, time in times.items() if peer not in OURS]
    return min(others) / times["mlcc"] if others and "mlcc" in times else None


def _lines(model: Model, results: dict[str, Result], memory: float) -> list[str]:
    """Return a few lines on a model, for a terminal."""
    ratio = _ratio(_times(results))
    lines = [model.name + ("" if ratio is None else f": mlcc is {ratio:.2f} x the best peer")]
    for peer, result in results.items():
        if result.error:
            lines.append(f"  {peer:12} {result.error}")
            continue
        speed = model.weight_bytes / result.median
        read = f", {speed / 1e9:5.1f} GB/s, {speed / memory:.2f} of memory" if model.weight_bytes else ""
        lines.append(
            f"  {peer:12} {milliseconds(result.median):>9} ms{read}; off {result.off:.1e}; "
            f"prepared in {result.prepare:.1f} s"
        )
    return lines


def _row(model: Model, results: dict[str, Result], memory: float) -> str:
    """Return a model's row in the table of the page."""
    times = _times(results)
    ratio, mine = _ratio(times), times.get("mlcc")
    read = "-"
    if model.weight_bytes and mine is not None and model.expected.shape[0] == 1:
        read = f"{model.weight_bytes / mine / memory:.2f}"
    off = ", ".join(f"{results[p].off:.0e}" for p in ("mlcc", *PEERS[len(OURS) :]) if p in times)
    cells = [*(milliseconds(times.get(peer)) for peer in PEERS), "-" if ratio is None else f"{ratio:.2f} x", read, off]
    return f"| {model.name} | {' | '.join(cells)} |"
