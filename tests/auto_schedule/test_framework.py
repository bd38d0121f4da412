"""The pass `auto-schedule`: what it touches, how it reports, and that what it chose replays."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.apply_rules import report, schedule_function
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.rule import Rule
from mlcc.passes.auto_schedule.rules import RULES
from mlcc.verify import check
from tests.auto_schedule.kernels import NATIVE, assert_same_results, chosen, graph, lowered, scheduled
from tests.generate.functions import Options, prim_func
from tests.schedule.tools import CHAIN, MATMUL
from tests.targets.arguments import arguments, assert_alike, duplicate


def test_facts_come_from_the_target() -> None:
    assert CpuFacts.of("llvm{triple=x86_64-linux-gnu}").vector_bytes == 16
    known = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=znver4}")
    assert (known.vector_bytes, known.vector_registers, known.l2_bytes, known.fma) == (64, 32, 1 << 20, True)
    arm = CpuFacts.of("llvm{triple=aarch64-linux-gnu}")
    assert (arm.vector_bytes, arm.vector_registers, arm.fma) == (16, 32, True)
    told = CpuFacts.of("llvm{triple=x86_64-linux-gnu l1=65536 l2=131072 l3=262144 num-cores=3 vector-width=256}")
    assert (told.l1_bytes, told.l2_bytes, told.l3_bytes, told.cores, told.vector_bytes) == (
        1 << 16, 1 << 17, 1 << 18, 3, 32,
    )  # fmt: skip
    own = CpuFacts.of(NATIVE)
    assert own.l1_bytes >= 4096 and own.cores >= 1


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("for i, j, k in T.grid(32, 16, 24):", "for i, j, k in T.grid(32, 16, 24):", ""),
        ("def main(", "def main(", ""),
        ("    for i, j, k in T.grid(32, 16, 24):\n", '    T.func_attr({"tir.is_scheduled": True})\n'
         "    for i, j, k in T.grid(32, 16, 24):\n", "tir.is_scheduled"),
        ("vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])", "vi = T.axis.spatial(32, i)\n"
         "            vj = T.axis.spatial(16, 15 - j)\n            vk = T.axis.reduce(24, k)", "one to one"),
    ],
)  # fmt: skip
def test_what_somebody_scheduled_stays(old: str, new: str, why: str) -> None:
    func = mlcc.parse(MATMUL.replace(old, new))["main"]
    found = schedule_function(func, "main", CpuFacts.of(NATIVE))
    assert why in found.why and (found.func is None) == bool(why)


@pytest.mark.parametrize("step", ["parallel", "vectorize", "unroll"])
def test_loops_of_other_kinds_stay(step: str) -> None:
    sch = mlcc.Schedule(mlcc.parse(CHAIN))
    sch.call(step, (sch.get_loops(sch.get_block("B"))[0],))
    found = schedule_function(sch.mod["main"], "main", CpuFacts.of(NATIVE))
    assert "not a plain serial one" in found.why


def test_o0_never_schedules() -> None:
    made = mlcc.run_passes(mlcc.parse(MATMUL), "O0")
    assert "tir.is_scheduled" not in made["main"].attrs
    assert mlcc.run_passes(made, "O3")["main"].attrs["tir.is_scheduled"]


def test_a_rule_that_fails_leaves_the_kernel_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def midway(kernel: Kernel) -> str:
        (loop, *_) = kernel.loops(kernel.blocks()[0])
        kernel.sch.unroll(loop)
        kernel.sch.vectorize(kernel.loops(kernel.blocks()[0])[2])  # a sum: refused
        return ""

    def broken(kernel: Kernel) -> str:
        raise ZeroDivisionError("oops")

    def declines(kernel: Kernel) -> str:
        not_applicable("it is Friday")

    made = {"a": midway, "b": broken, "c": declines}
    known = {rule: rule.function() for rule in RULES}
    monkeypatch.setattr(Rule, "function", lambda rule: made.get(rule.name) or known[rule])
    rules = (*(Rule(name, "") for name in made), *RULES)
    func = mlcc.parse(MATMUL)["main"]
    found = schedule_function(func, "main", CpuFacts.of(NATIVE), rules)
    said = dict(found.passed)
    assert "a step was refused: E0627" in said["a"]
    assert "ZeroDivisionError" in said["b"] and isinstance(found.broken, ZeroDivisionError)
    assert said["c"] == "it is Friday"
    assert found.rule is not None and found.func is not None
    alone = schedule_function(func, "main", CpuFacts.of(NATIVE))
    assert mlcc.structural_equal(found.func, alone.func)
    assert str(found.trace) == str(alone.trace)
    assert "not c: it is Friday" in report([found])


SOFTMAX = graph('x: R.Tensor((7, 33), "float32")', "y = R.nn.softmax(x)", "z = R.multiply(y, y)", result="z")
ELEMENTWISE = graph(
    'x: R.Tensor(("n", 19), "float32"), b: R.Tensor((19,), "float32")', "y = R.add(x, b)", "z = R.exp(y)",
    "w = R.multiply(z, y)", result="w",
)  # fmt: skip


def test_the_object_is_the_same_when_replayed() -> None:
    mod = lowered(SOFTMAX)
    script = mlcc.run_passes(mod, "auto-schedule", target=NATIVE)
    again = scheduled(mod)
    assert mlcc.build(script, NATIVE, 3).emit("obj") == mlcc.build(again, NATIVE, 3).emit("obj")


@pytest.mark.parametrize("n", [0, 1, 5, 64])
def test_symbolic_sizes_keep_results(n: int) -> None:
    mod = lowered(ELEMENTWISE)
    assert {a.rule for a in chosen(mod).values()} == {"elementwise"}
    assert_same_results(mod, {"n": n})


def test_long_vectors_run_in_parallel() -> None:
    text = graph('x: R.Tensor((1000003,), "float32")', "y = R.add(x, x)", "z = R.exp(y)", result="z")
    made = assert_same_results(lowered(text))
    printed = mlcc.script(made)
    assert "T.parallel" in printed and "T.vectorized" in printed
    assert printed.count("T.block(") == 1 + printed.count('# with T.block("root")')  # one stage is left


def test_the_command_prints_what_replays(tmp_path: Path) -> None:
    from mlcc.cli.main import cli

    kernel, script = tmp_path / "kernel.mlc", tmp_path / "chosen.mls"
    kernel.write_text(MATMUL)
    run = CliRunner().invoke
    target = "llvm{triple=x86_64-linux-gnu cpu=x86-64-v3}"
    done = run(cli, ["schedule", str(kernel), "--auto", "-t", target, "-o", str(script), "--why"])
    assert done.exit_code == 0, done.output
    text = script.read_text()
    assert "# main: rule " in text and "16 vectors of 32 bytes" in text
    done = run(cli, ["schedule", str(kernel), "--script", str(script), "-o", str(tmp_path / "out.mlc")])
    assert done.exit_code == 0, done.output
    made = mlcc.run_passes(mlcc.parse(MATMUL), "auto-schedule", target=target)
    assert (tmp_path / "out.mlc").read_text().removeprefix("# mlc 1\n") == mlcc.script(made)
    both = run(cli, ["schedule", str(kernel), "--auto", "--script", str(script)])
    assert both.exit_code == 2 and "either" in both.output
    why = run(cli, ["passes", str(kernel), "-p", "auto-schedule", "--why-schedule", "-t", target])
    assert "main: rule " in why.output


@pytest.mark.parametrize("batch", range(4))
def test_generated_functions_keep_results(batch: int, all_cases: bool) -> None:
    """Rules break on nothing, and the scheduled function computes what it did."""
    targets = ("llvm{triple=x86_64-linux-gnu}", "llvm{triple=x86_64-linux-gnu cpu=x86-64-v4}")
    facts = [CpuFacts.of(t) for t in targets]
    taken = 0
    for seed in range(batch * 500, batch * 500 + (500 if all_cases else 60)):
        func = prim_func(seed, Options(asserts=False))
        found = schedule_function(func, "main", facts[seed % 2])
        assert found.broken is None, seed
        if found.func is None:
            continue
        taken += 1
        check(IRModule({"main": found.func}))
        given, _ = arguments(func, seed)
        expected, got = duplicate(given), duplicate(given)
        try:
            run_prim_func(func, expected)
        except CallError:
            continue
        run_prim_func(found.func, got)
        wide = "unsafe_compute_in" in str(found.trace)  # float32 between the steps, rounded once
        assert_alike(func, got, expected, f"function {seed}", exact=not wide)
    assert taken


def test_sizes_that_are_not_known_are_not_cut_into_large_pieces() -> None:
    """A piece of a known number of vectors runs whole, however little there is."""
    func = mlcc.parse(
        """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)
"""
    )["main"]
    facts = CpuFacts.of(NATIVE)
    found = schedule_function(func, "main", facts)
    assert found.func is not None and found.rule == "elementwise"
    extents = [tir.const_int(n.extent) for n in walk(found.func) if isinstance(n, tir.For)]
    assert [n for n in extents if n is not None] == [facts.lanes(4)]
