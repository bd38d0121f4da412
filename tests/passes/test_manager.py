"""Pipelines: their text, their order of events, and what a bug leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import mlcc
from mlcc import backends
from mlcc.errors import CompileError, error
from mlcc.ir import IRModule
from mlcc.machine.target import Target
from mlcc.passes import ALIASES, PASSES
from mlcc.passes.graph.dead_code import DeadCode
from mlcc.passes.manage import manager
from mlcc.passes.manage.manager import Observer, Pass, PassContext, PassFailed, Pipeline, Requirement, run_pipeline
from mlcc.passes.manage.reproducer import directive


def test_every_pass_is_listed_under_its_name() -> None:
    assert list(PASSES) == sorted(PASSES)
    for name in PASSES:
        cls = manager.pass_class(name)
        assert cls.name == name
        assert manager.summary(name).endswith(".")
        assert "Before:" in (cls.__doc__ or "")
        assert name in manager.help_text(name)
    assert set(ALIASES.values()) <= set(PASSES)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("dead-code", "dead-code"),
        ("remove_unused", "dead-code"),
        ("dead-code{entry=[]}", "dead-code"),
        ('fuse, dead-code{entry=["a","b"]}', 'fuse,dead-code{entry=["a","b"]}'),
        ("dead-code{entry=a}", 'dead-code{entry=["a"]}'),
        ("bind-params{params=w.npz}", "bind-params{params=w.npz}"),
        ("bind_params{params=7 func=f}", 'bind-params{params="7" func=f}'),
        ("fuse{level=0}", "fuse{level=0}"),
        ('bind-symbolic-vars{vars={"n": 3}}', 'bind-symbolic-vars{vars={"n":3}}'),
        ("O0", backends.get("llvm").level_pipeline(0)),
        ("canonicalize,O1", f"canonicalize,{backends.get('llvm').level_pipeline(1)}"),
    ],
)
def test_pipelines_read_and_print(text: str, printed: str) -> None:
    pipeline = Pipeline.parse(text)
    assert str(pipeline) == printed
    assert Pipeline.parse(str(pipeline)) == pipeline


def test_named_pipelines_are_pipelines() -> None:
    for text in backends.get("llvm").levels.values():
        assert str(Pipeline.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "codes", "said"),
    [
        ("fuze", ["E0501"], "did you mean `fuse`"),
        ("fuse,,dead-code", ["E0500"], "expected a name"),
        ("fuse{lvl=1}", ["E0502"], "did you mean `level`"),
        ("canonicalize{x=1}", ["E0502"], "it has no options"),
        ("fuse{level=high}", ["E0503"], "0 or 1 or 2 or 3 expected"),
        ("fuse{level=true}", ["E0503"], "0 or 1 or 2 or 3 expected"),
        ('dead-code{entry=["a", 3]}', ["E0503"], "a list of strings expected"),
        ("bind-params", ["E0504"], "needs the option `params`"),
        ("fuze,fuse{lvl=1},bind-params", ["E0501", "E0502", "E0504"], ""),
    ],
)
def test_everything_wrong_with_a_pipeline_is_said_at_once(text: str, codes: list[str], said: str) -> None:
    with pytest.raises(CompileError) as caught:
        Pipeline.parse(text)
    assert [d.code for d in caught.value.diagnostics] == codes
    assert said in str(caught.value)


# ---------------------------------------------------------------- running


@dataclass(frozen=True)
class Rename(Pass):
    """Give the module another name.

    Before:  class Module
    After:   class Other
    """

    name: ClassVar[str] = "rename"
    to: str = "Other"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        made = module.copy()
        made.name = self.to
        return made


@dataclass(frozen=True)
class FailingPass(Rename):
    """Fail."""

    name: ClassVar[str] = "broken"
    vars: Mapping[str, int] | None = None

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        raise KeyError("oops")


@dataclass(frozen=True)
class InPlace(Rename):
    """Change the module that is given."""

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        module.functions["f"] = None  # type: ignore[assignment]
        return module


class Log(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self.events.append(f"start {len(pipeline.passes)}")

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        self.events.append(f"before {at} {current.name} {module.name}")

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self.events.append(f"after {at} {current.name} {before.name} {module.name}")

    def finish(self) -> None:
        self.events.append("finish")


def test_observers_see_each_pass() -> None:
    log = Log()
    made = run_pipeline(Pipeline((Rename("A"), Rename("B"))), IRModule(), observers=[log])
    assert made.name == "B"
    assert log.events == [
        "start 2", "before 0 rename Module", "after 0 rename Module A", "before 1 rename A", "after 1 rename A B",
        "finish",
    ]  # fmt: skip


def test_a_bug_leaves_a_reproducer_that_names_the_rest_of_the_pipeline(tmp_path: Path) -> None:
    log = Log()
    rest = (FailingPass(vars={"n": 1}), DeadCode(("main",)))
    with pytest.raises(PassFailed, match="broken.*oops") as caught:
        run_pipeline(Pipeline((Rename("A"), *rest)), IRModule(), observers=[log])
    assert log.events[-1] == "finish"
    path = Path(caught.value.reproducer or "")
    text = path.read_text()
    path.unlink()
    assert directive(text) == 'broken{vars={"n":1}},dead-code{entry=["main"]}'
    assert "KeyError" in text
    assert "class A:" in text  # the module as it was before the pass that failed


def test_a_reproducer_names_the_target() -> None:
    with pytest.raises(PassFailed) as caught:
        run_pipeline(Pipeline((FailingPass(),)), IRModule(), PassContext(Target.parse("cuda{arch=sm_90}")))
    path = Path(caught.value.reproducer or "")
    assert path.read_text().splitlines()[1] == f"# mlcc passes {path} -t 'cuda{{arch=sm_90}}'"
    path.unlink()


def test_files_that_options_name_go_along_with_a_reproducer(tmp_path: Path) -> None:
    from mlcc.passes.graph.bind_params import BindParams

    (tmp_path / "w.npz").write_bytes(b"weights")
    pipeline = Pipeline((FailingPass(), BindParams("w.npz")))
    with pytest.raises(PassFailed) as caught:
        run_pipeline(pipeline, IRModule(), PassContext(folder=str(tmp_path)))
    path = Path(caught.value.reproducer or "")
    copy = path.with_name(f"{path.stem}-w.npz")
    assert copy.read_bytes() == b"weights"
    assert directive(path.read_text()) == f"broken,bind-params{{params={copy.name}}}"
    path.unlink()
    copy.unlink()


def test_a_pass_may_not_change_what_it_is_given() -> None:
    with pytest.raises(PassFailed, match="changed the module") as caught:
        run_pipeline(Pipeline((InPlace(),)), IRModule())
    Path(caught.value.reproducer or "/nonexistent").unlink(missing_ok=True)


def test_a_requirement_names_the_pass_that_provides_it() -> None:
    @dataclass(frozen=True)
    class Needy(Rename):
        requires: ClassVar[tuple[Requirement, ...]] = (
            Requirement(
                "rename", lambda module: [error("E0505", "it is called Module")] if module.name == "Module" else []
            ),
        )

    with pytest.raises(CompileError, match="run `rename` before"):
        run_pipeline(Pipeline((Needy(),)), IRModule())
    assert run_pipeline(Pipeline((Rename("A"), Needy("B"))), IRModule()).name == "B"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# PASSES: fuse,dead-code\nclass M: ...", "fuse,dead-code"),
        ("\n# hello\n#PASSES:fuse\n", "fuse"),
        ("class M: ...\n# PASSES: fuse", None),
        ("", None),
        ("# PASSES:\n", ""),
    ],
)
def test_directives_are_found_in_the_first_line(text: str, found: str | None) -> None:
    assert directive(text) == found


def test_inlining_is_bounded() -> None:
    """Forty functions, each calling the next twice, would make 2**40 bindings."""
    shape = 'R.Tensor((4,), "float32")'
    text = "@I.ir_module\nclass Module:\n"
    for i in range(40):
        body = f"Module.f{i + 1}(Module.f{i + 1}(x))" if i < 39 else "R.exp(x)"
        private = "(private=True)" if i else ""
        text += (
            f"    @R.function{private}\n    def f{i}(x: {shape}) -> {shape}:\n        y = {body}\n        return y\n"
        )
    with pytest.raises(mlcc.CompileError, match="E0513"):
        mlcc.run_passes(mlcc.parse(text), "inline-functions")
