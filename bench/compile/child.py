"""Measure one model in one process: from its text, or the input of a peer, to the first result.

`python -P child.py SPEC`, where SPEC is a `Task` in JSON. Prints a line of JSON when the result is there: the clock,
CPU seconds and peak memory at that point, and figures determined afterwards. Runs the mlcc of the tree that comes
first on PYTHONPATH, so cases of mlcc import nothing from bench.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

Task = dict[str, Any]
Arrays = dict[str, Any]


def main() -> int:
    task: Task = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-task["cores"] :])
    os.environ["MLCC_NUM_THREADS"] = str(task["cores"])
    try:
        result, afterwards = WAYS[task["way"]](task)
        spent = {"clock": time.monotonic(), "cpu": cpu_seconds(), "peak": peak_bytes()}
        answer = {**spent, "off": distance(task, result), **afterwards()}
    except ImportError as exc:
        answer = {"error": f"not installed: {exc}"}
    except Exception as exc:
        answer = {"error": f"{type(exc).__name__}: {next(iter(str(exc).splitlines()), '')}"[:300]}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)  # what a peer does at its end, its first result did not need


Afterwards = Callable[[], dict[str, Any]]


def first(task: Task) -> tuple[Any, Afterwards]:
    """Compile the text with mlcc and call it once in this process, on emulated kernels if `emulate`."""
    import mlcc

    artifact = _built(task)
    executable = mlcc.load(artifact, emulate=True) if task.get("emulate") else mlcc.load(artifact)
    result = executable["main"](*inputs(task).values())
    return result, lambda: {"size": _size(artifact, "o" if not task.get("emulate") else "mlca", task)}


def build(task: Task) -> tuple[None, Afterwards]:
    """Compile the text with mlcc for a target that this machine cannot run."""
    artifact = _built(task)
    return None, lambda: {"size": _size(artifact, "mlca", task)}


def command(task: Task) -> tuple[Any, Afterwards]:
    """Run `mlcc run`, with the cache set in the environment."""
    from mlcc.cli.main import main as cli

    out = os.path.join(task["folder"], "out.npz")
    argv = ["run", task["text"], "--in", task["inputs"], "--out", out, "-t", task["target"], f"-O{task['level']}"]
    code: object = 0
    try:
        cli(argv)
    except SystemExit as exc:
        code = exc.code
    if code:
        raise RuntimeError(f"exit code {code}")

    import numpy as np

    with np.load(out) as results:
        return results[results.files[0]], dict


def peer(task: Task) -> tuple[Any, Afterwards]:
    """Run a peer of `bench.speed.peers` on the operators in its own form."""
    import importlib

    adapter = importlib.import_module(f"bench.speed.peers.{task['peer']}_peer").make(task["cores"])
    ready = adapter.prepare(_work(task))
    ready.call()
    return ready.result(), lambda: {"versions": adapter.versions()}


def alone(task: Task) -> tuple[Any, Afterwards]:
    """Compile with mlcc in a process that has compiled another model; the answer has the CPU seconds of that alone."""
    import mlcc
    from mlcc.driver import parse_file
    from mlcc.passes.manage.compile_times import CompileTimes
    from mlcc.progress import listening

    mlcc.load(_built({**task, **task["before"]}))
    times = CompileTimes(lambda text: None)
    clock, began = time.perf_counter(), cpu_seconds()
    with listening(times):
        module = parse_file(task["text"])
        artifact = mlcc.build(module, target=task["target"], opt_level=task["level"], observers=[times])
    main = mlcc.load(artifact)["main"]
    spent, whole = cpu_seconds() - began, time.perf_counter() - clock
    shares = {stage: seconds / whole for stage, seconds in _stages(times).items()}
    return main(*inputs(task).values()), lambda: {"alone": spent, "shares": shares}


def _stages(times: Any) -> dict[str, float]:
    """Return seconds by stage: passes by the folder that they are in, and the stages of code generation."""
    from mlcc.passes import PASSES

    folders = {"lowering": "lowering", "auto_schedule": "schedules"}
    found: dict[str, float] = dict(times.stages)
    for name, seconds in times.spent:
        place = str(PASSES.get(name, "")).split(".")
        stage = next((folders[part] for part in place if part in folders), "graph")
        found[stage] = found.get(stage, 0.0) + seconds
    return found


def peer_alone(task: Task) -> tuple[Any, Afterwards]:
    """The same with a peer: seconds of making the function that it calls, which some do at the first call."""
    import importlib

    adapter = importlib.import_module(f"bench.speed.peers.{task['peer']}_peer").make(task["cores"])
    adapter.prepare(_work({**task, **task["before"]})).call()
    work = _work(task)
    began = cpu_seconds()
    ready = adapter.prepare(work)
    ready.call()
    spent = cpu_seconds() - began
    return ready.result(), lambda: {"alone": spent, "versions": adapter.versions()}


WAYS = {"alone": alone, "peer_alone": peer_alone, "first": first, "build": build, "command": command, "peer": peer}


def _work(task: Task) -> Any:
    """Return a model in the form that adapters take."""
    from bench.speed.graph import Graph
    from bench.speed.peers.base import Work

    with open(task["graph"]) as file:
        graph = Graph.of(json.load(file))
    weights = {} if task["peer"] in ("onnxruntime", "openvino") else arrays(task["weights"])  # those lie in the model
    return Work(graph, "", inputs(task), weights, task["folder"], 0, task["onnx"])


def _built(task: Task) -> Any:
    import mlcc
    from mlcc.driver import parse_file

    return mlcc.build(parse_file(task["text"]), target=task["target"], opt_level=task["level"])


def _size(artifact: Any, suffix: str, task: Task) -> int:
    path = os.path.join(task["folder"], f"made.{suffix}")
    artifact.save(path)
    return os.path.getsize(path)


def arrays(path: str) -> Arrays:
    """Return the arrays of a file by name."""
    import numpy as np

    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def inputs(task: Task) -> Arrays:
    return arrays(task["inputs"])


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, including running ones."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    running = sum(map(_ticks, _descendants(os.getpid())), 0.0)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + running


def _descendants(pid: int) -> list[int]:
    processes: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in map(int, file.read().split()):
                    processes += [child, *_descendants(child)]
    except OSError:
        pass  # the process has ended
    return processes


def _ticks(pid: int) -> float:
    """Return the CPU seconds of a running process and of its children that have ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_bytes() -> int:
    """Return the peak memory of this process; the value of `getrusage` starts at the parent's."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM"))
        return int(line.split()[1]) << 10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def distance(task: Task, result: Any) -> float:
    """Return the largest difference from the expected result, relative to the largest expected value."""
    if result is None:
        return 0.0
    import numpy as np

    with np.load(task["expected"]) as archive:
        want = archive["expected/out"]
    got = np.asarray(result)
    if got.shape != want.shape:
        raise ValueError(f"the result has shape {got.shape}, not {want.shape}")
    return float(np.abs(got.astype(np.float64) - want).max() / max(1e-30, np.abs(want).max()))


if __name__ == "__main__":
    sys.exit(main())
