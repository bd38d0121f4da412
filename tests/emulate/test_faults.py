"""Planted faults: each is found, with both places, and what is sound is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CallError, Diagnostic
from mlcc.ir import tir
from mlcc.ir.node import field_names
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.targets.emulate import run_program
from tests.emulate.kernels import FULL, program, rand, run

HEAD = """
@T.prim_func
def f(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    T.func_attr({"mlcc.manual_barriers": True})
    bx = T.launch_thread("blockIdx.x", 2)
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((128,), "float32", scope="shared")
    L = T.alloc_buffer((4,), "float32", scope="local")
"""


def findings(body: str) -> list[Diagnostic]:
    try:
        run(HEAD + body, rand(256), np.zeros(256, "float32"))
    except CallError as exc:
        return list(exc.diagnostics)
    return []


def marked_places(found: Diagnostic) -> tuple[str, ...]:
    """The code, and the marked text of both places with what is said of it."""
    labels = [found.primary, *found.related]
    texts = [x.span.source.text[x.span.start : x.span.end] for x in labels if x.span is not None]
    return (found.code, *(f"{text}: {label.text}" for text, label in zip(texts, labels, strict=True)))


def test_missing_barriers_are_found() -> None:
    (found,) = findings("    S[tx] = A[bx * 128 + tx]\n    B[bx * 128 + tx] = S[127 - tx]\n")
    assert marked_places(found) == (
        "E0742", "S[tx] = A[bx * 128 + tx]: thread 64 of block 0 writes it",
        "S[127 - tx]: thread 63 of block 0 reads it here",
    )  # fmt: skip
    assert "`S[64]`" in found.message


def test_a_missing_barrier_at_the_end_of_a_loop() -> None:
    """The next iteration writes what others may still read."""
    body = """
    L[0] = T.float32(0)
    for k in range(3):
        S[tx] = A[bx * 128 + tx] + T.Cast("float32", k)
        T.tvm_storage_sync("shared")
        L[0] = L[0] + S[127 - tx]
"""
    (found,) = findings(f"{body}    B[bx * 128 + tx] = L[0]\n")
    assert found.code == "E0742"
    body += '        T.tvm_storage_sync("shared")\n'
    assert not findings(f"{body}    B[bx * 128 + tx] = L[0]\n")


def test_a_barrier_in_a_condition() -> None:
    (found,) = findings('    if tx < 100:\n        T.tvm_storage_sync("shared")\n    B[bx * 128 + tx] = A[tx]\n')
    assert marked_places(found) == (
        "E0740", 'T.tvm_storage_sync("shared"): thread 99 of block 0 waits here',
        "tx < 100: thread 127 of block 0 diverges here",
    )  # fmt: skip


def test_a_barrier_in_a_loop_of_various_lengths() -> None:
    (found,) = findings('    for k in range(tx // 64 + 1):\n        T.tvm_storage_sync("shared")\n')
    assert found.code == "E0740" and found.primary.text == "thread 127 of block 0 waits here"


def test_a_condition_that_is_the_same_for_all_threads_at_run_time_only() -> None:
    assert not findings('    if A[bx] < T.float32(2):\n        T.tvm_storage_sync("shared")\n')


def test_two_writes_of_different_values() -> None:
    (found,) = findings("    S[tx // 2] = A[bx * 128 + tx]\n")
    assert marked_places(found) == (
        "E0741", "S[tx // 2] = A[bx * 128 + tx]: thread 1 of block 0 writes it",
        "S[tx // 2] = A[bx * 128 + tx]: thread 0 of block 0 writes it here",
    )  # fmt: skip
    assert not findings("    S[tx // 2] = A[bx * 128]\n"), "one value"


def test_blocks_that_write_to_one_place() -> None:
    (found,) = findings("    B[tx] = A[bx * 128 + tx]\n")
    assert found.code == "E0741" and found.primary.text == "thread 0 of block 1 writes it"
    (found,) = findings("    B[bx * 128 + tx] = A[tx]\n    if bx == 1:\n        L[0] = B[tx]\n")
    assert found.code == "E0742" and found.primary.text == "thread 0 of block 1 reads it"


@pytest.mark.parametrize(
    ("body", "name", "count", "text"),
    [
        ("    S[tx + 1] = A[tx]\n", "S[128]", 128, "thread 127 of block 0 writes"),
        ("    B[bx * 128 + tx] = A[bx * 128 + tx - 1]\n", "A[-1]", 256, "thread 0 of block 0 reads"),
        ("    B[bx * 128 + tx + 1] = T.float32(0)\n", "B[256]", 256, "thread 127 of block 1 writes"),
        ("    L[tx // 32 + bx] = T.float32(0)\n", "L[4]", 4, "thread 96 of block 1 writes"),
        (
            "    B[A[tx] + 300] = A[bx * 128 + tx]\n".replace("A[tx]", 'T.Cast("int32", A[tx])'),
            "B[300]",
            256,
            "thread 0",
        ),
    ],
)
def test_accesses_outside_are_found(body: str, name: str, count: int, text: str) -> None:
    (found,) = findings(body)
    assert found.code == "E0744"
    assert found.message == f"`{name}` is out of bounds: `{name[0]}` has {count} elements"
    assert found.primary.text.startswith(text)


def test_shared_memory_that_nobody_wrote() -> None:
    (found,) = findings("    if tx < 64:\n        S[tx] = A[tx]\n    B[bx * 128 + tx] = S[tx]\n")
    assert found.code == "E0743" and found.primary.text == "thread 64 of block 0 reads it"


def test_lanes_of_vectors_that_are_off() -> None:
    """A vector store under a condition by lane: only those that are on are looked at."""
    body = """
    if tx < 32:
        for v in T.vectorized(4):
            if tx * 4 + v < {bound}:
                S[tx * 4 + v + {shift}] = A[tx * 4 + v]
    T.tvm_storage_sync("shared")
    B[bx * 128 + tx] = S[tx]
"""
    assert not findings(body.format(bound=128, shift=0))
    (found,) = findings(body.format(bound=126, shift=0))
    assert found.code == "E0743" and found.primary.text == "thread 126 of block 0 reads it"
    outside, _ = findings(body.format(bound=127, shift=2))
    assert outside.code == "E0744" and "`S[128]`" in outside.message


def test_lanes_that_a_shuffle_waits_for() -> None:
    body = "    if tx % 32 < 16:\n        B[bx * 128 + tx] = T.tvm_warp_shuffle_xor({}, A[tx], 1, 32, 32)\n"
    (found,) = findings(body.format(FULL))
    assert found.code == "E0745" and found.related[0].text == "thread 31 of block 0 diverges here"
    assert not findings(body.format("T.uint32(0xFFFF)"))
    assert not findings(body.format("T.tvm_warp_activemask()"))


def test_barriers_of_a_warp_order_its_lanes_only() -> None:
    """They order the lanes of a warp, not those of others."""
    body = """
    S[tx] = A[bx * 128 + tx]
    T.tvm_storage_sync("warp")
    B[bx * 128 + tx] = S[{}]
"""
    assert not findings(body.format("tx // 32 * 32 + (tx + 1) % 32"))
    (found,) = findings(body.format("(tx + 32) % 128"))
    assert found.code == "E0742"


def test_atomics_do_not_race() -> None:
    assert not findings("    T.evaluate(T.atomic_add(T.address_of(B[tx % 4]), A[tx]))\n")


def test_places_without_a_source_are_shown_as_lowered() -> None:
    """What passes make has no place in a text."""
    made = program(HEAD + "    S[tx] = A[tx]\n    B[bx * 128 + tx] = S[127 - tx]\n")
    (kernel,) = made.kernels
    body = tuple(rewrite_bottom_up(s, _without_place) for s in kernel.body)
    made = replace(made, kernels=(replace(kernel, body=body),))
    with pytest.raises(CallError, match=r"f_kernel \(as lowered\):1:1: error\[E0742\]") as caught:
        run_program(made, rand(256), np.zeros(256, "float32"))
    assert "= S[127 - " in str(caught.value)


def _without_place(node: Any) -> Any:
    fields = {n: getattr(node, n) for n in field_names(type(node))}
    return node if isinstance(node, (tir.Var, tir.Buffer)) else type(node)(**fields)
