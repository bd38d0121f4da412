"""Data of reports made by hand: the form that docs/report-format.md gives, at a small size."""

from __future__ import annotations

from typing import Any


def node(id: int, name: str, kind: str = "call", **fields: Any) -> dict[str, Any]:
    return {
        "id": id, "name": name, "op": "R.nn.relu" if kind == "call" else "", "kind": kind, "shape": "(1, 8)",
        "dtype": "float32", "path": "", "kernel": None, "bytes": 32, "line": None, **fields,
    }  # fmt: skip


def chain(length: int, **fields: Any) -> dict[str, Any]:
    """A graph of an input, `length` operators one after the other, and an output."""
    nodes = [node(0, "x", "input")]
    nodes += [node(k, f"lv{k}", **fields) for k in range(1, length + 1)]
    nodes.append(node(length + 1, "out", "output"))
    return {"function": "main", "stage": "source", "nodes": nodes, "edges": [[k, k + 1] for k in range(length + 1)]}


def report(name: str = "net") -> dict[str, Any]:
    """A report of two kernels with something in each of its parts; `name` is part of all names."""
    source = f"def main(x):  # {name}\n    lv1 = R.nn.conv2d(x, w)\n    lv2 = R.nn.relu(lv1)\n    return lv2\n"
    fused = f"def main(x):\n    lv1 = {name}_conv(x, w)\n    return lv1\n"
    loops = "".join(f"for i{k} in range({k}):\n    A[i{k}] = T.float32({k})\n" for k in range(120))
    texts = {
        "t0": source,
        "t1": fused,
        "t2": f'@T.prim_func\ndef {name}_conv(A: T.Buffer((8,), "float32")):\n    pass\n',
        "t3": 'sch.parallel("i")\n',
        "t4": loops,
        "t5": f"{name}_conv:\n    vmovups (%rdi), %ymm0  # load\n    vmulps %ymm0, %ymm1, %ymm2\n    retq\n",
    }
    nodes = [
        node(0, "x", "input", line=1),
        node(1, f"w_{name}", "constant", shape="(8, 8)"),
        node(2, "lv1", op="R.nn.conv2d", path=f"{name}.layer.conv", kernel=f"{name}_conv", line=2),
        node(3, "lv2", op="R.nn.relu", path=f"{name}.layer.relu", kernel=f"{name}_conv", line=3),
        node(4, "lv3", op="R.add", path=f"{name}.head", kernel=f"{name}_add", line=3),
        node(5, "out", "output"),
    ]
    kernel = {
        "name": f"{name}_conv", "calls": 1, "lines": [2, 3], "version_of": None, "cpu": None, "nodes": [2, 3],
        "tir": "t2", "scheduled": "t2", "script": "t3", "rule": "conv", "why": "it is a convolution",
        "choices": ["tiles of 8 rows"], "refused": [["matmul", "it is none"]], "loops": "t4", "flops": 1000,
        "bytes": 100, "code_bytes": 64, "assembly": "t5", "line_table": [[2, 3, [2]], [3, 200, [3]], [4, 201, [2, 3]]],
        "seconds": 2e-6, "measured_calls": 1, "estimate": {"seconds": 1e-6, "bound": "compute"}, "gflops": 0.5,
        "gbs": 0.05, "share": 0.5, "bound": "compute",
    }  # fmt: skip
    blank = dict.fromkeys(kernel) | {"name": f"{name}_add", "calls": 2, "nodes": [4], "lines": [3], "line_table": []}
    return {
        "format": 1, "mlcc": "0.1.0", "title": f"{name}.mlc", "target": "llvm{cpu=native}", "level": 2,
        "pipeline": "normalize,fuse", "source": {"name": f"{name}.mlc", "text": "t0"},
        "stages": [
            {"pass": "source", "seconds": 0, "functions": {"main": "t0"}},
            {"pass": "normalize", "seconds": 0.001, "functions": {"main": "t0"}},
            {"pass": "dead-code", "seconds": 0.001, "functions": {"main": "t0"}},
            {"pass": "fuse", "seconds": 0.002, "functions": {"main": "t1", f"{name}_conv": "t2"}},
        ],
        "graphs": [
            {
                "function": "main", "stage": "source", "nodes": nodes,
                "edges": [[0, 2], [1, 2], [2, 3], [3, 4], [2, 4], [4, 5]],
            }
        ],
        "kernels": [kernel, {**blank, "choices": [], "refused": []}],
        "decisions": [{"kind": "fusion", "subject": f"{name}_conv", "text": "fused: one kernel of 2 operations"}],
        "memory": [
            {
                "function": "main", "workspace": 128, "peak": 96, "steps": [f"{name}_conv", f"{name}_add"],
                "buffers": [
                    {"name": f"result of {name}_conv", "offset": 0, "bytes": 64, "size": "64", "first": 0, "last": 1},
                    {"name": "lv3", "offset": 64, "bytes": 32, "size": "32", "first": 1, "last": 1},
                ],
            }
        ],
        "sizes": {"artifact": 4096, "code": 1024, "constants": None, "workspaces": {"main": 128}},
        "manifest": {"mlcc": {"abi": 1}, "functions": {"main": {"params": [{"name": "x", "shape": [1, 8]}]}}},
        "profile": {
            "seconds": 1e-5, "rest_seconds": 1e-6, "rounds": 3, "threads": 1, "function": "main",
            "machine": {"threads": 1, "operations_per_second": 1e11, "levels": {"DRAM": {"bytes_per_second": 1e10}}},
        },
        "texts": texts,
    }  # fmt: skip


def comparison(left: str = "left", right: str = "right") -> dict[str, Any]:
    """Two reports and their difference."""
    return {
        "format": 1,
        "a": report(left),
        "b": report(right),
        "diff": {
            "graph": {"same": [[0, 0]], "changed": [[2, 2]], "removed": [4], "added": [3]},
            "kernels": [
                {
                    "name": f"{left}_conv", "other": f"{right}_conv", "change": "changed", "seconds": [2e-6, 1e-6],
                    "code_bytes": [64, 32], "what": ["loops"],
                },
                {
                    "name": f"{left}_add", "other": None, "change": "removed", "seconds": [None, None],
                    "code_bytes": [16, None], "what": [],
                },
            ],
            "manifest": [{"path": "mlcc.abi", "left": 1, "right": None}],
            "total": {"seconds": [2e-5, 1e-5], "code": [1024, 512], "workspace": [128, None]},
        },
    }  # fmt: skip
