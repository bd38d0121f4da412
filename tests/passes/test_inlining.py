"""Inlining takes whole bodies over, stays within bounds, and leaves what it must leave."""

from __future__ import annotations

import time

import mlcc
from mlcc.ir import relax
from mlcc.relax.queries import all_bindings

X = 'R.Tensor((4,), "float32")'


def bindings(module: mlcc.IRModule, name: str = "main") -> int:
    func = module[name]
    assert isinstance(func, relax.Function)
    return sum(1 for _ in all_bindings(func.body))


def doubling_text(levels: int) -> str:
    """Functions each of which calls the one before twice: with all of it inlined, 2**(levels - 1) additions."""
    lines = ["@I.ir_module", "class Module:"]
    for level in range(levels):
        call = f"cls.f{level - 1}"
        body = [f"a = {call}(x)", f"b = {call}(a)"] if level else ["b = R.add(x, x)"]
        lines += ["    @R.function(private=True)", f"    def f{level}(x: {X}) -> {X}:", "        cls = Module"]
        lines += [f"        {line}" for line in [*body, "return b"]]
    lines += ["    @R.function", f"    def main(x: {X}):", "        cls = Module"]
    lines += [f"        y = cls.f{levels - 1}(x)", "        return y"]
    return "\n".join(lines) + "\n"


def test_callees_of_callees_are_inlined() -> None:
    made = mlcc.run_passes(mlcc.parse(doubling_text(6)), "inline-functions,canonicalize")
    assert list(made) == ["main"]
    assert bindings(made) == 32


def test_cost_is_linear() -> None:
    """Four thousand bindings that are put in once: a cost that grows with the square would take minutes."""
    start = time.process_time()
    made = mlcc.run_passes(mlcc.parse(doubling_text(13)), "inline-functions")
    assert 4096 <= bindings(made) <= 3 * 4096
    assert time.process_time() - start < 60


def test_functions_that_call_themselves_stay() -> None:
    text = f"""
@I.ir_module
class Module:
    @R.function(private=True)
    def even(x: {X}, c: R.Tensor((), "bool")) -> {X}:
        cls = Module
        if c:
            y = cls.odd(x, c)
            r = y
        else:
            r = x
        return r

    @R.function(private=True)
    def odd(x: {X}, c: R.Tensor((), "bool")) -> {X}:
        cls = Module
        y = cls.even(x, c)
        return y

    @R.function(private=True)
    def plain(x: {X}) -> {X}:
        return x

    @R.function
    def main(x: {X}, c: R.Tensor((), "bool")) -> {X}:
        cls = Module
        y = cls.odd(x, c)
        z = cls.plain(y)
        return z
"""
    made = mlcc.run_passes(mlcc.parse(text), "inline-functions")
    assert list(made) == ["even", "odd", "main"]
    assert "cls.odd(x, c)" in mlcc.script(made)


def test_functions_inside_have_variables_of_their_own() -> None:
    """The same helper twice: what it defines is defined once for each call, and the verifier agrees."""
    text = f"""
@I.ir_module
class Module:
    @R.function(private=True)
    def helper(x: {X}) -> {X}:
        @R.function
        def inner(a: {X}) -> {X}:
            b = R.add(a, x)
            return b

        y = inner(x)
        return y

    @R.function
    def main(x: {X}) -> {X}:
        cls = Module
        y = cls.helper(x)
        z = cls.helper(y)
        return z
"""
    made = mlcc.run_passes(mlcc.parse(text), "inline-functions")
    main = made["main"]
    assert isinstance(main, relax.Function)
    inner = [v.value for v, _ in all_bindings(main.body) if isinstance(v.value, relax.Function)]  # type: ignore[attr-defined]
    assert len(inner) == 2
    assert inner[0].params[0] is not inner[1].params[0]


def test_sizes_that_are_given_as_numbers() -> None:
    text = """
@I.ir_module
class Module:
    @R.function(private=True)
    def helper(x: R.Tensor(("m",), "float32"), n: R.Prim(value="n")) -> R.Tensor(("m",), "float32"):
        m, n = T.int64(), T.int64()
        y: R.Tensor((n,), "float32") = R.zeros(R.shape([n]), "float32")
        z = R.match_cast(y, R.Tensor((m,), "float32"))
        w = R.add(x, z)
        return w

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        y = cls.helper(x, R.prim_value(4))
        return y
"""
    made = mlcc.script(mlcc.run_passes(mlcc.parse(text), "inline-functions"))
    assert "R.zeros(R.shape([4])" in made
