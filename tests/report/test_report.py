"""The data of reports, judged by passes run one by one, by brute force, by the artifacts, and by the format's page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.report.collect import Request, collect
from mlcc.report.compare import compare_reports
from mlcc.report.stages import function_text
from mlcc.tune.kernel_profile import CompiledKernels
from tests.cli.test_cli import Tool
from tests.generate import graphs
from tests.report.format_page import described, entries, faults, tables

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
NET = """
@R.function
def main(x: R.Tensor((2, 3, 8, 8), "float32"), k: R.Tensor((16, 3, 3, 3), "float32"), w: R.Tensor((64, 10), "float32")):
    with R.dataflow():
        a = R.nn.conv2d(x, k)  # layer1.conv (Conv2d) net.py:7
        b = R.nn.relu(a)
        c = R.reshape(R.mean(b, axis=[3]), (2, 96))
        d = R.strided_slice(c, axes=[1], begin=[0], end=[64])
        e = R.nn.softmax(R.matmul(d, w), axis=-1)
        R.output(e)
    return e
"""
KERNEL = """
@T.prim_func
def main(A: T.Buffer((1000,), "float32"), B: T.Buffer((1000,), "float32"), C: T.Buffer((1000,), "float32")):
    for i in range(1000):
        with T.block("sum"):
            v = T.axis.spatial(1000, i)
            B[v] = A[v] + T.float32(3)
    for i in range(1000):
        with T.block("product"):
            v = T.axis.spatial(1000, i)
            C[v] = A[v] * T.float32(5)
"""
NATIVE, CPU = "llvm{cpu=native}", "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v3}"


def report(text: str, target: str = CPU, **options: Any) -> dict[str, Any]:
    return collect(Request("net.mlc", mlcc.parse(text, name="net.mlc"), target, **options))


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    made = Tool(tmp_path, capfd)
    made.file("net.mlc", NET)
    return made


# ---------------------------------------------------------------- the format


def test_page_and_schema_say_the_same() -> None:
    assert tables() == (described("report"), described("comparison"))


def test_schema_describes_everything(tool: Tool) -> None:
    """What the command writes fits the schema, and all that the schema has is written by some report."""
    tool.file("kernel.mlc", KERNEL)
    tool("compile", "net.mlc", "-o", "net.o")
    tool("compile", "net.mlc", "-t", "cuda", "-o", "net.ptx")
    lines = [
        ("net.mlc", "--random", "--repeat", "2"), ("net.mlc", "-t", "cuda", "--random"), ("net.mlc", "-t", "c", "-O0"),
        ("net.mlc", "-t", "llvm"), ("kernel.mlc",), ("net.o",), ("net.ptx",), ("kernel.mlc", "net.mlc"),
        ("net.mlc", "net.mlc"), ("net.o", "net.ptx"),
    ]  # fmt: skip
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for line in lines:
        data = json.loads(tool("report", *line, "--json"))
        assert [*faults(data)] == []
        found["diff" in data] |= entries(data)
    assert found[False] == {*described("report")}
    assert found[True] == {*described("comparison")}


@pytest.mark.parametrize("seed", range(8))
def test_generated_modules_fit_the_schema(seed: int) -> None:
    module = graphs.module(seed)
    assert [*faults(collect(Request("net.mlc", module, CPU)))] == []


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    texts = []
    for seed, folder in ((1, tmp_path / "a"), (2, tmp_path / "b")):
        folder.mkdir()
        (folder / "net.mlc").write_text(NET)
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": str(seed),
            "TZ": f"UTC{seed}",
            "MLCC_CACHE": "0",
        }
        command = [sys.executable, "-m", "mlcc", "report", "net.mlc", "--json"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=120)
        texts.append(re.sub(r'"seconds": [\d.e-]+', "", done.stdout))
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]


# ---------------------------------------------------------------- passes and graphs


@pytest.mark.parametrize("target", [CPU, "cuda", "c"])
def test_stages_are_what_the_passes_give(target: str) -> None:
    data = report(NET, target)
    module = mlcc.parse(NET)
    names = data["pipeline"].split(",")
    assert [stage["pass"] for stage in data["stages"]] == ["source", *(name.partition("{")[0] for name in names)]
    for stage, name in zip(data["stages"], ["", *names], strict=True):
        module = mlcc.run_passes(module, name, target=target, builds=True) if name else module
        shown = {name: data["texts"][id] for name, id in stage["functions"].items()}
        assert shown == {name: function_text(name, func) for name, func in module.functions.items()}


def test_graph_has_operators_edges_and_places() -> None:
    data = report(NET)
    source = next(graph for graph in data["graphs"] if graph["stage"] == "source")
    nodes = {node["id"]: node for node in source["nodes"]}
    calls = [node["op"] for node in source["nodes"] if node["kind"] == "call"]
    assert calls == ["R.nn.conv2d", "R.nn.relu", "R.mean", "R.reshape", "R.strided_slice", "R.matmul", "R.nn.softmax"]
    named = {(nodes[a]["op"] or nodes[a]["name"], nodes[b]["op"] or nodes[b]["kind"]) for a, b in source["edges"]}
    chain = [*calls, "output"]
    assert named == {
        *zip(chain, chain[1:], strict=False), ("x", "R.nn.conv2d"), ("k", "R.nn.conv2d"), ("w", "R.matmul")
    }  # fmt: skip
    conv = next(node for node in source["nodes"] if node["op"] == "R.nn.conv2d")
    assert (conv["shape"], conv["dtype"], conv["bytes"]) == ("(2, 16, 6, 6)", "float32", 4 * 2 * 16 * 36)
    assert (conv["path"], conv["line"]) == ("layer1.conv", 5)
    assert len({node["id"] for graph in data["graphs"] for node in graph["nodes"]}) == sum(
        len(graph["nodes"]) for graph in data["graphs"]
    )


def test_tuples_show_the_shapes_of_their_fields() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor((4, 6), "float32")):
    with R.dataflow():
        p = R.split(x, 2, axis=1)
        q = R.split(y, 2, axis=1)
        a = R.exp(p[1])
        t = (a, R.astype(q[0], "int32"))
        R.output(t)
    return t
"""
    source = report(text)["graphs"][0]
    nodes = {node["name"]: node for node in source["nodes"] if node["kind"] == "call"}
    facts = {name: (node["shape"], node["dtype"], node["bytes"]) for name, node in nodes.items()}
    assert facts["p"] == ("[(n, 4), (n, 4)]", "float32", None)
    assert facts["q"] == ("[(4, 3), (4, 3)]", "float32", 4 * 24)
    (output,) = [node for node in source["nodes"] if node["kind"] == "output"]
    assert (output["shape"], output["dtype"]) == ("[(n, 4) float32, (4, 3) int32]", "")
    assert [node["op"] for node in nodes.values() if "field" in node["op"]] == ["field 1", "field 0"]


@pytest.mark.parametrize("target", [CPU, "cuda", "c"])
def test_kernels_share_the_nodes_out(target: str) -> None:
    """Every operator belongs to a kernel, and kernels that are called to an operator in the lines of their calls."""
    data = report(NET, target)
    source = next(graph for graph in data["graphs"] if graph["stage"] == "source")
    calls = {node["id"]: node for node in source["nodes"] if node["kind"] == "call"}
    assert {id for kernel in data["kernels"] for id in kernel["nodes"]} == {*calls}
    for kernel in data["kernels"]:
        assert {*kernel["lines"]} <= {calls[id]["line"] for id in kernel["nodes"]}
    by_op = {node["op"]: node["kernel"] for node in calls.values()}
    conv = next(kernel for kernel in data["kernels"] if kernel["name"] == by_op["R.nn.conv2d"])
    assert conv["flops"] - 2 * 2 * 16 * 36 * 27 in (0, 2 * 16 * 36)  # with the relu that is fused
    assert conv["bytes"] == 4 * (2 * 3 * 64 + 16 * 27 + 2 * 16 * 36)


SIZES = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        R.output(a)
    return a
"""


def test_kernels_with_versions_by_size_have_their_rules() -> None:
    """What `version-sizes` schedules is shown as it was before, with the rule of each version."""
    data = report(SIZES, NATIVE)
    (kernel,) = data["kernels"]
    assert kernel["rule"] == "matmul"
    assert re.fullmatch(r"\d versions, by the size `n` of a call", kernel["why"])
    assert [line.partition(":")[0] for line in kernel["choices"] if not line.startswith(" ")][0] == "n == 1"
    assert "size_0" not in data["texts"][kernel["tir"]] and "size_0" in data["texts"][kernel["scheduled"]]
    assert report(SIZES, NATIVE, sizes={"n": 3})["kernels"][0]["flops"] == 2 * 3 * 64 * 96


FUNCTIONS = """
@I.ir_module
class Net:
    @R.function(private=True)
    def half(x: R.Tensor((4, 16), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.nn.softmax(a)
            R.output(a, b)
        return (a, b)

    @R.function
    def main(x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 16), "float32")):
        y = Net.half(x)
        z = y[1]
        o = R.matmul(z, w)
        return o
"""


def test_kernels_have_no_calls_of_functions() -> None:
    """Operators of a function belong to its kernels, and its calls to none of the caller's."""
    data = report(FUNCTIONS)
    nodes = {node["id"]: node["op"] for graph in data["graphs"] for node in graph["nodes"]}
    owned = {kernel["name"]: {nodes[id] for id in kernel["nodes"]} for kernel in data["kernels"]}
    product = next(ops for ops in owned.values() if "R.matmul" in ops)
    assert product == {"R.matmul"}
    assert {"R.exp", "R.nn.softmax"} <= {op for ops in owned.values() for op in ops}


def test_kernels_with_bound_weights_keep_their_facts() -> None:
    """`pack-weights` replaces kernels by others of another name, which are scheduled and counted like those."""
    text = NET.replace(', w: R.Tensor((64, 10), "float32")', "").replace(
        "R.matmul(d, w)", f"R.matmul(d, R.const({np.arange(640).reshape(64, 10).tolist()}, 'float32'))"
    )
    profiled = CompiledKernels(NATIVE)
    data = report(text, NATIVE, observers=[profiled])
    (kernel,) = (k for k in data["kernels"] if "matmul" in k["name"])
    assert profiled.work(kernel["name"], {}) == (kernel["flops"], kernel["bytes"])
    assert profiled.rule(kernel["name"])[0] == kernel["rule"]
    names = {name for stage in data["stages"] if stage["pass"] == "auto-schedule" for name in stage["functions"]}
    assert kernel["name"] not in names
    assert kernel["flops"] == 2 * 2 * 64 * 10
    assert kernel["rule"] is not None
    assert None not in (kernel["tir"], kernel["scheduled"], kernel["script"])


# ---------------------------------------------------------------- code


@pytest.mark.parametrize(
    ("target", "sum_", "product", "store"),
    [
        (CPU, "vaddps", "vmulps", r"vmovups\s+%"), ("c", r"\+ 3", r"\* 5", r"\[.*\] = "),
        ("cuda{arch=sm_80}", r"add(\.rn)?\.f32", r"mul(\.rn)?\.f32", r"st\.global"),
    ],
)  # fmt: skip
def test_lines_of_code_are_those_of_statements(target: str, sum_: str, product: str, store: str) -> None:
    """Additions come from the lines of the lowered text and of the source that add, products from those that multiply,
    and stores from lines that store."""
    data = report(KERNEL, target)
    (kernel,) = data["kernels"]
    code = data["texts"][kernel["assembly"]].splitlines()
    loops = data["texts"][kernel["loops"]].splitlines()
    source = KERNEL.splitlines()
    table = {line: (there, origin) for line, there, origin in kernel["line_table"]}
    assert kernel["line_table"] == sorted(kernel["line_table"])
    for pattern, text in ((sum_, "+ T.float32(3)"), (product, "* T.float32(5)")):
        lines = [n for n, line in enumerate(code, 1) if re.search(pattern, line)]
        assert lines
        for there, origin in (table[n] for n in lines):
            assert re.search(re.escape(text[:-1]) + r"|Broadcast", loops[there - 1])
            assert [text in source[line - 1] for line in origin] == [True]
    stores = [n for n, line in enumerate(code, 1) if re.search(store, line) and n in table]
    assert stores
    assert all(re.search(r"\] = ", loops[table[n][0] - 1]) for n in stores)


OPERATORS = """
@R.function
def main(x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 16), "float32"), v: R.Tensor((16, 16), "float32")):
    with R.dataflow():
        y = R.matmul(x, w)
        z = R.nn.relu(y)
        a = R.exp(z)
        R.output(a)
    return a
"""


def test_lines_of_code_are_those_of_fused_operators() -> None:
    """A kernel of several operators says of each statement which operator it comes from."""
    data = report(OPERATORS)
    (kernel,) = data["kernels"]
    loops = data["texts"][kernel["loops"]].splitlines()
    source = OPERATORS.splitlines()
    origins = {loops[there - 1]: source[line - 1] for _, there, lines in kernel["line_table"] for line in lines}
    products = [line for loop, line in origins.items() if re.search(r"\] = .*\] \+ .*\* ", loop)]
    results = [line for loop, line in origins.items() if "T.exp(" in loop]
    assert products
    assert results
    assert all("R.matmul(" in line for line in products)
    assert all("R.exp(" in line for line in results)


AGAIN = """        p = R.matmul(a, v)
        q = R.nn.relu(p)
        r = R.exp(q)
        R.output(r)"""


@pytest.mark.parametrize("target", [CPU, "cuda", "c"])
def test_code_of_several_calls_has_the_lines_of_each(target: str) -> None:
    """Of a kernel that several calls share, each statement has the lines of its operator in all of those calls."""
    text = OPERATORS.replace("        R.output(a)", AGAIN).replace("return a", "return r")
    data = report(text, target)
    kernel = max(data["kernels"], key=lambda kernel: len(kernel["line_table"]))
    loops, source = data["texts"][kernel["loops"]].splitlines(), text.splitlines()
    for _, there, lines in kernel["line_table"]:
        operators = {re.search(r"R\.[\w.]+", source[line - 1])[0] for line in lines}  # type: ignore[index]
        assert len(lines) == kernel["calls"]
        assert len(operators) == 1
        if "T.exp(" in loops[there - 1]:
            assert operators == {"R.exp"}
    assert {tuple(lines) for *_, lines in kernel["line_table"]} >= {(5, 8), (7, 10)}


def test_calls_share_lines_operator_by_operator() -> None:
    """Of two calls of a kernel, one has an operator of another kernel between its own."""
    text = """
@R.function
def main(x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 16), "float32"), b: R.Tensor((16,), "float32")):
    with R.dataflow():
        y = R.matmul(x, w)
        s = R.exp(y)
        t = R.tanh(s)
        u = R.multiply(s, t)
        z = R.matmul(u, w)
        b2 = R.exp(b)
        s2 = R.exp(z)
        t2 = R.tanh(s2)
        u2 = R.multiply(s2, t2)
        R.output(u2, b2)
    return u2, b2
"""
    data = report(text)
    source = text.splitlines()
    shared = [kernel for kernel in data["kernels"] if kernel["calls"] == 2]
    assert any(kernel["line_table"] for kernel in shared)
    for kernel in shared:
        for *_, lines in kernel["line_table"]:
            assert len(lines) == 2
            assert len({source[line - 1].partition("R.")[2].partition("(")[0] for line in lines}) == 1


def test_code_is_that_of_the_artifact(tool: Tool) -> None:
    data = json.loads(tool("report", "net.mlc", "--json", "-t", CPU))
    tool("compile", "net.mlc", "-t", CPU, "-o", "net.o")
    manifest = json.loads(tool("inspect", "net.o", "--json"))
    assert data["sizes"]["code"] == manifest["code"]["bytes"]
    assert {k["name"]: k["code_bytes"] for k in data["kernels"]} == manifest["code"]["kernels"]
    assert sum(kernel["code_bytes"] for kernel in data["kernels"]) == data["sizes"]["kernels"]
    of_artifact = json.loads(tool("report", "net.o", "--json"))
    assert {k["name"]: k["code_bytes"] for k in of_artifact["kernels"]} == manifest["code"]["kernels"]
    assert of_artifact["sizes"]["code"] == data["sizes"]["code"]
    assert of_artifact["sizes"]["artifact"] == Path("net.o").stat().st_size


def test_versions_of_kernels_have_code_of_their_own() -> None:
    data = report(NET, "llvm")
    versions = [kernel for kernel in data["kernels"] if kernel["version_of"] is not None]
    assert {kernel["cpu"] for kernel in versions} == {"x86-64-v3", "x86-64-v4"}
    for kernel in data["kernels"]:
        assert kernel["assembly"] is not None
        assert kernel["line_table"]
    wide = [data["texts"][k["assembly"]] for k in versions if k["cpu"] == "x86-64-v4"]
    assert any("%zmm" in text for text in wide)
    assert not any("%ymm" in data["texts"][k["assembly"]] for k in data["kernels"] if k["version_of"] is None)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("seed", range(12))
def test_memory_plan_by_brute_force(seed: int) -> None:
    """Buffers that live at the same step do not overlap, and the peak is what a count of each step finds."""
    module = graphs.module(seed, graphs.Options(symbolic=False, branches=False))
    for plan in collect(Request("net.mlc", module, CPU))["memory"]:
        buffers = plan["buffers"]
        peak = 0
        for at in range(len(plan["steps"])):
            live = [buffer for buffer in buffers if buffer["first"] <= at <= buffer["last"]]
            used = [byte for b in live for byte in range(b["offset"], b["offset"] + b["bytes"])]
            assert len(used) == len({*used})
            assert max(used, default=-1) < plan["workspace"]
            peak = max(peak, len(used))
        assert plan["peak"] == peak
        assert all(0 <= b["first"] <= b["last"] < len(plan["steps"]) for b in buffers)


def test_sizes_of_symbols_make_memory_known() -> None:
    text = NET.replace("(2, 3, 8, 8)", '("n", 3, 8, 8)').replace(
        "R.reshape(R.mean(b, axis=[3]), (2, 96))", "R.reshape(R.mean(b, axis=[3]), (n, 96))"
    )
    text = text.replace("    with R.dataflow", "    n = T.int64()\n    with R.dataflow", 1)
    unknown = report(text)["memory"][0]
    known = report(text, sizes={"n": 4})["memory"][0]
    assert unknown["peak"] is None
    assert known["peak"] > 0
    assert known["workspace"] >= known["peak"]
    fixed = report(text.replace('"n"', "4").replace("(n, 96)", "(4, 96)").replace("    n = T.int64()\n", ""))["memory"][
        0
    ]
    assert known["peak"] == fixed["peak"]


# ---------------------------------------------------------------- two reports


def test_differences_of_graphs_and_kernels() -> None:
    old = report(NET)
    new = report(NET.replace("b = R.nn.relu(a)", "b = R.exp(R.nn.gelu(a))"))
    names = [{n["id"]: n["op"] for g in r["graphs"] for n in g["nodes"]} for r in (old, new)]
    diff = compare_reports(old, new)["diff"]
    assert [[names[0][a], names[1][b]] for a, b in diff["graph"]["changed"]] == [["R.nn.relu", "R.exp"]]
    assert [names[1][id] for id in diff["graph"]["added"]] == ["R.nn.gelu"]
    assert diff["graph"]["removed"] == []
    changes = {entry["name"]: entry["change"] for entry in diff["kernels"]}
    assert sorted(set(changes.values())) == ["changed", "same"]
    assert all(("conv" in name) == (change == "changed") for name, change in changes.items())


def test_a_report_does_not_differ_from_itself() -> None:
    data = report(NET)
    found = compare_reports(data, report(NET))["diff"]
    ids = [node["id"] for graph in data["graphs"] if graph["stage"] == "source" for node in graph["nodes"]]
    assert found["graph"] == {"same": [[id, id] for id in ids], "changed": [], "removed": [], "added": []}
    assert {entry["change"] for entry in found["kernels"]} == {"same"}
    assert found["manifest"] == []


# ---------------------------------------------------------------- measured times, and the command


def test_measured_times_add_up(tool: Tool) -> None:
    x = np.ones((2, 3, 8, 8), np.float32)
    tool.npz("x.npz", x=x, k=np.ones((16, 3, 3, 3), np.float32), w=np.ones((64, 10), np.float32))
    data = json.loads(tool("report", "net.mlc", "--in", "x.npz", "--json", "--repeat", "3"))
    assert data["profile"]["function"] == "main"
    total = sum(kernel["seconds"] for kernel in data["kernels"]) + data["profile"]["rest_seconds"]
    assert total == pytest.approx(data["profile"]["seconds"], rel=1e-6)
    sizes = {name: level["bytes"] for name, level in data["profile"]["machine"]["levels"].items()}
    assert sizes.pop("DRAM") is None  # as much as a call takes
    assert all(0 < size < 1 << 40 for size in sizes.values())
    for kernel in data["kernels"]:
        assert kernel["gbs"] == pytest.approx(kernel["bytes"] * kernel["measured_calls"] / kernel["seconds"] / 1e9)


@pytest.mark.parametrize("files", [("net.mlc",), ("net.o",), ("net.mlc", "kernel.mlc")])
def test_pages_are_written(tool: Tool, files: tuple[str, ...]) -> None:
    """The page has the data within; what it shows of them `test_page.py` judges in a browser."""
    tool.file("kernel.mlc", KERNEL)
    tool("compile", "net.mlc", "-o", "net.o")
    tool("report", *files, "-o", "page.html")
    text = Path("page.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert all(name in text for name in files)


def test_kernels_of_gpus_are_estimated(tool: Tool) -> None:
    data = json.loads(tool("report", "net.mlc", "-t", "cuda", "--random", "--json"))
    assert all(kernel["estimate"]["seconds"] > 0 and kernel["bound"] for kernel in data["kernels"])
    assert data["profile"] is None


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (("net.mlc", "-o", "link.json"), 1, "E0010"),
        (("net.mlc", "-o", "net.o"), 1, "E0012"),
        (("net.mlc", "-o", "net.html"), 1, "E0012"),
        (("missing.mlc",), 1, "E0001"),
        (("net.mlc", "net.o"), 2, "compile the text first"),
        (("net.o", "--random"), 2, "cannot be measured"),
        (("net.mlc", "net.mlc", "net.mlc"), 2, "one file or of two"),
    ],
)
def test_wrong_usage_and_outputs(tool: Tool, line: tuple[str, ...], code: int, message: str) -> None:
    tool.file("net.o", b"no artifact")
    os.link("net.mlc", "link.json")
    tool("report", *line, "--json", code=code)
    assert message in tool.err
    assert Path("net.mlc").read_text() == NET
    assert Path("net.o").read_bytes() == b"no artifact"
