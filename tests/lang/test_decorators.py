"""Python files with TVM's decorators: the modules are those that `mlcc.parse` reads from the same text."""

from __future__ import annotations

import functools
import importlib.util
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlcc

PROGRAMS = Path(__file__).with_name("programs.py")
HEAD = """import numpy as np
from mlcc.lang import ir as I, tir as T, relax as R
"""
_cells = iter(range(10**6))


@functools.cache
def programs(postponed: bool = True) -> Any:
    """The file of programs, imported; else with annotations that Python evaluates."""
    if postponed:
        return imported(PROGRAMS)
    text = PROGRAMS.read_text()
    assert "\nfrom __future__ import annotations\n" in text
    return cell(text.replace("\nfrom __future__ import annotations\n", "\n"))


def cell(text: str, **names: Any) -> Any:
    """Run a text as a notebook does: `linecache` has it under a name that is no file's."""
    name = f"<cell {next(_cells)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType("cell")
    vars(module).update(names)
    exec(compile(text, name, "exec", dont_inherit=True), vars(module))
    return module


def refused(text: str, code: str) -> str:
    """The rendered message of a cell that is refused."""
    with pytest.raises(mlcc.CompileError) as caught:
        cell(HEAD + text)
    assert [d.code for d in caught.value.diagnostics] == [code], caught.value
    return str(caught.value)


@pytest.mark.parametrize("postponed", (True, False))
@pytest.mark.parametrize("name", ("leaky_relu", "double", "Layer"))
def test_texts_mean_what_parse_reads(name: str, postponed: bool) -> None:
    program = programs(postponed)
    made, expected = getattr(program, name), mlcc.parse(getattr(program, name.upper()))
    if not isinstance(made, mlcc.IRModule):
        expected = expected[name]  # type: ignore[assignment]
    assert type(made) is type(expected)
    mlcc.assert_structural_equal(made, expected)


@pytest.mark.parametrize("postponed", (True, False))
def test_values_of_the_function_around_are_taken(postponed: bool) -> None:
    program = programs(postponed)
    mlcc.assert_structural_equal(program.scaled(1.5, 5), mlcc.parse(program.SCALED)["main"])
    x = np.arange(3, dtype="float32")
    for factor in (2.0, -4.0):
        exe = mlcc.load(mlcc.build(program.scaled(factor, 3).with_attr("global_symbol", "main")))
        np.testing.assert_array_equal(exe["main"](x), x * np.float32(factor))


def test_numbers_are_those_of_numpy() -> None:
    program = programs()
    x = np.random.default_rng(0).normal(size=(5, 12)).astype("float32")
    made = mlcc.load(mlcc.build(program.Layer))["main"](x)
    np.testing.assert_allclose(made, np.maximum(x @ program.WEIGHT + program.BIAS, 0), rtol=1e-5, atol=1e-5)
    a = np.random.default_rng(1).normal(size=(16, 12)).astype("float32")
    b = np.empty_like(a)
    mlcc.load(mlcc.build(program.leaky_relu))["leaky_relu"](a, b)
    np.testing.assert_array_equal(b, np.where(a > 0, a, a * np.float32(0.25)))


def test_an_array_is_taken_as_it_is_when_the_decorator_runs() -> None:
    made = cell(
        HEAD
        + """
w = np.ones((2, 2))
half = np.full(2, 0.5, "float16")
@R.function
def main(x: R.Tensor((2, 2), "float64"), y: R.Tensor((2,), "float16")):
    return R.matmul(x, w), R.add(y, R.const(half)), R.add(R.astype(x, "float32"), R.const(w))
w[:] = 7
"""
    )
    one, two, three = mlcc.load(mlcc.build(made.main))["main"](np.eye(2), np.ones(2, "float16"))
    assert made.w.flags.writeable
    np.testing.assert_array_equal(one, np.ones((2, 2)))  # float64, as the array
    assert one.dtype == "float64" and two.tolist() == [1.5, 1.5] and two.dtype == "float16"
    assert three.tolist() == [[2.0, 1.0], [1.0, 2.0]]  # R.const makes float32 of float64, as in TVM


def test_scalars_tuples_and_dtypes_of_the_program() -> None:
    made = cell(
        HEAD
        + """
import enum
class Size(enum.IntEnum):
    SMALL = 4
size, shape, axes, kind, two = Size.SMALL, [4, 2], (1, 0), np.dtype("float32"), T.float32(2)
marks = {"pragma": size, "names": ("a", "b")}
F32 = np.float32
@I.ir_module
class M:
    @T.prim_func
    def double(A: T.Buffer(shape, kind), B: T.Buffer(shape, F32)):
        T.func_attr(marks)
        for i, j in T.grid(*shape):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * two
    @R.function
    def main(x: R.Tensor(shape, "float32")):
        y = R.call_tir(double, (x,), out_sinfo=R.Tensor(shape, F32))
        return R.reshape(R.permute_dims(y, axes=axes), shape)
"""
    )
    x = np.arange(8, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(mlcc.load(mlcc.build(made.M))["main"](x), (2 * x).T.reshape(4, 2))
    assert made.M["double"].attrs["pragma"] == 4 and made.M["double"].attrs["names"] == ("a", "b")


def test_quoted_sizes_are_symbolic_whatever_the_program_calls_so() -> None:
    made = cell(
        HEAD
        + """
n = 3
@I.ir_module
class M:
    @R.function
    def first(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n", 2), "float32"):
        n = T.int64()
        return R.reshape(x, (n, 2))
    @T.prim_func
    def second(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi]
    @R.function
    def third(x: R.Tensor((n, 2), "float32")):
        return R.negative(x)
"""
    )
    assert '"n"' in made.M.script()
    assert "R.Tensor((3, 2)" in mlcc.script(made.M["third"])
    x = np.ones((5, 2), "float32")
    assert mlcc.load(mlcc.build(made.M))["first"](x).shape == (5, 2)


def test_names_of_the_text_take_precedence() -> None:
    made = cell(
        HEAD
        + """
A = B = i = vi = C = double = 99
@I.ir_module
class M:
    @T.prim_func
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        C = T.alloc_buffer((4,), "float32")
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + A[vi]
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = C[vi]
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        A = R.call_tir(M.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return R.call_tir(double, (A,), out_sinfo=R.Tensor((4,), "float32"))
"""
    )
    assert mlcc.load(mlcc.build(made.M))["main"](np.ones(4, "float32")).tolist() == [4.0] * 4


def test_a_class_that_is_no_module_may_hold_functions() -> None:
    made = cell(
        HEAD
        + """
class Kernels:
    size = 4
    @T.prim_func
    def copy(A: T.Buffer((size,), "int32"), B: T.Buffer((size,), "int32")):
        for i in range(size):
            B[i] = A[i]
"""
    )
    assert "T.Buffer((4,)" in made.Kernels.copy.script()


@pytest.mark.parametrize("line", ("from __future__ import annotations", "from mlcc.lang.relax import Tensor"))
def test_older_forms_of_the_language(line: str) -> None:
    made = cell(f"""{line}
from mlcc.lang import tvm, relax as R
from mlcc.lang.tvm import relax
@tvm.script.ir_module
class M:
    @R.function
    def main(x: Tensor((1, 4), "float32")):
        with relax.dataflow():
            y = relax.multiply(x, x)
            relax.output(y)
        return y
""")
    assert mlcc.load(mlcc.build(made.M))["main"](np.full((1, 4), 3, "float32")).tolist() == [[9.0] * 4]


def test_equal_names_in_one_file_are_told_apart() -> None:
    made = cell(
        HEAD
        + """
modules = []
for size in (2, 3):
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((size,), "float32")):
            return R.negative(x)
    modules.append(M)
    if size == 3:
        @I.ir_module(check_well_formed=False)
        class M:
            @R.function
            def main(x: R.Tensor((size,), "float32")):
                return R.exp(x)
        modules.append(M)
"""
    )
    texts = [m.script() for m in made.modules]
    assert ["R.negative" in t for t in texts] == [True, True, False]
    assert ["((2,)" in t for t in texts] == [True, False, False]


def test_messages_show_the_line_of_the_file() -> None:
    text = """
def factory():
    class Config:
        width = 4
    config = Config()
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.add(x, config.width)
    return M
factory()
"""
    said = refused(text, "E0210")
    assert f"{(HEAD + text).splitlines().index('            return R.add(x, config.width)') + 1}:29: error" in said
    assert "`config` is a Config of Python, which cannot be used here" in said
    assert "            return R.add(x, config.width)\n" in said and "\n" + " " * 32 + "^^^^^^" in said
    assert "give it a name" in said


@pytest.mark.parametrize(
    ("value", "use", "code", "part"),
    (
        ("lambda x: x", "R.add(x, value(x))", "E0210", "a function of Python"),
        ("print", "value(x)", "E0210", "a function of Python"),
        ("dict", "R.add(x, value)", "E0210", "a class of Python"),
        ("[object()]", "R.add(x, value)", "E0210", "a list with more than numbers"),
        ("np.array([object()])", "R.add(x, value)", "E0210", "an array of object"),
        ("T.Buffer((4,), 'float32')", "R.add(x, value)", "E0210", "an expression of the language"),
    ),
)
def test_values_without_a_meaning_are_named(value: str, use: str, code: str, part: str) -> None:
    said = refused(f'value = {value}\n@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return {use}\n', code)
    assert part in said and ":6:" in said


def test_functions_of_other_texts_are_named() -> None:
    body = 'A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):\n    for i in range(4):\n        B[i] = A[i]\n'
    text = f"@T.prim_func\ndef copy({body}\n@R.function\ndef main(x: R.Tensor((4,), 'int32')):\n"
    said = refused(text + "    return R.call_tir(copy, (x,), out_sinfo=R.Tensor((4,), 'int32'))\n", "E0210")
    assert "a PrimFunc of its own" in said and "into one class" in said


def test_libraries_get_their_own_help() -> None:
    said = refused('@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return np.exp(x)\n', "E0201")
    assert "R.exp" in said


def test_errors_of_the_text_are_all_reported() -> None:
    text = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    y = R.ad(x, x)\n    z = R.exq(x)\n    return y\n'
    with pytest.raises(mlcc.CompileError) as caught:
        cell(HEAD + text)
    places = [
        d.primary.span and d.primary.span.source.line_col(d.primary.span.start)[0] for d in caught.value.diagnostics
    ]
    assert places == [5, 6]


def test_a_text_without_source_is_refused() -> None:
    text = HEAD + '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return x\n'
    with pytest.raises(mlcc.CompileError, match="E0211.*`main` is not available.*\n.*mlcc.parse"):
        exec(text, {})
    with pytest.raises(mlcc.CompileError, match="E0211"):
        exec(HEAD + "@I.ir_module\nclass M:\n    pass\n", {})


def test_a_text_that_changed_since_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    text = HEAD + '\n@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return x\n'
    path.write_text("\n\n\n" + text)
    with pytest.raises(mlcc.CompileError, match="E0211") as caught:
        exec(compile(text + "\n@R.function\ndef other(x):\n    return x\n", str(path), "exec", dont_inherit=True), {})
    assert "other" in str(caught.value)
    path.write_text("def (\n")
    with pytest.raises(mlcc.CompileError, match="E0211"):
        exec(compile(text, str(path), "exec", dont_inherit=True), {})


def test_decorators_refuse_what_they_do_not_stand_above() -> None:
    from mlcc.lang import ir, relax, tir

    for decorator, value in ((ir.ir_module, 3), (tir.prim_func, dict), (relax.function, "f")):
        with pytest.raises(TypeError, match="stands above a"):
            decorator(value)  # type: ignore[operator]


def test_nothing_of_a_text_is_executed() -> None:
    calls: list[int] = []
    text = HEAD + '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    y = R.negative(x)\n    return hook(y)\n'
    with pytest.raises(mlcc.CompileError, match="E0210"):
        cell(text, hook=calls.append)
    assert calls == []


def test_names_of_the_language_are_attributes() -> None:
    from mlcc.lang import ir, relax, tir

    for module, names in (
        (tir, "Buffer grid float32 exp axis handle"),
        (relax, "Tensor add dataflow"),
        (ir, "vdevice"),
    ):
        for name in names.split():
            assert "language" in repr(getattr(module, name))
            assert name in dir(module)
        with pytest.raises(AttributeError):
            module.__wrapped__  # noqa: B018
    assert "prim_func" in dir(tir) and "function" in dir(relax) and "ir_module" in dir(ir)
    later = (-tir.int64() * 2 + 1) // relax.Tensor(("n",), dtype="float32")[0] < 3
    assert "language" in repr(later)
    with pytest.raises(TypeError):
        iter(tir.grid(4, 4))


def test_a_module_runs_as_a_script(tmp_path: Path) -> None:
    import subprocess

    path = tmp_path / "net.py"
    path.write_text(
        HEAD
        + """
import mlcc
@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.exp(x)
np.testing.assert_allclose(mlcc.load(mlcc.build(Net))["main"](np.ones(2, "float32")), np.exp(np.float32(1)), rtol=1e-6)
Net.show()
"""
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, str(path)], cwd=root, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "class Net:" in done.stdout and "\x1b" not in done.stdout


def test_a_file_of_a_user_has_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    import subprocess

    root = Path(__file__).resolve().parents[2]
    imported(root / "scripts" / "typecheck.py").link_package(tmp_path)
    user = Path(__file__).with_name("user.py")
    (tmp_path / "user.py").write_text(user.read_text())
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent",
               "--cache-dir", str(tmp_path / ".cache"), "user.py"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Success" in done.stdout, done.stdout
    assert imported(user).run() == [-1.0] * 8


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
