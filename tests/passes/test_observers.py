"""What looks on while passes run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import IRModule, relax, tir
from mlcc.ir.module import Func
from mlcc.ir.node import replace
from mlcc.passes.check_each import CheckEach
from mlcc.passes.lowering.work_estimate import module_work
from mlcc.passes.manage.manager import Observer, Pass, PassContext, PassFailed, Pipeline, run_pipeline
from mlcc.passes.manage.observers import Diff, Dump, IllFormed, Timing, VerifyEach, VerifyOnce, parse_names
from mlcc.verify import prim_func
from mlcc.verify.report import Report

TEXT = """
@I.ir_module
class Module:
    @R.function(private=True)
    def other(x: R.Tensor((4,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv = R.multiply(x, x)
            unused = R.add(x, x)
            gv = R.add(lv, x)
            R.output(gv)
        return gv
"""


def observe(pipeline: str, *observers: Observer) -> IRModule:
    return run_pipeline(Pipeline.parse(pipeline), mlcc.parse(TEXT, name="t.mlc"), observers=observers)


def test_dumps_are_fenced_and_parse() -> None:
    parts: list[str] = []
    observe("ewise-fma,remove_unused", Dump(parts.append, names_before=["ewise_fma"], names_after=None))
    assert [p.splitlines()[0] for p in parts] == [
        "# --- before ewise-fma", "# --- after ewise-fma", "# --- after dead-code",
    ]  # fmt: skip
    assert "unused" in parts[1]
    assert "unused" not in parts[2]
    for part in parts:
        mlcc.parse(part)


def test_dumps_name_passes_by_alias_too() -> None:
    parts: list[str] = []
    observe("ewise-fma,dead-code", Dump(parts.append, names_after=["remove-unused"]))
    assert [p.splitlines()[0] for p in parts] == ["# --- after dead-code"]
    assert parse_names("fuse,fuse_tir") == ["fuse", "fuse-tir"]
    with pytest.raises(CompileError, match="did you mean `fuse`"):
        parse_names("fuze")
    assert parse_names("*") is None


def test_dumps_go_to_numbered_files(tmp_path: Path) -> None:
    observe("ewise-fma,dead-code", Dump(print, names_after=None, folder=str(tmp_path / "d")))
    files = sorted(p.name for p in (tmp_path / "d").iterdir())
    assert files == ["01-after-ewise-fma.mlc", "02-after-dead-code.mlc"]
    assert "ewise_fma" in mlcc.script(mlcc.parse((tmp_path / "d" / files[1]).read_text()))


def test_diff_shows_only_what_changed() -> None:
    parts: list[str] = []
    observe("ewise-fma,dead-code,dead-code,fold-constants", Diff(parts.append))
    assert parts[0].startswith("# --- changed by ewise-fma\n--- main before\n+++ main after\n")
    changed = [line for line in parts[0].splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2
    assert "R.add(lv, x)" in changed[0]
    assert "R.ewise_fma(x, x, x)" in changed[1]
    assert "def other" in parts[1]
    assert parts[2:] == ["# --- unchanged by dead-code, fold-constants\n"]


def test_diff_names_unchanged_passes_before_the_next_change() -> None:
    parts: list[str] = []
    observe("normalize,check-shapes,ewise-fma", Diff(parts.append))
    assert [part.splitlines()[0] for part in parts] == [
        "# --- unchanged by normalize, check-shapes", "# --- changed by ewise-fma",
    ]  # fmt: skip


def test_times_are_listed() -> None:
    parts: list[str] = []
    clock = iter([0.0, 1.0, 1.0, 4.0])
    observe("ewise-fma,dead-code", Timing(parts.append, clock=lambda: next(clock)))
    lines = parts[0].splitlines()
    assert [line.split() for line in lines] == [
        ["1000.00", "ms", "25.0", "%", "ewise-fma"], ["3000.00", "ms", "75.0", "%", "dead-code"],
        ["4000.00", "ms", "100.0", "%", "all", "passes"],
    ]  # fmt: skip


# ---------------------------------------------------------------- verification


class ReturnUnbound(Pass):
    """Return a variable that nothing binds.

    Before:  return gv
    After:   return nowhere
    """

    name = "dangling"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        made = module.copy()
        func = module["main"]
        assert isinstance(func, relax.Function)
        nowhere = relax.Var("nowhere", func.body.struct_info)
        made.functions["main"] = replace(func, body=replace(func.body, body=nowhere))
        return made


class Doubling(Pass):
    """Add where the program multiplies.

    Before:  R.multiply(x, y)
    After:   R.add(x, y)
    """

    name = "doubling"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return mlcc.parse(mlcc.script(module).replace("multiply", "add"))


def test_verification_finds_the_pass_that_breaks_a_rule() -> None:
    with pytest.raises(PassFailed, match="dangling") as caught:
        run_pipeline(Pipeline((ReturnUnbound(),)), mlcc.parse(TEXT), observers=[VerifyEach()])
    Path(caught.value.reproducer or "/nonexistent").unlink(missing_ok=True)


def test_verification_once_names_the_pass_all_the_same() -> None:
    given = mlcc.parse(TEXT)
    passes = (*Pipeline.parse("canonicalize").passes, ReturnUnbound(), *Pipeline.parse("dead-code,lower-to-tir").passes)

    def each(some: Pipeline) -> IRModule:
        return run_pipeline(some, given, observers=[VerifyEach()])

    with pytest.raises(PassFailed, match="pass `dangling` failed") as caught:
        run_pipeline(Pipeline(passes), given, observers=[VerifyOnce({"lower-to-tir"}, each)])
    Path(caught.value.reproducer or "/nonexistent").unlink(missing_ok=True)
    with pytest.raises(PassFailed, match="^pass `dangling` failed: IllFormed") as caught:  # at the end, if not before
        run_pipeline(Pipeline(passes[:2]), given, observers=[VerifyOnce({"lower-to-tir"}, each)])
    Path(caught.value.reproducer or "/nonexistent").unlink(missing_ok=True)
    run_pipeline(Pipeline(passes[:1]), given, observers=[VerifyOnce({"lower-to-tir"}, each)])


def test_a_broken_input_is_the_users() -> None:
    broken = ReturnUnbound().run(mlcc.parse(TEXT), PassContext())
    with pytest.raises(CompileError, match="nowhere"):
        run_pipeline(Pipeline.parse("dead-code"), broken, observers=[VerifyEach()])


CALLS = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        for i in range(4):
            Module.store(A.data, i)

    @T.prim_func(private=True)
    def store(a: T.handle("float32"), i: T.int32):
        A = T.decl_buffer((4,), "float32", data=a)
        A[i] = T.float32(1)

    @T.prim_func(private=True)
    def other(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(1)
"""


def test_functions_that_passes_leave_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = mlcc.parse(CALLS)
    verified: list[tir.PrimFunc] = []
    verify = prim_func.verify_prim_func

    def recording_verify(func: tir.PrimFunc, report: Report, functions: Mapping[str, Func]) -> None:
        verified.append(func)
        verify(func, report, functions)

    monkeypatch.setattr(prim_func, "verify_prim_func", recording_verify)
    observer = VerifyEach()
    observer.start(Pipeline(), given)
    assert verified == [given["main"], given["store"], given["other"]]
    verified.clear()
    changed = given.copy()
    changed.functions["other"] = given["other"].with_attr("changed", 1)
    observer.after(0, Pass(), given, changed)
    assert verified == [changed["other"]]
    verified.clear()
    renewed = changed.copy()
    renewed.functions["store"] = given["store"].with_attr("changed", 1)
    observer.after(1, Pass(), changed, renewed)
    assert verified == [given["main"], renewed["store"]]  # a caller depends on what it calls


def test_verification_finds_a_callee_that_no_longer_fits() -> None:
    given = mlcc.parse(CALLS)
    observer = VerifyEach()
    observer.start(Pipeline(), given)
    changed = given.copy()
    changed.functions["store"] = replace(given["store"], params=given["store"].params[:1], buffers=(None,))
    with pytest.raises(IllFormed, match="`store` takes 1 arguments, but 2 were given"):
        observer.after(0, Pass(), given, changed)


# ---------------------------------------------------------------- numbers


def test_check_each_names_the_pass_that_changes_numbers() -> None:
    said: list[str] = []
    check = CheckEach({"x": np.arange(4, dtype="float32")}, write=said.append)
    pipeline = Pipeline((*Pipeline.parse("ewise-fma,dead-code,normalize").passes, Doubling()))
    run_pipeline(Pipeline((Doubling(), *pipeline.passes)), mlcc.parse(TEXT), observers=[check])
    assert check.culprit == "doubling"
    text = "".join(said)
    assert "`main` is interpreted" in text
    assert "E0511" in text
    assert "2 of 4 elements of result 0 differ" in text


def test_check_each_passes_what_is_right_and_says_so() -> None:
    said: list[str] = []
    check = CheckEach({"x": np.arange(4, dtype="float32")}, write=said.append)
    observe("ewise-fma,dead-code,dead-code,fuse,lower-to-tir,fuse-tir", check)
    assert check.culprit is None
    assert "check-each: ewise-fma: results unchanged\n" in said
    assert "check-each: dead-code: module unchanged\n" in said


def test_check_each_compiles_what_takes_long() -> None:
    from mlcc.driver import run_compiled

    said: list[str] = []
    check = CheckEach({"x": np.arange(4, dtype="float32")}, limit=3, write=said.append, compiled=run_compiled)
    observe("ewise-fma,lower-to-tir", check)
    assert said[0] == (
        "check-each: `main` is compiled, its accesses checked (--sanitize), since it takes about 12 operations\n"
    )
    assert check.culprit is None


def test_check_each_runs_prim_funcs_with_or_without_arrays_for_results() -> None:
    text = """
@T.prim_func
def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.float32(2)
"""
    for inputs in ({}, {"B": np.full(4, 7, "float32")}):
        given = {"A": np.arange(4, dtype="float32"), **inputs}
        check = CheckEach(given, func="double")
        run_pipeline(Pipeline.parse("annotate-op-pattern"), mlcc.parse(text), observers=[check])
        assert check.culprit is None
        assert check.expected is not None
        assert check.expected[0].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("inputs", "func", "said"),
    [({}, "main", "no array for parameter `x`"), ({"x": np.ones(4)}, "mian", "did you mean `main`")],
)
def test_check_each_says_what_it_lacks(inputs: dict[str, np.ndarray], func: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        observe("dead-code", CheckEach(inputs, func=func))


def test_parameters_that_are_bound_need_no_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(4, "float32"))
    check = CheckEach({"x": np.ones(4, "float32")})
    ctx = PassContext(folder=str(tmp_path))
    run_pipeline(Pipeline.parse("bind-params{params=x.npz}"), mlcc.parse(TEXT), ctx, [check])
    assert check.culprit is None


def test_checking_begins_where_all_arrays_are_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(4, "float32"))
    said: list[str] = []
    ctx = PassContext(folder=str(tmp_path))
    pipeline = Pipeline((*Pipeline.parse("dead-code,bind-params{params=x.npz}").passes, Doubling()))
    text = TEXT.replace("x: R.Tensor", 'y: R.Tensor((4,), "float32"), x: R.Tensor', 2)
    check = CheckEach({"y": np.ones(4, "float32")}, write=said.append)
    run_pipeline(pipeline, mlcc.parse(text.replace("R.multiply(x, x)", "R.multiply(y, x)")), ctx, [check])
    assert said[0] == "check-each: `main` is interpreted; checking begins after bind-params\n"
    assert check.culprit == "doubling"


SYMBOLIC = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(R.concat((y, y), axis=0))
            R.output(z)
        return z
"""


@pytest.mark.parametrize("passes", ["", "lower-to-tir", "fuse", "fuse,lower-to-tir,fuse-tir"])
def test_work_of_symbolic_sizes_is_that_of_the_arrays(passes: str) -> None:
    module = run_pipeline(Pipeline.parse(passes), mlcc.parse(SYMBOLIC))
    small, large = (module_work(module, "main", [(n, 4), (4, 4)]) for n in (3, 3000))
    assert small is not None and large is not None
    assert 50 < small < 500 and 900 * small < large < 1100 * small
    assert module_work(module, "main") is None


def test_work_of_recursion_is_not_known() -> None:
    module = mlcc.parse(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = Module.main(x)
        return y
"""
    )
    assert module_work(module, "main") is None


def test_work_of_calls_that_double() -> None:
    """Thirty functions, each calling the next twice: a call is looked at once."""
    shape = 'R.Tensor((4,), "float32")'
    text = "@I.ir_module\nclass Module:\n"
    for i in range(30):
        body = f"Module.f{i + 1}(Module.f{i + 1}(x))" if i < 29 else "R.exp(x)"
        text += f"    @R.function\n    def f{i}(x: {shape}) -> {shape}:\n        y = {body}\n        return y\n"
    assert module_work(mlcc.parse(text), "f0") == 4 * 2**29
