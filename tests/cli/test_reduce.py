"""`mlcc reduce`: planted failures become small programs that fail in the same way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlcc.grammar.parser import parse
from mlcc.ir.equal import structural_equal
from mlcc.reduce.outcomes import TIMEOUT, run_apart
from tests.cli.test_cli import Tool

NET = """
@I.ir_module
class M:
    @T.prim_func
    def mm(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for i, j, k in T.grid(16, 16, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    @R.function
    def main(x: R.Tensor((8, 16), "float16"), w: R.Tensor((16, 16), "float32")):
        cls = M
        with R.dataflow():
            wide = R.astype(x, "float32")
            a = R.nn.relu(wide)
            b = R.call_tir(cls.mm, (w, w), out_sinfo=R.Tensor((16, 16), "float32"))
            c = R.matmul(a, b)
            d = R.nn.softmax(c)
            e = R.tanh(d)
            f = R.reshape(e, (128,))
            g = R.concat((f, f), axis=0)
            R.output(e, g)
        return (e, g)
"""
KERNEL = """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64, 32), "float32")):
    M = T.alloc_buffer((64,), "float32")
    S = T.alloc_buffer((64,), "float32")
    for i, k in T.grid(64, 32):
        with T.block("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.float32(-1e30)
            M[vi] = T.max(M[vi], A[vi, vk] * B[vi])
    for i, k in T.grid(64, 32):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + T.exp(A[vi, vk] * B[vi] - M[vi])
    for i, k in T.grid(64, 32):
        with T.block("div"):
            vi, vk = T.axis.remap("SS", [i, k])
            C[vi, vk] = T.max(T.exp(A[vi, vk] * B[vi] - M[vi]) / S[vi], T.float32(0.01)) + T.float32(1)
"""
PASSES = '''
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.passes import Pass


@dataclass(frozen=True)
class Failing(Pass):
    """Fail at a call of tanh."""

    name: ClassVar[str] = "failing"

    def run(self, module, ctx):
        for func in module.functions.values():
            assert not any(isinstance(n, relax.Call) and n.op == tir.Op("relax.tanh") for n in walk(func))
        return module


@dataclass(frozen=True)
class Wrong(Pass):
    """Turn the greater of two floats into the smaller one."""

    name: ClassVar[str] = "wrong"

    def run(self, module, ctx):
        def wrong(node):
            return tir.Min(node.dtype, node.lhs, node.rhs) if isinstance(node, tir.Max) else node

        kernels = {n: rewrite_bottom_up(f, wrong) for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
        return IRModule({**module.functions, **kernels}, module.attrs)
'''


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", NET)
    tool.file("kernel.mlc", KERNEL)
    tool.file("mine.py", PASSES)
    return tool


def statements(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line and not line.startswith("#")]


def test_a_pass_that_fails_is_left_with_the_call_at_which_it_fails(mlcc: Tool) -> None:
    text = mlcc("reduce", "net.mlc", "--load", "mine.py", "-p", "canonicalize,fuse,failing,dead-code")
    assert text.startswith("# PASSES: failing\n# E0553\n")
    lines = statements(text)
    assert len(lines) <= 8
    assert sum("= R." in line for line in lines) == 1
    assert any("R.tanh(" in line for line in lines)
    Path("small.mlc").write_text(text)
    mlcc("passes", "small.mlc", "--load", "mine.py", code=1)  # finds its passes in the text
    assert "E0553" in mlcc.err


@pytest.mark.parametrize("file", ["net.mlc", "kernel.mlc"])
def test_a_pass_that_changes_results_is_left_with_one_operation(mlcc: Tool, file: str) -> None:
    pipeline = "canonicalize,lower-to-tir,wrong" if file == "net.mlc" else "wrong"
    text = mlcc("reduce", file, "--load", "mine.py", "-p", pipeline, "--keep", "differs")
    lines = statements(text)
    assert len(lines) <= 8
    assert "wrong" in text.splitlines()[0]
    assert text.splitlines()[1] == "# differs"
    assert any("relu" in line or "T.Max" in line or "softmax" in line for line in lines)


def test_a_crash_of_mlcc_keeps_its_place(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.canonicalize import Canonicalize

    def crash(self: object, module: object, ctx: object) -> None:
        if "softmax" in str(module):
            raise RuntimeError("planted")
        raise ValueError("another one")

    monkeypatch.setattr(Canonicalize, "run", crash)
    text = mlcc("reduce", "net.mlc", "--keep", "crash", "-p", "dead-code,canonicalize")
    assert text.startswith("# PASSES: canonicalize\n# crash: RuntimeError in ")
    assert "softmax" in text
    assert "tanh" not in text


def test_a_file_that_mlcc_writes_when_it_fails_is_reduced(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.canonicalize import Canonicalize

    def crash(self: object, module: object, ctx: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Canonicalize, "run", crash)
    mlcc("passes", "net.mlc", "-p", "fuse,canonicalize,dead-code", code=70)
    command = mlcc.err.splitlines()[-1].removeprefix("For a small program that shows it: ").split()
    text = mlcc(*command[1:])
    assert text.startswith("# PASSES: canonicalize\n# crash: RuntimeError in ")
    assert len(statements(text)) <= 8
    Path(command[2]).unlink()


def test_a_schedule_script_is_reduced_with_its_function(mlcc: Tool) -> None:
    script = """
i, k = sch.get_loops("sum")
i0, i1 = sch.split(i, [None, 4])
sch.reorder(k, i1)
j, l = sch.get_loops("max")
sch.parallel(j)
a, b = sch.get_loops("div")
sch.vectorize(b)
sch.parallel(k)
"""
    mlcc.file("wrong.mls", script)
    text = mlcc("reduce", "kernel.mlc", "--script", "wrong.mls", "--script-output", "small.mls")
    code = text.splitlines()[0].removeprefix("# ")
    assert Path("small.mls").read_text().split("\n") == ['i, k = sch.get_loops("sum")', "sch.parallel(k)", ""]
    Path("small.mlc").write_text(text)
    mlcc("schedule", "small.mlc", "--script", "small.mls", code=1)
    assert code in mlcc.err
    assert len(statements(text)) < len(statements(KERNEL))


def test_a_command_keeps_its_exit_status(mlcc: Tool) -> None:
    text = mlcc("reduce", "net.mlc", "--keep", "grep -q R.concat {} && exit 7")
    assert text.startswith("# exit status 7 of grep -q R.concat")
    assert len([line for line in statements(text) if "= R." in line]) == 1
    text = mlcc("reduce", "net.mlc", "--keep", "grep -q call_tir")
    assert "R.call_tir(" in text
    assert "relu" not in text


def test_what_does_not_fail_is_refused(mlcc: Tool) -> None:
    for options in ([], ["--keep", "crash"], ["--keep", "E0341"], ["--keep", "differs", "--func", "main"]):
        mlcc("reduce", "kernel.mlc", *options, code=1)
        assert "E0518" in mlcc.err
        assert "nothing fails" in mlcc.err
    mlcc("reduce", "net.mlc", "--load", "mine.py", "-p", "failing", "--keep", "crash", code=1)
    assert "another failure: E0553" in mlcc.err
    mlcc("reduce", "net.mlc", "--keep", "true", "-p", "fuse", code=2)
    mlcc("reduce", "net.mlc", "--script", "a.mls", code=2)
    mlcc("reduce", "net.mlc", "--keep", "true", "-o", "net.mlc", code=1)
    assert "E0010" in mlcc.err


def test_a_result_within_the_time_limit_is_valid(mlcc: Tool) -> None:
    text = mlcc("reduce", "net.mlc", "--keep", "grep -q R.concat {}", "--time", "1e-9")
    assert structural_equal(parse(text), parse(NET))
    assert "stopped before the end" in mlcc.err


@pytest.mark.parametrize(
    ("keep", "hint"), [("bogus", "name a command, or crash, differs or a code"), ("difers", "did you mean `differs`?")]
)
def test_a_command_that_the_shell_does_not_find_is_no_failure(mlcc: Tool, keep: str, hint: str) -> None:
    assert mlcc("reduce", "net.mlc", "--keep", keep, code=1) == ""
    assert f"error[E0518]: the shell cannot run `{keep}` (exit status 127)\n  help: {hint}" in mlcc.err


def test_ctrl_c_writes_the_smallest_text_so_far(mlcc: Tool, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mlcc", "reduce", "net.mlc", "-o", "small.mlc", "--keep"]
    mark = tmp_path / "runs"
    slow = f"echo x >> {mark}; test $(wc -l < {mark}) -lt 5 || sleep 60; grep -q tanh {{}}"
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        [*command, slow], env=env, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - perhaps ignored
    ) as process:  # fmt: skip
        while not mark.exists() or len(mark.read_text().split()) < 5:
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
        assert process.returncode == 130
    assert "stopped before the end" in stderr
    text = Path("small.mlc").read_text()
    assert "tanh" in text
    parse(text)
    assert sorted(p.name for p in tmp_path.iterdir() if "reduce" in p.name) == []


def test_how_a_process_ends_is_its_outcome() -> None:
    def forever() -> str:
        while True:
            pass

    assert run_apart(lambda: "fine", 30) == "fine"
    assert run_apart(forever, 0.1) == TIMEOUT
    assert run_apart(lambda: str(os.kill(os.getpid(), signal.SIGSEGV)), 30) == "crash: SIGSEGV"
    assert run_apart(lambda: str(os._exit(3)), 30) == "crash: exit code 3"
    number = signal.SIGRTMIN + 3
    assert run_apart(lambda: str(os.kill(os.getpid(), number)), 30) == f"crash: signal {int(number)}"


def test_what_a_job_started_ends_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def job() -> str:
        return str(subprocess.run(["sh", "-c", f"echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 60"], check=False))

    assert run_apart(job, 2) == TIMEOUT
    pid = int(mark.read_text())
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.01)
