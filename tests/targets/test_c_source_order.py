"""The order of effects in C source: calls of C functions that have them, and the loads and stores of vectors."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from tests.targets.c_source import FLAGS, load, source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

UNDEFINED = (*FLAGS, "-fsanitize=undefined")
LIBRARY = """
#include <stdint.h>
int32_t next_id(void);
int32_t increment(int32_t *x);
static int32_t count;
int32_t next_id(void) { return ++count; }
int32_t increment(int32_t *x) { return ++*x; }
"""


def agree(text: str, tmp_path: Path, *args: np.ndarray) -> None:
    """C source and the interpreter agree on a function that may call `next_id` and `increment`."""
    library = tmp_path / "library.c"
    library.write_text(LIBRARY)
    (func,) = mlcc.parse(text).functions.values()
    assert isinstance(func, tir.PrimFunc)
    count = itertools.count(1)

    def increment(x: np.ndarray) -> int:
        x[0] += 1
        return int(x[0])

    given, expected = [a.copy() for a in args], [a.copy() for a in args]
    run_prim_func(func, expected, env={"next_id": lambda: next(count), "increment": increment})
    for level in (0, 2):
        given = [a.copy() for a in args]
        artifact = source(func, level, allow_extern=("next_id", "increment"))
        exe = load(artifact, UNDEFINED, libraries=(str(library),))
        exe[next(iter(exe.functions))](*given)
        for a, b in zip(given, expected, strict=True):
            np.testing.assert_array_equal(a, b)


ID = 'T.call_extern("int32", "next_id")'
INCREMENT = 'T.call_extern("int32", "increment", T.address_of(A[6]))'
CALLS = {
    "a result that nothing uses": f"x: T.int32 = {ID}\n    y: T.int32 = {ID}\n    A[0] = y",
    "a temporary that nothing reads": f"""t = T.alloc_buffer((4,), "int32")
    for i in range(4):
        t[i] = {ID}""",
    "a result that is used twice": f"x: T.int32 = {ID}\n    A[0] = x\n    A[1] = x",
    "both operands": f"A[0] = {ID} * 10 - {ID}",
    "all lanes of a vector": f"A[T.Ramp(0, 1, 4)] = T.Broadcast({ID}, 4) * A[T.Ramp(4, 1, 4)]",
    "the first of all places": f"A[T.Ramp({ID}, 1, 4)] = A[T.Ramp(4, 1, 4)]",
    "the value before the place": f"A[{ID}] = {ID} + 10",
    "bounds": f"for i in range({ID}, {ID} + 3):\n        A[i] = i",
    "a condition": f"if {ID} + {ID} == 3:\n        A[0] = {ID}",
    "a while loop": f"while {ID} < 4:\n        A[0] = A[0] + {ID}",
    "the arms of a choice": f"for i in range(4):\n        A[i] = T.if_then_else(A[i] > 2, {ID}, 0 - {ID})",
    "an arm that nothing uses": f"for i in range(4):\n        T.evaluate(T.if_then_else(A[i] > 2, {ID}, 0))",
    "a choice in a choice": f"""for i in range(10):
        if T.if_then_else(i < 8, T.if_then_else(A[T.min(i, 7)] > 2, {ID} > 1, {ID} > 3), {ID} > 4):
            A[0] = A[0] + 100""",
    "a logical operator": f"for i in range(4):\n        if A[i] > 2 and {ID} > 1 or {ID} > 5:\n            A[i] = 50",
    "a load before the call": f"A[0] = A[6] * 10 + {INCREMENT}",
    "a load after the call": f"A[0] = {INCREMENT} * 10 + A[6]",
    "a load in a choice": f"A[0] = T.if_then_else(A[1] > 0, A[6] * 10 + {INCREMENT}, {INCREMENT})",
    "the load of a condition": f"A[0] = T.Select(A[6] > 4 and {INCREMENT} > A[6] - 1, A[6], {ID})",
    "the value of a variable in an expression": f"A[0] = T.Let(x * x + x, where={{x: {ID}}})",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_effects_happens_once_and_in_order(name: str, tmp_path: Path) -> None:
    declared = "x = T.int32()\n    " if "where=" in CALLS[name] else ""
    text = f'@T.prim_func\ndef f(A: T.Buffer((8,), "int32")):\n    {declared}{CALLS[name]}\n    A[7] = {ID}\n'
    agree(text, tmp_path, np.array([3, 1, 4, 1, 5, 9, 4, 6], "int32"))


VECTORS = {
    "places that the store changes": "A[A[T.Ramp(0, 1, 4)]] = T.Broadcast(7, 4)",
    "a store under a condition": """if A[T.Ramp(0, 1, 4)] > T.Broadcast(0, 4):
        A[T.Ramp(1, 1, 4)] = A[T.Ramp(0, 1, 4)]""",
    "both arms of a condition": """if A[T.Ramp(4, 1, 4)] > T.Broadcast(5, 4):
        A[T.Ramp(1, 1, 4)] = A[T.Ramp(0, 1, 4)] + T.Broadcast(A[1], 4)
    else:
        A[A[T.Ramp(0, 1, 4)]] = T.Ramp(A[3], 2, 4)""",
    "lanes that are outside where they are not taken": """if A[T.Ramp(0, 1, 4)] < T.Broadcast(4, 4):
        A[T.Ramp(4, 1, 4)] = A[T.Ramp(0, 1, 4) * A[T.Ramp(0, 1, 4)]]""",
    "places and values that the store changes": "A[A[T.Ramp(0, 1, 4)]] = A[A[T.Ramp(4, 1, 4)]]",
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_loaded_before_it_is_stored(name: str, tmp_path: Path) -> None:
    text = f'@T.prim_func\ndef f(A: T.Buffer((8,), "int32")):\n    {VECTORS[name]}\n'
    agree(text, tmp_path, np.array([1, 2, 3, 0, 5, 6, 4, 7], "int32"))
