"""What each campaign finds is reduced: a fault is planted, and the failure names a small program or file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import ForKind
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes.gpu.insert_barriers import InsertBarriers
from mlcc.passes.lowering.unroll import UnrollLoops
from mlcc.passes.schedule.primitives import loop_kinds
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.tree import Rebuild
from tests.fuzz import emulated, gpu_kernels, gpu_schedules, model_files, reduction, schedules, worker
from tests.fuzz.test_model_files import write_seeds
from tests.fuzz.test_tiles import generated
from tests.interop.schedule.cases import Step

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reductions write, which have time enough."""
    monkeypatch.setenv("MLCC_FUZZ_REDUCE", "30")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def written(text: str, folder: Path, lines: int = 30) -> str:
    """The text of the program that a failure names."""
    found = re.search(r"(\S+/(?:mlcc-reduced|found)-\S+\.mlc)", text)
    assert found is not None, text
    path = Path(found[1])
    assert path.parent == folder
    program = path.read_text()
    mlcc.parse(program)
    assert len(program.splitlines()) < lines
    return program


# sums of floats are compiled as differences; this changes a table of the process for good
WRONG_SUMS = """
from mlcc.ir import tir
from mlcc.targets.llvm.codegen import arith, emitter

emitter._EXPRESSIONS[tir.Add] = lambda e, n: arith.sub(e, n) if n.dtype.is_float else arith.add(e, n)
"""
CAMPAIGNS = {
    "optimised": """
from tests.fuzz.optimised import reduce_case
print(reduce_case("product 100004 native threads=1: run 0: 1.0 for 2.0"))
""",
    "lanes": """
from tests.fuzz.test_lanes import reduce_case
print(reduce_case(1, "x86-64"))
""",
    "calls": """
from tests.fuzz.test_op_calls import reduce_call
from tests.generate import op_calls
from tests.ops.coverage import judge
print(*(reduce_call(found) for found in judge([op_calls.call("add", "float32", 3)]) if found.wrong))
""",
    "long sums": """
from tests.fuzz.test_op_calls import reduce_long
from tests.generate import long_axes
print(reduce_long(next(c for c in long_axes.calls("float16", 5) if c.case.name == "sum"), "llvm{cpu=native}", 0))
""",
}


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_wrong_machine_code(campaign: str, folder: Path) -> None:
    command = [sys.executable, "-c", WRONG_SUMS + CAMPAIGNS[campaign]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    text = written(done.stdout, folder)
    assert re.match(r"# (mlcc bisect|python -m tests\.fuzz\.reduction) ", text)
    assert re.search(r"T\.Add|R\.add|R\.sum| \+ ", text)


def test_lost_barriers_of_generated_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InsertBarriers, "lower", lambda self, func, functions, options: func)
    monkeypatch.setenv("MLCC_FUZZ_REDUCE", "10")
    found: list[str] = []
    emulated.campaign(60.0, 1, ["product"], 4, found.append)
    text = written("\n".join(found), folder)
    assert re.match(r"# mlcc bisect \S+ -t 'cuda\{arch=sm_\w+\}' -O \d\n# E074", text)


@pytest.fixture
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sch.unroll` forgets the last iteration of a loop."""

    def wrong(state: State, loop: LoopRef, kind: ForKind, thread: str | None = None) -> None:
        extent = loop.loop.extent
        if kind is ForKind.UNROLLED and isinstance(extent, tir.IntImm) and extent.value > 1:
            extent = replace(extent, value=extent.value - 1)
        edit = Rebuild(loop.tree)
        edit.put(loop.loop, replace(loop.loop, kind=kind, thread=thread, extent=extent))
        state.update(loop.func_name, edit)

    monkeypatch.setattr(loop_kinds, "_set_kind", wrong)


def steps(program: Path) -> list[str]:
    lines = program.with_suffix(".mls").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.usefixtures("short_loops")
def test_a_wrong_primitive(folder: Path) -> None:
    counts = schedules.campaign(60.0, "3", folder, "unroll", 4)
    assert counts.findings
    text = written(counts.findings[0], folder)
    (path,) = (p for p in folder.glob("found-*.mlc") if str(p) in counts.findings[0])
    (step,) = steps(path)
    assert step.startswith("sch.unroll(")
    assert text.count(" for ") <= 1
    said = path.with_suffix(".mls").read_text()
    assert f"# python -m tests.fuzz.reduction tests.fuzz.schedules:check_program {path} " in said
    number = re.search(r":check_program \S+ (\d+)", said)
    assert number is not None
    assert reduction.main(["tests.fuzz.schedules:check_program", str(path), number[1]]) == 1


@pytest.mark.usefixtures("short_loops")
def test_a_case_that_ended_its_process(folder: Path) -> None:
    """Files are left behind, with steps that matter and others."""
    program = SUM.format(statement="B[vi] = A[vi] + T.float32(1)")
    taken = [Step("annotate", 'sch.get_block("B"), "a", 1'), Step("unroll", 'sch.get_loops("B")[0]')]
    schedules.write(folder, "case", schedules.Case(program, taken, "1/17"))
    text = reduction.note(*schedules.left_behind(folder))
    assert "T.float32" not in written(text, folder)
    assert steps(Path(text.split(": ")[1])) == ['sch.unroll(sch.get_loops("B")[0])']


def test_a_case_for_a_gpu_that_ended_its_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(InsertBarriers, "lower", lower)
    found: list[str] = []
    gpu_schedules.campaign(60.0, 1, folder, ["guided"], 1, found.append)
    assert "ended with -9" in found[0]
    written(found[0], folder)
    assert steps(Path(found[0].splitlines()[-1].split(": ")[1])) == []


def test_a_wrong_schedule_for_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InsertBarriers, "lower", lambda self, func, functions, options: func)
    monkeypatch.setenv("MLCC_FUZZ_REDUCE", "10")
    for number in range(1, 60):
        said = gpu_schedules.play("guided", number, folder, Counter())
        if said:
            break
    assert "threads do wrong" in said
    written(said, folder)


def test_faults_of_kernels_that_are_not_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator finds no races."""
    right = gpu_kernels.run

    def wrong(kernel: gpu_kernels.Kernel, given: np.ndarray, barriers: bool = True) -> tuple[np.ndarray, set[str]]:
        result, codes = right(kernel, given, barriers)
        return result, codes - {"E0741", "E0742"}

    monkeypatch.setattr(gpu_kernels, "run", wrong)
    for seed in range(20):
        found = gpu_kernels.check(str(seed), Counter())
        if found:
            break
    text = written(found[0], folder)
    assert len(re.findall(r"\b[SQ]\[", text)) <= 4


SUM = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            {statement}
"""


def test_programs_that_lowering_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored into `B` is 7."""

    def lower(self: object, func: tir.PrimFunc, *given: object) -> tir.PrimFunc:
        return rewrite_bottom_up(func, wrong)  # type: ignore[no-any-return]

    def wrong(node: Any) -> Any:
        is_store = isinstance(node, tir.BufferStore) and node.buffer.name == "B"
        return replace(node, value=tir.IntImm(node.value.dtype, 7)) if is_store else node

    monkeypatch.setattr(UnrollLoops, "lower", lower)
    with pytest.raises(AssertionError) as failure:
        for seed in range(60):
            generated(seed)
    text = written(failure.value.__notes__[0], folder)
    assert text.count("for ") <= 1


def test_passes_that_differ_from_tvms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    from mlcc.passes.graph.dead_code import DeadCode
    from tests.interop import test_passes

    monkeypatch.setattr(DeadCode, "run", lambda self, module, ctx: module)
    with pytest.raises(AssertionError) as failure:
        for seed in range(20):
            test_passes.compare(test_passes.Program(seed, length=8).text(), "dead-code")
    text = written(failure.value.__notes__[0], folder)
    assert len(re.findall(r"= R\.", text)) <= 2


def test_graphs_that_differ_from_tvms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter subtracts where it should add."""
    pytest.importorskip("tvm")
    from mlcc.interp.graph import GraphInterpreter
    from tests.interop import test_numbers

    right = GraphInterpreter._operator

    def wrong(self: Any, name: str, *given: Any) -> Any:
        return right(self, "subtract" if name == "add" else name, *given)

    monkeypatch.setattr(GraphInterpreter, "_operator", wrong)
    with pytest.raises(AssertionError) as failure:
        for batch in range(6):
            test_numbers.test_generated_graphs_match_tvms_code(batch, False)
    text = written(failure.value.__notes__[0], folder)
    assert len(re.findall(r"= R\.", text)) <= 2


def test_functions_that_differ_from_tvms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter writes one too many."""
    pytest.importorskip("tvm")
    from tests.interop import test_numbers

    right = test_numbers.run_prim_func

    def wrong(func: tir.PrimFunc, args: list[Any]) -> None:
        before = [np.copy(a) for a in args]
        right(func, args)
        for old, new in zip(before, args, strict=True):
            if isinstance(new, np.ndarray) and new.dtype != bool and not np.array_equal(old, new):
                new += 1

    monkeypatch.setattr(test_numbers, "run_prim_func", wrong)
    with pytest.raises(AssertionError) as failure:
        test_numbers.test_generated_functions_match_tvms_code(0, False)
    text = written(failure.value.__notes__[0], folder)
    assert text.count("for ") <= 1


def test_texts_that_tvm_reads_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    from tests.interop import harness, test_cycles

    right = harness.from_tvm

    def wrong(module: Any) -> Any:
        return mlcc.parse(right(module).script().replace("R.add(", "R.multiply("))

    monkeypatch.setattr(harness, "from_tvm", wrong)
    with pytest.raises(AssertionError) as failure:
        for batch in range(4):
            test_cycles.test_generated_graphs_come_back_equal(batch, False)
    assert re.findall(r"= (R\.\w+)\(", written(failure.value.__notes__[0], folder)) == ["R.add"]


def test_texts_that_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.grammar import parser

    right = parser.parse

    def parse(text: str, *given: Any, **named: Any) -> Any:
        if "annotate" in str(text):
            raise RuntimeError("planted")
        return right(text, *given, **named)

    monkeypatch.setattr(parser, "parse", parse)
    path = folder / "case.mlc"
    path.write_text(SUM.format(statement="T.annotate(B[vi])\n            B[vi] = A[vi]"))
    (folder / "argv").write_text(f"check {path}")
    said = worker.reduce_left(folder)
    assert said == f"a small file: mlcc check {folder}/reduced-case.mlc"
    assert (folder / "reduced-case.mlc").read_text() == "annotate"


def crash_if(word: bytes, content: bytes) -> None:
    if word in content:
        raise RuntimeError("planted")


def test_onnx_files_that_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    from mlcc.frontend.onnx.translate import OnnxTranslator
    from tests.frontend import onnx_models

    right = OnnxTranslator._node

    def node(self: Any, given: Any, span: Any) -> None:
        crash_if(b"Softmax", given.title.encode())
        right(self, given, span)

    monkeypatch.setattr(OnnxTranslator, "_node", node)
    nodes = [
        onnx_models.node("Add", ["x", "x"], ["a"]), onnx_models.node("MatMul", ["a", "w"], ["m"]),
        onnx_models.node("Softmax", ["m"], ["s"]), onnx_models.node("Relu", ["s"], ["y"]),
    ]  # fmt: skip
    weights = {"w": np.ones((3, 4), "float32")}
    made = onnx_models.model(nodes, {"x": ("float32", [2, 3])}, {"y": ("float32", [2, 4])}, weights)
    onnx.save(made, folder / "case.onnx")
    found = onnx.load_model(str(reduced_model(folder, folder / "case.onnx")))
    assert [one.op_type for one in found.graph.node] == ["Softmax"]
    assert not found.graph.initializer


def test_pt2_files_that_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from mlcc.frontend.aten import pt2

    right = pt2.read_pt2

    def read(path: str, *given: Any) -> Any:
        with zipfile.ZipFile(path) as archive:
            crash_if(b"aten.relu", b"".join(archive.read(name) for name in archive.namelist()))
        return right(path, *given)

    monkeypatch.setattr(pt2, "read_pt2", read)
    write_seeds(folder)
    small = reduced_model(folder, folder / "seed.pt2")
    with zipfile.ZipFile(small) as archive:
        (name,) = archive.namelist()
        assert b"aten.relu" in archive.read(name)
        assert len(archive.read(name)) < 200


def test_weights_that_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc import array_files

    right = array_files.ArrayFile.__init__

    def read(self: Any, path: str, *given: Any) -> None:
        crash_if(b'"empty"', Path(path).read_bytes())
        right(self, path, *given)

    monkeypatch.setattr(array_files.ArrayFile, "__init__", read)
    write_seeds(folder)
    command = ("run", "net.mlc", "--in", "x.npz", "--params")
    small = reduced_model(folder, folder / "seed_kinds.safetensors", command)
    assert small.read_bytes() == b'"empty"'


def reduced_model(folder: Path, source: Path, words: Sequence[str] = ("import",)) -> Path:
    """The reduced file of a model on which a command ends with 70."""
    path = source.rename(folder / f"case{source.suffix}")
    argv = [str(folder / word) if "." in word else word for word in words]
    (folder / "argv").write_text("\n".join([*argv, str(path)]))
    said = model_files.reduce_left(folder)
    assert said == f"a small file: mlcc {' '.join(argv)} {folder}/reduced-case{source.suffix}"
    return folder / f"reduced-case{source.suffix}"
