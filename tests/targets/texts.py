"""Modules as text to executables, without passes: what the host tests start from."""

from __future__ import annotations

from mlcc.backends import BuildOptions
from mlcc.driver import run_passes
from mlcc.grammar.parser import parse
from mlcc.machine.target import LlvmTarget
from mlcc.runtime.executable import Executable
from mlcc.runtime.loader import load
from mlcc.targets.llvm.artifact import ObjectArtifact
from mlcc.targets.llvm.module import compile_module

RELU = """
    @T.prim_func(private=True)
    def relu(x: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n, m), "float32")
        Y = T.match_buffer(y, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.max(X[vi, vj], T.float32(0))
"""
ADD_ONE = """
    @T.prim_func(private=True)
    def add_one(x: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            with T.block("Y"):
                vi = T.axis.spatial(n, i)
                Y[vi] = X[vi] + T.float32(1)
"""


def module(*parts: str) -> str:
    """A module of functions, each indented as in a class."""
    return "@I.ir_module\nclass Module:\n" + "\n".join(parts)


def artifact(text: str, target: str = "llvm", opt_level: int = 1, **options: object) -> ObjectArtifact:
    """The artifact of a text."""
    given, where = parse(text), LlvmTarget.parse(target)
    lowered = run_passes(given, "lower", target=where, verify_each=False)
    return compile_module(lowered, where, BuildOptions(opt_level=opt_level, **options))  # type: ignore[arg-type]


def executable(text: str, **options: object) -> Executable:
    """The text compiled and loaded."""
    return load(artifact(text, **options))  # type: ignore[arg-type]
