"""Composite functions by patterns in text. What TVM makes of the same patterns is compared in tests/interop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import IRModule
from mlcc.verify import check
from tests.passes.modules import F, module_with_main, operators
from tests.passes.programs import Program

DENSE = """
@R.function
def dense_before(x: R.Tensor(ndim=2), w: R.Tensor(ndim=2), b: R.Tensor):
    R.func_attr({"Composite": "lib.dense"})
    a = R.matmul(x, w)
    return R.add(a, b)
"""
EXP = "@R.function\ndef exp_pattern(x: R.Tensor):\n    return R.exp(x)\n"
NUMBERS = "\n".join(
    f"@R.function\ndef p{i}_pattern(x: R.Tensor, y: R.Tensor):\n{body}"
    for i, body in enumerate(
        ["    a = R.add(x, y)\n    b = R.abs(a)\n    return (a, b)\n",
         "    a = R.matmul(x, y)\n    return R.negative(a)\n",
         "    a = R.multiply(x, y)\n    return R.subtract(a, x)\n", "    return R.multiply(x, y)\n",
         "    a = R.maximum(x, y)\n    return R.maximum(a, x)\n", "    return R.add(x, y)\n"]
    )
)  # fmt: skip


def fuse(module: IRModule, text: str, tmp_path: Path, options: str = "") -> IRModule:
    path = tmp_path / "rules.mlc"
    path.write_text(text)
    made = mlcc.run_passes(module, f'fuse-by-pattern{{rules="{path}"{options}}}')
    mlcc.assert_structural_equal(made, mlcc.parse(mlcc.script(made)))
    return made


def test_composites_have_their_attributes(tmp_path: Path) -> None:
    module = module_with_main("a = R.matmul(x, y)", "b = R.add(z, a)", "gv = R.exp(b)")
    made = fuse(module, DENSE + EXP, tmp_path)
    assert operators(made) == ["fused_relax_matmul_relax_add", "fused_relax_exp"]
    assert dict(made["fused_relax_matmul_relax_add"].attrs) == {"Composite": "lib.dense", "Primitive": True}
    assert made["fused_relax_exp"].attrs["Composite"] == "exp"
    assert made["fused_relax_exp"].is_private
    again = fuse(made, DENSE + EXP, tmp_path)
    mlcc.assert_structural_equal(again, made)


def test_order_of_operands_is_kept_on_request(tmp_path: Path) -> None:
    module = module_with_main("a = R.matmul(x, y)", "gv = R.add(z, a)")
    exact = DENSE.replace('"lib.dense"}', '"lib.dense", "commutative": False}')
    assert exact != DENSE
    assert operators(fuse(module, exact, tmp_path)) == ["matmul", "add"]


@pytest.mark.parametrize("annotate", ["false", "true"])
def test_random_programs_keep_their_numbers(annotate: str, tmp_path: Path, all_cases: bool) -> None:
    """Several results, results used elsewhere, constants inside and outside."""
    fused = 0
    for seed in range(200 if all_cases else 24):
        program = Program(seed, length=14)
        module = mlcc.parse(program.text())
        bind = ["false", "true"][seed % 2]
        made = fuse(module, NUMBERS, tmp_path, f" annotate-codegen={annotate} bind-constants={bind}")
        check(made)
        fused += len(made) > 1
        given = list(program.inputs().values())
        want, have = run_function(module, "main", given), run_function(made, "main", given)
        for a, b in zip(*(r if isinstance(r, (tuple, list)) else [r] for r in (have, want)), strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5, err_msg=f"seed {seed}")
    assert fused > 5


def test_what_cannot_run_in_one_piece_is_left(tmp_path: Path) -> None:
    """Between the product and the sum stands something that needs the product."""
    around = module_with_main("a = R.matmul(x, y)", "b = R.tanh(a)", "gv = R.add(a, b)")
    assert operators(fuse(around, DENSE, tmp_path)) == ["matmul", "tanh", "add"]
    # two groups, each of which would need the other's result
    text = "@R.function\ndef p_pattern(x: R.Tensor, y: R.Tensor):\n    a = R.exp(x)\n"
    text += "    b = R.tanh(y)\n    return (a, b)\n"
    crossed = module_with_main("a = R.exp(x)", "c = R.tanh(y)", "b = R.tanh(a)", "d = R.exp(c)", "gv = R.add(b, d)")
    made = fuse(crossed, text, tmp_path)
    check(made)
    given = [np.random.RandomState(i).rand(4, 4).astype("float32") for i in range(3)]
    np.testing.assert_allclose(run_function(made, "main", given), run_function(crossed, "main", given), 1e-5)


def test_only_dataflow_blocks_are_fused(tmp_path: Path) -> None:
    module = mlcc.parse(f"@R.function\ndef main(x: {F}):\n    a = R.exp(x)\n    return a\n")
    assert operators(fuse(module, EXP, tmp_path)) == ["exp"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@R.function\ndef f(x: R.Tensor):\n    return R.exp(x)\n", "has no rule"),
        (EXP.replace("R.exp(x)", "x"), "not computed by an operation"),
        (EXP.replace("x: R.Tensor", "x: R.Tensor, y: R.Tensor"), "the parameter `y`"),
    ],
)
def test_files_that_are_no_patterns(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=said):
        fuse(module_with_main("gv = R.exp(x)"), text, tmp_path)
