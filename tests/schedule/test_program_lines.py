"""Lines that programs and notebooks have around their steps, in a script: what makes a schedule, and what shows it."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.errors import Source
from mlcc.passes.schedule.mls.run import run_script

KERNEL = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
"""
STEPS = 'i, = sch.get_loops("B")\no, i = sch.split(i, factors=[None, 4])\nsch.vectorize(i)\n'


def after(script: str) -> mlcc.IRModule:
    return mlcc.apply_schedule(mlcc.parse(KERNEL), script)


@pytest.mark.parametrize(
    "head",
    (
        "import tvm\nsch = tvm.tir.Schedule(MyModule)\n",
        "from tvm import tir\nsch = tir.Schedule(MyModule, debug_mask='all')\n",
        "from tvm.tir import Schedule\nsch = Schedule(MyModule['main'])\n",
        "import mlcc\nsch = mlcc.Schedule(mlcc.parse(text), seed=0)\n",
        "sch = tvm.s_tir.Schedule(MyModule)\n",
    ),
)
def test_first_line_of_a_program_is_taken(head: str) -> None:
    mlcc.assert_structural_equal(after(head + STEPS), after(STEPS))


def test_a_schedule_by_another_name_is_given_to_a_function() -> None:
    script = f"def tile(sch):\n    {STEPS.strip().replace(chr(10), chr(10) + '    ')}\n    return sch\n"
    mlcc.assert_structural_equal(after(script + "s = tile(tvm.tir.Schedule(MyModule))\n"), after(STEPS))


def test_the_seed_counts() -> None:
    sample = "i, = sch.get_loops('B')\nsch.split(i, factors=sch.sample_perfect_tile(i, n=2))\n"
    seeds = range(10**6, 10**9, 10**8)
    texts = {mlcc.script(after(f"sch = tvm.tir.Schedule(M, seed={seed})\n{sample}")) for seed in seeds}
    assert len(texts) > 1
    mlcc.assert_structural_equal(after(f"sch = tvm.tir.Schedule(M, seed=3)\n{sample}"), after(f"sch.seed(3)\n{sample}"))


def test_what_a_notebook_shows() -> None:
    shown: list[str] = []
    sch = mlcc.Schedule(mlcc.parse(KERNEL))
    script = f"""
import IPython
from IPython.display import Code
{STEPS}
sch.mod.show()
sch.mod["main"].show()
IPython.display.HTML(code2html(sch.mod.script()))
Code(sch.mod.script(), language="python")
"""
    run_script(sch, Source("a.mls", script), show=shown.append)
    assert shown == [sch.mod.script()] * 2
    mlcc.assert_structural_equal(sch.mod, after(STEPS))


def test_a_second_schedule_is_refused() -> None:
    with pytest.raises(mlcc.CompileError, match="another schedule.*\n(.*\n)*.*begin another script"):
        after(f"sch = tvm.tir.Schedule(M)\n{STEPS}sch = tvm.tir.Schedule(M)\n")


def test_what_else_the_module_has_is_for_python() -> None:
    with pytest.raises(mlcc.CompileError, match="`sch.mod.script` is for Python(.*\n)*.*--show-each"):
        after("text = sch.mod.script()\n")
