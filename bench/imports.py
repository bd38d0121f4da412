"""Import and compile times of PyTorch models, against the importers of TVM, OpenVINO and ONNX Runtime.

Each sample runs in its own process, pinned to one core, and rounds alternate. Times are the CPU seconds of reading the
model and of compiling it, with packages already loaded, and the minimum time of a call. The call time of the imported
model is also compared with that of the text written by hand. `python -m bench imports [--rounds N] [--only MODEL,...]`
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import calls, machine

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "bench" / "imports"
_Samples = dict[tuple[str, str], list[dict[str, Any]]]


# ---------------------------------------------------------------- models


def resnet18(torch: Any) -> tuple[Any, Any]:
    """Return the torchvision network and an image."""
    models = importlib.import_module("tests.frontend.vision").import_torchvision().models
    return models.resnet18(weights=None).eval(), torch.randn(1, 3, 224, 224)


def transformer(layers: int, width: int, heads: int, hidden: int, length: int, causal: bool) -> Callable[[Any], Any]:
    """Return a maker of the model in `bench.speed.texts.encoder` as a torch module, with an input sequence."""

    def make(torch: Any) -> tuple[Any, Any]:
        nn = torch.nn

        class Layer(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
                self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
                self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

            def forward(self, x: Any) -> Any:
                y = self.norms[0](x)
                q, k, v = (
                    part(y).view(1, length, heads, width // heads).transpose(1, 2) for part in (self.q, self.k, self.v)
                )
                mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                x = x + self.out(mixed.transpose(1, 2).reshape(length, width))
                return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))

        return nn.Sequential(*(Layer() for _ in range(layers))).eval(), torch.randn(length, width)

    return make


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "resnet18": resnet18,
    "encoder": transformer(1, 256, 4, 1024, 128, causal=False),
    "gpt_block": transformer(1, 768, 12, 3072, 64, causal=True),
}


def write(name: str) -> None:
    """Return the files of a model (.pt2, .onnx and the input), writing those that are missing."""
    import numpy as np
    import torch

    FOLDER.mkdir(parents=True, exist_ok=True)
    if (FOLDER / f"{name}.npy").exists():
        return
    model, x = MODELS[name](torch)
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), str(FOLDER / f"{name}.pt2"))
        torch.onnx.export(model, (x,), dynamo=True, verbose=False).save(str(FOLDER / f"{name}.onnx"))
    np.save(FOLDER / f"{name}.npy", x.numpy())


# ---------------------------------------------------------------- in a process of its own


def _mlcc(path: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    import mlcc
    from mlcc.frontend import from_onnx, from_pt2

    if path.endswith(".onnx"):
        importlib.import_module("onnx")

    def compiled(module: Any) -> Any:
        return mlcc.load(mlcc.build(module, target="llvm{cpu=native}"))["main"]

    return lambda: from_pt2(path) if path.endswith(".pt2") else from_onnx(path), compiled


def _tvm(path: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    import onnx
    import torch
    import tvm
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.frontend.torch import from_exported_program

    def imported() -> Any:
        if path.endswith(".onnx"):
            return from_onnx(onnx.load(path))
        return from_exported_program(torch.export.load(path))

    def compiled(module: Any) -> Any:
        import llvmlite.binding as llvm

        target = tvm.target.Target({"kind": "llvm", "mcpu": llvm.get_host_cpu_name(), "num-cores": 1})
        with target:
            function = tvm.relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())["main"]
        return lambda x: function(tvm.runtime.tensor(x))

    return imported, compiled


def _openvino(path: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1}
    core = openvino.Core()
    return lambda: core.read_model(path), lambda model: core.compile_model(model, "CPU", options)


def _onnxruntime(path: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    def compiled(_: Any) -> Any:  # it reads and compiles in one
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda x: session.run(None, {name: x})

    return lambda: None, compiled


WAYS: dict[str, tuple[Callable[[str], Any], str]] = {
    "mlcc, .pt2": (_mlcc, "pt2"), "mlcc, .onnx": (_mlcc, "onnx"), "tvm, .pt2": (_tvm, "pt2"),
    "tvm, .onnx": (_tvm, "onnx"), "openvino, .onnx": (_openvino, "onnx"), "onnxruntime, .onnx": (_onnxruntime, "onnx"),
}  # fmt: skip


def child(way: str, name: str) -> None:
    """Print one sample as JSON: seconds to load packages, to import, to compile, and of a call."""
    import numpy as np

    make, suffix = WAYS[way]
    x = np.load(FOLDER / f"{name}.npy")
    clock = [time.process_time()]

    def lap() -> float:
        clock.append(time.process_time())
        return clock[-1] - clock[-2]

    try:
        imported, compiled = make(str(FOLDER / f"{name}.{suffix}"))
        answer: dict[str, Any] = {"packages": lap()}
        model = imported()
        answer["import"] = lap()
        run = compiled(model)
        answer["compile"] = lap()
        answer["call"] = min(calls({"call": lambda: run(x)}, rounds=9)["call"]) / 1e6
        answer["torch"] = "torch" in sys.modules
    except Exception as problem:
        answer = {"error": f"{type(problem).__name__}: {' '.join(str(problem).split())[:120]}"}
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)


# ---------------------------------------------------------------- all of it


def sample(way: str, name: str) -> dict[str, Any]:
    """Return one sample of an importer, or its `error` if it fails or is not installed."""
    argv = [sys.executable, "-m", "bench.imports", "--child", way, name]
    core = str(max(os.sched_getaffinity(0)))
    settings = dict.fromkeys(("MLCC_JOBS", "MLCC_NUM_THREADS", "TVM_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            ["taskset", "-c", core, *argv], capture_output=True, text=True, timeout=600, env={**os.environ, **settings}
        )
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": "not within 600 s"}
    except (ValueError, IndexError):
        return {"error": "it ended without an answer"}
    return answer


def by_hand(name: str, rounds: int) -> float:
    """Return the call time of the imported model relative to that of the handwritten text."""
    import numpy as np

    import mlcc
    from bench.compile.models import MODELS as TEXTS
    from bench.compile.models import files
    from mlcc.driver import parse_file
    from mlcc.frontend import from_pt2

    folder = FOLDER / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    text = parse_file(files(next(m for m in TEXTS if m.name == name), folder)["text"])
    x = np.load(FOLDER / f"{name}.npy")
    modules = {"text": text, "imported": from_pt2(str(FOLDER / f"{name}.pt2"))}
    runs = {kind: mlcc.load(mlcc.build(m, target="llvm{cpu=native}"))["main"] for kind, m in modules.items()}
    times = calls({kind: lambda run=run: run(x) for kind, run in runs.items()}, rounds)  # type: ignore[misc]
    return min(times["imported"]) / min(times["text"])


def report(samples: _Samples, hand: dict[str, float]) -> str:
    """Return a Markdown table: seconds of mlcc, and of the other importers as multiples of them."""
    lines = ["| model | way | import | compile | both | a call |", "| --- | --- | --- | --- | --- | --- |"]
    for (name, way), runs in samples.items():
        good = [s for s in runs if "error" not in s]
        if not good:
            lines.append(f"| {name} | {way} | {runs[0]['error'] if runs else ''} | | | |")
            continue
        base = _medians(samples[name, f"mlcc, .{WAYS[way][1]}"]) if not way.startswith("mlcc") else None
        mine = _medians(good)
        cells = [_cell(mine[stage], base[stage] if base else None) for stage in ("import", "compile", "both", "call")]
        lines.append(f"| {name} | {way} | {' | '.join(cells)} |")
    lines += ["", "| model | imported, of the text written by hand |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {ratio:.2f}x |" for name, ratio in hand.items())])


def _medians(samples: list[dict[str, Any]]) -> dict[str, float]:
    good = [{**s, "both": s["import"] + s["compile"]} for s in samples if "error" not in s]
    return {stage: statistics.median(s[stage] for s in good) for stage in ("import", "compile", "both", "call")}


def _cell(seconds: float, base: float | None) -> str:
    if base is None:
        return f"{seconds:.3f} s" if seconds >= 0.1 else f"{seconds * 1e3:.2f} ms"
    return f"{seconds / base:.2f}x" if seconds > 1e-5 else "in compile"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench imports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas; default: %(default)s")
    parser.add_argument(
        "--ways", default="", help="importers whose names contain one of these, separated by commas; default: all"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        child(*options.child)
    names = options.only.split(",")
    ways = [way for way in WAYS if any(part in way for part in options.ways.split(","))]
    samples: _Samples = {(name, way): [] for name in names for way in ways}
    for name in names:
        write(name)
    for _ in range(options.rounds):
        for (name, way), runs in samples.items():
            runs.append(sample(way, name))
            print(name, way, runs[-1], file=sys.stderr, flush=True)
    hand = {name: by_hand(name, 25) for name in names}
    print(f"{machine()}; mlcc in seconds, others as multiples of mlcc from the same file\n")
    print(report(samples, hand))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
