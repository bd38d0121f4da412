"""`mlcc bisect`: planted faults are found and named, each by one command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.bisect.changes import Changes
from mlcc.bisect.search import minimal_subset
from mlcc.driver import run_passes
from mlcc.errors import MlccError
from mlcc.ir.equal import structural_equal
from mlcc.verify import check
from tests.bisect.planted import (
    CAPPED_RELU,
    LOST_BARRIER,
    PARALLEL_SUM,
    PERCEPTRON,
    WRONG_CODE,
    WRONG_PASS,
    residual_network,
)
from tests.cli.test_cli import Tool
from tests.generate import graphs

REDUCED = ("--reduce", "small.mlc", "--time", "60")
LEVEL = "canonicalize,lower-to-tir,annotate-op-pattern,fuse,fuse-tir"


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", residual_network())
    tool.file("perceptron.mlc", PERCEPTRON)
    return tool


def reduced(path: str, outcome: str) -> str:
    """The text of a reduced program; it has fewer than 20 lines, and says how to run it and what fails."""
    text = Path(path).read_text()
    lines = text.splitlines()
    assert len(lines) < 20
    assert lines[0].startswith(f"# mlcc bisect {path} ")
    assert lines[1].startswith(f"# {outcome}")
    return text


def documented() -> tuple[str, list[str], str]:
    """The example of docs/debugging.md: the command, its report without the numbers, and the reduced program."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "debugging.md").read_text()
    section = page.split("## The pass that is wrong")[1].split("\n## ")[0]
    report, program = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    command, *lines = report.removeprefix("$ ").splitlines()
    return command, [line for line in lines if not line.startswith("results: ")], program


def operators(text: str) -> list[str]:
    return re.findall(r"= (R\.[\w.]+)\(", text)


def in_process(*argv: str, code: int) -> str:
    """Standard output of `mlcc` in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "mlcc", *argv], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def follow(mlcc: Tool, text: str) -> str:
    """Run the command that a report ends with; its messages."""
    words = shlex.split(re.search(r"^to see it: mlcc (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]
    mlcc(*words)
    return mlcc.err


def test_a_wrong_pass_is_named_with_the_change_and_the_kernel(mlcc: Tool) -> None:
    mlcc.file("mine.py", WRONG_PASS)
    passes = f"{LEVEL},cheap-erf,auto-schedule"
    argv = ("net.mlc", "--load", "mine.py", "-p", passes, "--reduce", "small.mlc")
    text = mlcc("bisect", *argv, code=3)
    assert text.startswith("results: ")
    assert "\npass: `cheap-erf`, number 6 of " in text
    assert "\nstep: 1 of its 1 changes" in text
    assert re.search(r"\nkernel: `\w*gelu\w*`\n", text)
    (old, new) = (line for line in text.splitlines() if re.match(r" +[-+] ", line))
    assert "T.erf(" in old
    assert "T.tanh(" in new
    err = follow(mlcc, text)
    assert "--stop-after 6" in text
    assert "# --- changed by cheap-erf" in err
    assert "# --- changed by fuse" not in err
    small = reduced("small.mlc", "differs")
    command, report, program = documented()
    assert shlex.split(command) == ["mlcc", "bisect", *argv]
    assert report == [line for line in text.splitlines() if not line.startswith(("results: ", "to see it: "))]
    assert program == small
    assert "# PASSES: lower-to-tir,cheap-erf\n" in small
    assert operators(small) == ["R.nn.gelu"]
    assert "pass: `cheap-erf`, number 2 of" in mlcc(*shlex.split(small.splitlines()[0])[2:], code=3)


def test_wrong_machine_code_is_named_by_its_kernel(mlcc: Tool) -> None:
    mlcc.file("mine.py", WRONG_CODE)  # which changes a table of this process for good
    text = in_process("bisect", "net.mlc", "--load", "mine.py", "--reduce", "small.mlc", code=3)
    assert text.startswith("results of the machine code: ")
    assert "\npass: none: all " in text
    assert re.search(r"\nkernel: `\w*relu\w*`\n", text)
    small = reduced("small.mlc", "differs")
    assert operators(small) == ["R.nn.relu"]
    in_process(*shlex.split(small.splitlines()[0])[2:], code=3)


def test_a_race_of_threads_is_named_by_its_statement(mlcc: Tool) -> None:
    mlcc.file("mine.py", LOST_BARRIER)
    passes = mlcc("passes", "perceptron.mlc", "-t", "cuda", "--print-pipeline").strip()
    passes = passes.replace(",insert-barriers,", ",insert-barriers,lose-barriers,")
    text = mlcc("bisect", "perceptron.mlc", "-t", "cuda", "--load", "mine.py", "-p", passes, *REDUCED, code=3)
    assert re.match(r"race: E074[12]: ", text)
    assert "\npass: `lose-barriers`, number " in text
    assert "\nkernel: `" in text
    assert re.search(r'^ +- +T\.tvm_storage_sync\("shared"', text, re.MULTILINE)
    small = reduced("small.mlc", "E074")
    assert operators(small) == ["R.matmul"]
    assert "lose-barriers\n" in small


def test_a_race_of_parallel_iterations_is_found(mlcc: Tool) -> None:
    mlcc.file("mine.py", PARALLEL_SUM)
    text = mlcc("bisect", "net.mlc", "--load", "mine.py", "-p", "O2,lower,parallel-sum", *REDUCED, code=3)
    assert text.startswith("race: E0873: ")
    assert "\npass: `parallel-sum`, number " in text
    assert "conv2d" in text
    assert re.search(r"^ +\+ .*T\.parallel", text, re.MULTILINE)
    assert operators(reduced("small.mlc", "E0873")) == ["R.nn.conv2d"]


def test_a_pass_that_crashes_is_named(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.dead_code import DeadCode

    def crash(self: object, module: object, ctx: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(DeadCode, "run", crash)
    text = mlcc("bisect", "perceptron.mlc", code=3)
    assert text.startswith("crash: pass `dead-code` failed: RuntimeError: planted\n")
    assert "\npass: `dead-code`, number " in text


SUM = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 32):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
SCRIPT = """
i, k = sch.get_loops("B")
outer, inner = sch.split(i, [None, 4])
sch.unroll(inner)
sch.shorten(k)
sch.parallel(outer)
"""


def test_a_wrong_schedule_primitive_is_named_by_its_statement(mlcc: Tool) -> None:
    from mlcc.ir import tir
    from mlcc.ir.node import replace
    from mlcc.passes.schedule import registry
    from mlcc.passes.schedule.state import LoopRef, State
    from mlcc.passes.schedule.tree import Rebuild

    def shorten(state: State, loop: LoopRef) -> None:
        edit = Rebuild(loop.tree)
        edit.put(loop.loop, replace(loop.loop, extent=tir.IntImm(loop.loop.extent.dtype, 31)))
        state.update(loop.func_name, edit)

    mlcc.file("sum.mlc", SUM)
    mlcc.file("sum.mls", SCRIPT)
    registry.primitive()(shorten)
    try:
        text = mlcc("bisect", "sum.mlc", "--script", "sum.mls", "--reduce", "small.mlc", code=3)
        command = reduced("small.mlc", "differs").splitlines()[0]
        again = mlcc(*shlex.split(command)[2:], code=3)
    finally:
        del registry._DEFINED["shorten"], registry._WHERE["shorten"]
    assert '\npass: `schedule{script="sum.mls"}`, number 1 of ' in text or "\npass: `schedule{script=sum.mls}`" in text
    assert re.search(r"\nstep: statement \d of \d of the schedule: sch\.shorten\(k\)\n", text)
    assert "\nkernel: `main`\n" in text
    assert " --script small.mls " in command
    steps = [line for line in Path("small.mls").read_text().splitlines() if line]
    assert len(steps) == 2
    assert steps[0].startswith("i, k = sch.get_loops(")
    assert steps[1] == "sch.shorten(k)"
    assert re.search(r"\nstep: statement 2 of 2 of the schedule: sch\.shorten\(k\)\n", again)
    mlcc("bisect", "sum.mlc", "--script", "sum.mls", "--reduce", "small.mlc", code=1)
    assert "error[E0013]: --reduce small.mlc writes small.mls, too, which exists" in mlcc.err
    mlcc("bisect", "sum.mlc", "--script", "sum.mls", "--reduce", "-", code=1)
    assert "E0012" in mlcc.err


LARGE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8,), "float32"), v: R.Tensor(("n", 8), "float32")):
        with R.dataflow():
            a = R.tanh(R.add(v, w))
            b = R.nn.relu(R.multiply(x, w))
            c = R.add(a, b)
            R.output(c)
        return c
"""


def test_a_failure_that_needs_the_given_arrays_is_reduced_with_them(mlcc: Tool) -> None:
    mlcc.file("large.mlc", LARGE)
    mlcc.file("mine.py", CAPPED_RELU)
    ones = np.ones((6, 8), np.float32)
    np.savez("in.npz", x=50 * ones, w=ones[0], v=ones)
    argv = ("bisect", "large.mlc", "--load", "mine.py", "-p", "lower-to-tir,cap-relu")
    mlcc(*argv, "--size", "n=6", "--reduce", "small.mlc")  # random arrays agree
    assert not Path("small.mlc").exists()
    assert "pass: `cap-relu`" in mlcc(*argv, "--in", "in.npz", "--reduce", "small.mlc", code=3)
    assert "random arrays do not show it: those of --in stay" in mlcc.err
    assert "without the arrays of --in for `v`: " in mlcc.err
    small = reduced("small.mlc", "differs")
    assert operators(small) == ["R.multiply", "R.nn.relu"]
    with np.load("small.in.npz") as arrays:
        assert set(arrays) == {"x", "w"}
        assert np.array_equal(arrays["x"], 50 * ones)
    command = shlex.split(small.splitlines()[0])[2:]
    assert command[:3] == ["bisect", "small.mlc", "--in"]
    assert "pass: `cap-relu`" in mlcc(*command, code=3)
    mlcc(*argv, "--in", "in.npz", "--reduce", "-", code=1)
    assert "error[E0518]: nothing fails on random arrays\n  help: name a file for --reduce" in mlcc.err
    mlcc(*argv, "--in", "in.npz", "--reduce", "small.mlc", code=1)
    assert "error[E0013]: --reduce small.mlc writes small.in.npz, too, which exists" in mlcc.err


def test_arrays_of_an_earlier_reduction_do_not_stay(mlcc: Tool) -> None:
    """Those beside the program are the ones that it fails with: none, if random arrays do."""
    mlcc.file("large.mlc", LARGE)
    mlcc.file("mine.py", CAPPED_RELU.replace("6.0", "0.25"))
    ones = np.ones((6, 8), np.float32)
    np.savez("in.npz", x=50 * ones, w=ones[0], v=ones)
    Path("small.in.npz").write_bytes(Path("in.npz").read_bytes())
    argv = ("bisect", "large.mlc", "--load", "mine.py", "-p", "lower-to-tir,cap-relu", "--in", "in.npz")
    mlcc(*argv, "--reduce", "small.mlc", "--force", code=3)
    assert Path("small.mlc").exists()
    assert not Path("small.in.npz").exists()


def test_a_race_of_the_program_itself_is_found(mlcc: Tool) -> None:
    mlcc.file(
        "sum.mlc", SUM.replace("for i, k in T.grid(16, 32):", "for i in range(16):\n      for k in T.parallel(32):")
    )
    text = mlcc("bisect", "sum.mlc", code=3)
    assert text.startswith("race: E0873: ")
    assert "\npass: none: the program itself" in text


def test_nothing_is_found_where_nothing_is_wrong(mlcc: Tool) -> None:
    assert "agree with the interpreter" in mlcc("bisect", "perceptron.mlc")
    assert "emulated kernels agree" in mlcc("bisect", "perceptron.mlc", "-t", "cuda")
    mlcc("bisect", "perceptron.mlc", "--func", "other", code=1)
    assert "E0801" in mlcc.err


def test_arrays_and_sizes_that_do_not_fit_are_refused(mlcc: Tool) -> None:
    def arrays(**given: tuple[int, ...]) -> str:
        np.savez("in.npz", **{name: np.zeros(shape, np.float32) for name, shape in given.items()})
        return "in.npz"

    mlcc("bisect", "perceptron.mlc", "--in", arrays(x=(64, 9)), code=1)
    assert "E0805" in mlcc.err
    mlcc("bisect", "perceptron.mlc", "--in", arrays(y=(64, 64)), code=1)
    assert "error[E0004]: `main` has no parameter `y`" in mlcc.err
    mlcc("bisect", "perceptron.mlc", "--size", "n=3", code=1)
    assert "error[E0017]: no shape of `main` has `n`\n  help: its shapes have no symbols" in mlcc.err


@pytest.mark.parametrize("target", ["llvm{cpu=native}", "cuda{arch=sm_80}"])
def test_passes_after_which_there_is_no_code_are_refused(mlcc: Tool, target: str) -> None:
    mlcc("bisect", "perceptron.mlc", "-t", target, "-p", "canonicalize,fuse", code=1)
    assert "perceptron.mlc:10:" in mlcc.err
    assert "error[E0509]: `R.matmul` cannot be lowered" in mlcc.err
    assert "run `lower-to-tir` first" in mlcc.err


def test_a_program_that_is_wrong_before_the_first_pass_is_refused(mlcc: Tool) -> None:
    mlcc.file("sum.mlc", SUM.replace("            with T.init():\n                B[vi] = T.float32(0)\n", "").replace(
        "B[vi] = B[vi]", "C = T.alloc_buffer((16,))\n            B[vi] = C[vi]"))  # fmt: skip
    mlcc("bisect", "sum.mlc", code=1)
    assert "error[E0871]: `C` is read where it was never written" in mlcc.err


def test_the_passes_of_a_text_are_taken_from_standard_input_too(mlcc: Tool) -> None:
    text = f"# PASSES: O1,lower\n{PERCEPTRON}"
    mlcc.file("asks.mlc", text)
    expected = mlcc("bisect", "asks.mlc").removeprefix("asks.mlc")
    assert expected != mlcc("bisect", "perceptron.mlc").removeprefix("perceptron.mlc")
    command = [sys.executable, "-m", "mlcc", "bisect", "-"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True)
    assert done.stdout.removeprefix("-") == expected


def test_the_files_of_a_texts_passes_lie_beside_it(mlcc: Tool) -> None:
    os.mkdir("apart")
    mlcc.file("apart/tiled.mls", 'sch.split(sch.get_loops("B")[0], [None, 4])\n')
    mlcc.file("apart/sum.mlc", f"# PASSES: schedule{{script=tiled.mls}},lower\n{SUM}")
    assert "agree with the interpreter" in mlcc("bisect", "apart/sum.mlc")
    mlcc.file("apart/out.mlc", f"# PASSES: schedule{{script=../net.mlc}},lower\n{SUM}")
    mlcc("bisect", "apart/out.mlc", code=1)
    assert "E0510" in mlcc.err


@given(items=st.integers(1, 60), needed=st.sets(st.integers(0, 59), min_size=1, max_size=4))
def test_a_minimal_subset_is_what_is_needed(items: int, needed: set[int]) -> None:
    needed = {n % items for n in needed}
    assert set(minimal_subset(range(items), lambda some: needed <= set(some))) == needed


@given(seed=st.integers(0, 1 << 30), numbers=st.sets(st.integers(0, 30)))
def test_undone_changes_lead_from_one_module_to_the_other(seed: int, numbers: set[int]) -> None:
    before = graphs.module(seed)
    for passes in ("canonicalize", "lower-to-tir", "lower-to-tir,annotate-op-pattern,fuse"):
        after = run_passes(before, passes)
        changes = Changes(before, after)
        assert structural_equal(changes.without(()), after)
        assert structural_equal(changes.without(changes.all), before)
        some = [c for i, c in enumerate(changes.all) if i in numbers]
        try:
            check(changes.without(some))
        except MlccError:
            continue  # changes may need one another
        assert not some or not structural_equal(changes.without(some), after)
