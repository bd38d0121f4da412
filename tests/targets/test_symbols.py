"""What objects leave undefined: only what the loader resolves and `cc app.c m.o -lm` links."""

from __future__ import annotations

import pytest

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import ForKind
from mlcc.runtime.elf import read_object
from mlcc.targets.llvm.codegen.libm import ALLOWED
from mlcc.targets.llvm.object.compile import Machine, compile_text
from tests.generate.functions import prim_func
from tests.targets.build import elementwise, func, loop
from tests.targets.harness import kernel_module
from tests.targets.test_operators import FLOAT_OPERATORS, FLOATS, INTS, MATH, MATH_2, int_operators

MACHINES = [Machine(), Machine(cpu="x86-64-v4"), Machine("aarch64-unknown-linux-gnu", "generic")]


def undefined(func: tir.PrimFunc, machine: Machine) -> set[str]:
    obj = read_object(compile_text(kernel_module(func, machine).text(), machine, 1).obj)
    return {s.name for s in obj.symbols if s.section == 0 and s.bind == 1}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.cpu)
@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.VECTORIZED], ids=lambda k: k.value)
def test_operators_leave_only_allowed_symbols(machine: Machine, kind: ForKind) -> None:
    found: set[str] = set()
    for dtype in FLOATS:
        results = [(dtype, fn) for fn, _ in FLOAT_OPERATORS.values()]
        results += [(dtype, lambda a, b, n=n: c.call(a.dtype, n, a)) for n in MATH]
        results += [(dtype, lambda a, b, n=n: c.call(a.dtype, n, a, b)) for n in MATH_2]
        found |= undefined(elementwise(8, [dtype, dtype], results, kind), machine)
    for dtype in (*INTS, *FLOATS, "bool"):
        targets = [(t, lambda a, t=t: tir.Cast(DType.of(t), a)) for t in (*INTS, *FLOATS, "bool")]
        found |= undefined(elementwise(8, [dtype], targets, kind), machine)
    for dtype in INTS:
        results = [(dtype, fn) for fn, _ in int_operators(dtype).values()]
        found |= undefined(elementwise(8, [dtype, dtype], results, kind), machine)
    assert "fmodf" in found
    assert found <= ALLOWED, sorted(found - ALLOWED)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.cpu)
def test_generated_functions_leave_only_allowed_symbols(machine: Machine) -> None:
    found = set().union(*(undefined(prim_func(seed), machine) for seed in range(12)))
    assert found <= ALLOWED, sorted(found - ALLOWED)


def test_long_copies_call_libc() -> None:
    """Loops that LLVM recognises call the memory functions of libc."""
    i = tir.Var("i", DType.of("int32"))
    a, b = c.make_buffer("A", (5000,), "int8"), c.make_buffer("B", (5000,), "int8")
    body = [c.store(b, c.load(a, i), i)]
    assert undefined(func([a, b], loop(i, 5000, body)), MACHINES[0]) <= {"memcpy", "memmove"}
