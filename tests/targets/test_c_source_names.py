"""Names of programs in C source: none of them collides with what C, its headers, or the file itself declare."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

import mlcc
from mlcc.targets.c.reserved import is_reserved
from tests.targets.c_source import FLAGS, source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

NAMES = "constant_0 errors check_tensor data_of cell_of cells add_i32 div random frexp nan strlen select double"


def program(names: list[str]) -> str:
    """PrimFuncs of these names with a parameter of the name, a checked index and a constant, and a function of each."""
    kernels = [
        f"""
@T.prim_func(private=True)
def {name}(x: T.Buffer((4,), "float32"), {name}: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
    for i in range(4):
        z[i] = {name}[T.checked_index(T.Cast("int32", x[i]), 4, "f", 0, True)] + T.Cast("float32", T.abs(i - 2))
"""
        for name in names
    ]
    calls = [
        f"    x = R.call_tir({name}, (x, R.const([1.0, 2.0, 3.0, {n}.0], 'float32')), R.Tensor((4,), 'float32'))\n"
        for n, name in enumerate(names)
    ]
    head = "\n@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n"
    return "".join([*kernels, head, *calls, "    return x\n"])


def accepted(text: str, *command: str) -> None:
    done = subprocess.run([*command, "-fsyntax-only", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_any_name_compiles() -> None:
    text = source(mlcc.parse(program(NAMES.split())), 0).emit("c", "model").decode()
    accepted(text, "cc", *FLAGS, "-x", "c")
    accepted(text, "cc", *FLAGS, "-std=gnu99", "-ffp-contract=off", "-x", "c")
    accepted(text, "c++", "-Wall", "-Wextra", "-Werror", "-x", "c++")


def test_the_names_of_the_file_are_reserved() -> None:
    text = source(mlcc.parse(program(["ordinary"])), 0).emit("c", "model").decode()
    names = set(re.findall(r"^(?:static|#define|\}) (?:[\w ]+[ *])?(\w+)(?=[\[(;]| =|$)", text, re.M))
    assert {"check_tensor", "errors", "memory_range", "constant_0", "ordinary"} <= names
    assert [n for n in sorted(names) if not is_reserved(n) and not n.startswith(("MLCC_", "_"))] == ["ordinary"]


@pytest.mark.parametrize(("name", "prefix"), [("i32", "add"), ("of", "cell")])
def test_an_export_with_the_name_of_a_helper_is_refused(name: str, prefix: str) -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "int32")):
    A[0] = A[1] + A[2]
"""
    module = mlcc.parse(text)
    artifact = source(type(module)({name: module["f"]}))
    with pytest.raises(mlcc.CompileError, match="E0750"):
        artifact.emit("c", prefix)


def test_an_extern_with_the_name_of_a_helper_is_refused() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int32")):
    A[0] = T.call_extern("int32", "check_tensor", A[1])
"""
    with pytest.raises(mlcc.CompileError, match="check_tensor"):
        source(mlcc.parse(text), allow_extern=("check_tensor",))
