"""`show()` and `script()` of modules, functions and schedules; colours where the terminal has them."""

from __future__ import annotations

import builtins
import io
import re
import sys
from typing import Any

import pytest

import mlcc

TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((16,), "float32")):
        y = R.add(x, R.const([1.0] * 16, "float32"))
        return R.add(y, R.const([LONG], "float32"))
""".replace("[1.0] * 16", str([1.0] * 16)).replace("[LONG]", str([[2.0]] * 17))
COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(value: Any, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **environment: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "stdout", stream)
    value.show()
    return stream.getvalue()


def test_functions_have_the_methods_of_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = mlcc.parse(TEXT)
    for value in (mod, mod["scale"], mod["main"], mod["main"].body):  # type: ignore[union-attr]
        assert value.script() == mlcc.script(value)
        assert value.script(dialect="tvm") == mlcc.script(value, dialect="tvm")
        assert shown(value, monkeypatch, io.StringIO()) == value.script()


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygments")
    mod = mlcc.parse(TEXT)
    text = shown(mod, monkeypatch, Terminal())
    assert COLOR.search(text)
    plain = mlcc.grammar.printer.printer.script(mod, data=False)  # type: ignore[attr-defined]
    assert COLOR.sub("", text) == plain and "mlcc.data" not in plain
    assert shown(mod["scale"], monkeypatch, Terminal(), NO_COLOR="1") == mod["scale"].script()
    assert not COLOR.search(shown(mod, monkeypatch, Terminal(), TERM="dumb"))
    forced = shown(mod, monkeypatch, io.StringIO(), FORCE_COLOR="1")
    assert COLOR.sub("", forced) == mod.script()
    sch = mlcc.Schedule(mod)
    assert COLOR.sub("", shown(sch, monkeypatch, Terminal())) == f"{plain}{sch.trace}\n"


def test_texts_are_plain_without_pygments(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pygments"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    func = mlcc.parse(TEXT)["scale"]
    assert shown(func, monkeypatch, Terminal()) == func.script()
