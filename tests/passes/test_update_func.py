"""One function takes the place of another."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import IRModule
from mlcc.verify import check
from tests.passes.modules import F, module_with_main, operators

MODULE = f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: {F}):
        cls = Module
        return R.call_tir(cls.kernel, (x,), {F})
"""


def update(module: IRModule, text: str, tmp_path: Path, options: str = "") -> IRModule:
    path = tmp_path / "other.mlc"
    path.write_text(text)
    return mlcc.run_passes(module, f'update-func{{file="{path}"{options}}}')


def test_the_function_of_that_name(tmp_path: Path) -> None:
    module = module_with_main("gv = R.exp(x)")
    made = update(module, f"@R.function\ndef main(x: {F}):\n    return R.tanh(x)\n", tmp_path)
    assert operators(made) == ["tanh"]
    assert operators(module) == ["exp"]
    assert made["main"].attrs["global_symbol"] == "main"


def test_a_file_with_one_function_of_another_name(tmp_path: Path) -> None:
    text = MODULE.split("    @R.function")[0].replace("kernel", "faster").replace("float32(2)", "float32(3)")
    made = update(mlcc.parse(MODULE), text, tmp_path, " func=kernel")
    assert list(made) == ["kernel", "main"]
    assert made["kernel"].is_private
    assert "T.float32(3.0)" in mlcc.script(made)
    check(made)


def test_what_it_calls_comes_along(tmp_path: Path) -> None:
    changed = MODULE.replace("float32(2)", "float32(3)")
    made = update(mlcc.parse(MODULE), changed, tmp_path)
    assert list(made) == ["kernel", "main", "kernel1"]
    assert operators(made) == ["kernel1"]
    check(made)
    same = update(mlcc.parse(MODULE), MODULE, tmp_path)
    mlcc.assert_structural_equal(same, mlcc.parse(MODULE))


KERNEL = MODULE.split("    @R.function")[0]


@pytest.mark.parametrize(
    ("text", "options", "code", "said"),
    [
        (MODULE, " func=mian", "E0506", "did you mean `main`"),
        (MODULE.replace("def main", "def start"), "", "E0544", "they are kernel, start"),
        (KERNEL.replace("(4, 4)", "(4, 5)"), " func=kernel", "E0544", "its parameter 0 is"),
        (
            KERNEL.replace(', B: T.Buffer((4, 4), "float32")', "").replace("B[vi, vj] =", "A[vi, vj] ="),
            " func=kernel",
            "E0544",
            "1 parameters, not 2",
        ),
        (f"@R.function\ndef kernel(x: {F}):\n    return R.exp(x)\n", " func=kernel", "E0544", "not a PrimFunc"),
        ("class", "", "E0100", ""),
    ],
)
def test_unsuitable_functions_are_refused(text: str, options: str, code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        update(mlcc.parse(MODULE), text, tmp_path, options)
    assert caught.value.diagnostics[0].code[:3] == code[:3]
    assert said in str(caught.value)


def test_missing_files_are_the_users(tmp_path: Path) -> None:
    for name in ("update-func{file=none.mlc}", "rewrite{rules=none.mlc}", "fuse-by-pattern{rules=none.mlc}"):
        with pytest.raises(CompileError):
            mlcc.run_passes(mlcc.parse(MODULE), name, folder=str(tmp_path))
