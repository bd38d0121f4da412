"""Accesses that are certainly outside: what is reported does fail, and well-defined functions give no finding."""

from __future__ import annotations

import time

import pytest

import mlcc
from mlcc.errors import MlccError
from mlcc.interp import run_prim_func
from mlcc.passes.manage.manager import Pass
from mlcc.passes.manage.observers import VerifyEach
from mlcc.verify import verify
from tests.generate.faults import planted
from tests.generate.functions import prim_func
from tests.targets.arguments import arguments

COPY = """
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in range({loop}):
        B[i] = A[i]
"""


@pytest.mark.parametrize("batch", range(4))
def test_reported_functions_fail_in_the_interpreter(batch: int, all_cases: bool) -> None:
    """A reported function fails in the interpreter with an index out of bounds, whatever the arguments."""
    for seed in range(batch * 1000, batch * 1000 + (200 if all_cases else 25)):
        func = prim_func(seed)
        assert "E0355" not in {d.code for d in verify(func)}, seed
        for number in range(2):
            changed = planted(func, 10 * seed + number)
            if "E0355" in {d.code for d in verify(changed)}:
                args, _ = arguments(func, seed)
                with pytest.raises(MlccError) as raised:
                    run_prim_func(changed, args)
                assert raised.value.diagnostics[0].code in ("E0870", "E0871"), seed


@pytest.mark.parametrize("n", [0, 1, 7, 8, 97])
def test_loops_one_too_long_are_reported(n: int) -> None:
    assert verify(mlcc.parse(COPY.format(n=n, loop=n))) == []
    found = verify(mlcc.parse(COPY.format(n=n, loop=n + 1)))
    assert [d.code for d in found] == ["E0355", "E0355"]
    assert f"index {n} in dimension 0 of extent {n}" in found[0].message


def test_every_path_refuses() -> None:
    module = mlcc.parse(COPY.format(n=8, loop=9))
    for run in (lambda: mlcc.build(module), lambda: mlcc.run_passes(module, "lower-loops")):
        with pytest.raises(mlcc.CompileError, match="E0355"):
            run()


def test_sizes_that_a_pass_brings() -> None:
    """A finding that shows only once sizes are known is the user's, not a bug of the pass."""
    before, after = (mlcc.parse(COPY.format(n=8, loop=n)) for n in (8, 9))
    with pytest.raises(mlcc.CompileError, match="E0355"):
        VerifyEach().after(0, Pass(), before, after)


def test_large_functions_take_no_longer_than_reading_them() -> None:
    """Hundreds of padded accesses under conditions: the search for witnesses is bounded."""
    body = "".join(
        f"    for i, j, k in T.grid(16, 16, 16):\n        if i * 16 + j + {n} < 250 and k < j:\n"
        f"            B[i * 16 + j + {n}] = A[i * 16 + T.max(j + {n}, k)]\n"
        for n in range(300)
    )
    head = 'def main(A: T.Buffer((2000,), "float32"), B: T.Buffer((250,), "float32")):\n'
    module = mlcc.parse("@T.prim_func\n" + head + body)
    start = time.process_time()
    assert verify(module) == []
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("index", "greatest"),
    [
        ("i % 9", 8),
        ("(i * 4 + 3) % 9", 8),
        ("T.truncmod(i, 11)", 10),
        ("(7 - i) % 9", 8),
        ("T.if_then_else(i == 7, 8, 0)", 8),
    ],
)
def test_indices_that_are_extreme_inside_of_a_loop(index: str, greatest: int) -> None:
    text = f"""
@T.prim_func
def main(B: T.Buffer((8,), "float32")):
    for i in range(64):
        B[{index}] = T.float32(0)
"""
    (found,) = verify(mlcc.parse(text))
    assert f"index {greatest} in dimension 0 of extent 8" in found.message
    fine = text.replace("(8,)", f"({greatest + 1},)")
    assert verify(mlcc.parse(fine)) == []
