"""Whatever the text: a module, or diagnostics. Random tokens, and valid texts with random damage."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.errors import CompileError, Source, render
from mlcc.grammar.syntax.reader import parse_syntax

VALID = """\
n = TypeVar("n")
@I.ir_module
class Module:
    I.module_attrs({"k": 1})

    @T.prim_func(private=True)
    def f(a: T.handle, B: T.Buffer((16, n), "float32"), m: T.int32) -> None:
        T.func_attr({"tir.noalias": True})
        A = T.match_buffer(a, (16, n), "float32", strides=(n, 1), offset_factor=1)
        C = T.alloc_buffer((16,), "int8", scope="shared")
        x: T.int32 = m * 2 + 1
        for i, j in T.grid(16, n):
            with T.block("X"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.reads(A[vi, 0:4])
                T.where(vi < m)
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + T.exp(A[vi, vj]) * T.max(0.5, A[vi, 0])
        for k in T.vectorized(0, 4, annotations={"p": [1, "s"]}):
            if k < x and not k == 3:
                C[k] = T.Cast("int8", k // 2) if k > 1 else T.int8(3)
            else:
                C[k:k + 4:1] = T.Broadcast(T.int8(1), 4)
        while m < 3:
            T.evaluate(T.call_extern("int32", "f", C.access_ptr("r"), T.Let(m, where={x: 1})))
            break
        assert m > 1, ("ValueError", ["a", "b"])
        with T.attr(T.comm_reducer(lambda p, q: p + q, [T.float32(0)]), "key", 1):
            tx = T.launch_thread("threadIdx.x", 4)
            T.evaluate(tx)
        return m
"""
PIECES = sorted(
    set(VALID.split()) | set("()[]{},:;=.*@-+<>~\\\"'#") | {"\n", "\n    ", "\n        ", "\t", "\0", "é", "“"}
)

soup = st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join)
places = st.integers(0, len(VALID))
damage = st.lists(
    st.tuples(places, st.integers(0, 30), st.sampled_from([*PIECES, "", "9" * 30, "T.", "...", "x" * 10])),
    min_size=1, max_size=4,
)  # fmt: skip

LIMITS = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def attempt(text: str) -> None:
    try:
        mlcc.parse(text)
    except CompileError as refused:
        assert refused.diagnostics
        for diagnostic in refused.diagnostics:
            assert render(diagnostic)
            span = diagnostic.primary.span
            assert span is None or (span.source.text == text and 0 <= span.start <= span.end <= len(text) + 1)


def damaged(edits: list[tuple[int, int, str]]) -> str:
    text = VALID
    for start, length, piece in edits:
        text = text[:start] + piece + text[start + length :]
    return text


@LIMITS
@given(soup)
def test_random_tokens_end_in_a_module_or_diagnostics(text: str) -> None:
    attempt(text)
    attempt("@T.prim_func\ndef f(A: T.Buffer((4,), 'int8'), n: T.int32):\n    " + text)
    try:
        parse_syntax(Source("t", text), "script")
    except CompileError as refused:
        assert refused.diagnostics


@LIMITS
@given(damage)
def test_damaged_texts_end_in_a_module_or_diagnostics(edits: list[tuple[int, int, str]]) -> None:
    attempt(damaged(edits))


@LIMITS
@given(st.text(max_size=80))
def test_random_characters_end_in_a_module_or_diagnostics(text: str) -> None:
    attempt(text)


def test_the_text_is_valid_before_the_damage() -> None:
    assert list(mlcc.parse(VALID.replace("T.Let(m, where={x: 1})", "m")).functions) == ["f"]
