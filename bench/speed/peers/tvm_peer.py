"""Apache TVM, tuned by MetaSchedule for `trials` trials, whose database is kept; not tuned for 0 trials."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import tvm
from tvm import relax

from bench.speed.graph import Node
from bench.speed.peers.base import Kept, Peer, Ready, Work


class Tvm:
    def __init__(self, threads: int) -> None:
        self.threads = threads
        os.environ["TVM_NUM_THREADS"] = str(threads)

    def versions(self) -> dict[str, str]:
        return {"tvm": tvm.__version__}

    def target(self) -> Any:
        import llvmlite.binding as llvm

        return tvm.target.Target({"kind": "llvm", "mcpu": llvm.get_host_cpu_name(), "num-cores": self.threads})

    def prepare(self, work: Work) -> Ready:
        target = self.target()
        module = _module(work)
        key = hashlib.sha256(f"{tvm.__version__} {module.script()} {work.trials} {self.threads}".encode()).hexdigest()
        folder = os.path.join(work.folder, "tvm", key[:16])
        done = os.path.join(folder, "done")
        trials = 0 if os.path.exists(done) else work.trials
        os.makedirs(folder, exist_ok=True)
        with target:
            if work.trials:
                module = relax.get_pipeline("static_shape_tuning", total_trials=trials, target=target, work_dir=folder)(
                    module
                )
                with open(done, "w"):
                    pass
            executable = tvm.compile(module, target=target)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        given = [tvm.runtime.tensor(work.inputs[n]) for n in work.graph.params if n in work.inputs]
        function = machine["main"]
        kept = Kept(lambda: function(*given))
        return Ready(
            kept,
            lambda: kept.value.numpy(),  # type: ignore[attr-defined]
            note=f"{work.trials} trials" if work.trials else "not tuned",
        )


def _module(work: Work) -> Any:
    """The graph as a relax module, weights as constants."""
    graph = work.graph
    builder = relax.BlockBuilder()
    values: dict[str, Any] = {n: relax.const(w) for n, w in work.weights.items()}
    params = {
        n: relax.Var(n, relax.TensorType(shape, "float32")) for n, shape in graph.params.items() if n in work.inputs
    }
    values.update(params)
    with builder.function("main", list(params.values())):
        with builder.dataflow():
            for node in graph.nodes:
                values[node.out] = builder.emit(
                    _call(node, [values.get(a) if isinstance(a, str) else a for a in node.args])
                )
            out = builder.emit_output(values[graph.result])
        builder.emit_func_output(out)
    return builder.get()


def _call(node: Node, args: list[Any]) -> Any:
    function: Any = relax.op
    for part in node.op.split("."):
        function = getattr(function, part)
    known = {k: v for k, v in node.attrs.items() if v is not None}
    return function(*args, **known)


def make(threads: int) -> Peer:
    return Tvm(threads)
