"""The textual form `name{key=value}` of passes and targets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.errors import CompileError
from mlcc.options.text import format_item, parse_list, parse_one


def values(text: str) -> dict[str, object]:
    return {o.name: o.value for o in parse_one(text, "t", "E0500").options}


def test_list_of_names_and_options() -> None:
    items = parse_list(' a ,b{x=1 y="q r", z=["i", "j"]},\n c-d{m={"k": [1, null]}} ', "t", "E0500")
    assert [i.name for i in items] == ["a", "b", "c-d"]
    assert [(o.name, o.value) for o in items[1].options] == [("x", 1), ("y", "q r"), ("z", ["i", "j"])]
    assert items[2].options[0].value == {"k": [1, None]}
    assert parse_list("  ", "t", "E0500") == ()


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("7", 7), ("-3", -3), ("1e-3", 0.001), ("2.5", 2.5), ("true", True), ("null", None), ("w.npz", "w.npz"),
        ("../a/b-c_d.npz", "../a/b-c_d.npz"), ("a=b", "a=b"), ('"7"', "7"), ('"a\\nb"', "a\nb"), ("1.2.3", "1.2.3"),
        ("x86-64-linux", "x86-64-linux"), ("+avx2", "+avx2"), ("[]", []), ("{}", {}), ("T.axis", "T.axis"),
    ],
)  # fmt: skip
def test_values_keep_their_type(written: str, value: object) -> None:
    got = values(f"p{{key={written}}}")["key"]
    assert got == value
    assert type(got) is type(value)


def test_dash_and_underscore_are_the_same_and_flags_are_true() -> None:
    assert values("p{in-place max-size=3}") == {"in_place": True, "max_size": 3}


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a,,b", 3, "expected a name"),
        ("a,", 2, "nothing follows"),
        ("a b", 3, "expected `,`"),
        ("a{x=1", 2, "never closed"),
        ("a{x=}", 5, "no value"),
        ("a{x='b c'}", 5, "no value"),
        ("a{x=[1,}", 8, "not a JSON value"),
        ('a{x="b}', 5, "not a JSON value"),
        ('a{x={"k":1,"k":2}}', 5, "given twice"),
        ("a{x=1 x=2}", 7, "given twice"),
        ("a{x_y=1 x-y=2}", 9, "given twice"),
        ("a{=1}", 3, "expected an option"),
        ("\x00", 1, "expected a name"),
        ("a}", 2, "expected `,`"),
        ("a{x=" + "[" * 20000, 5, "not a JSON value"),
        ("a{x=[" + "9" * 5000 + "]}", 5, "not a JSON value"),
    ],
)
def test_errors_say_where(text: str, column: int, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_list(text, "PIPELINE", "E0500")
    (found,) = caught.value.diagnostics
    assert message in found.message
    assert found.code == "E0500"
    assert found.primary.span is not None
    assert found.primary.span.source.line_col(found.primary.span.start) == (1, column)
    assert str(caught.value).startswith(f"PIPELINE:1:{column}:")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
names = st.from_regex(r"[a-z][a-z0-9]{0,6}(_[a-z]{1,3})?", fullmatch=True)


@settings(deadline=None)
@given(st.dictionaries(names, json_values, max_size=4))
def test_what_is_printed_reads_back(options: dict[str, object]) -> None:
    text = format_item("p", options)
    assert values(text) == options
    again = {name: type(value) for name, value in values(text).items()}
    assert again == {name: type(value) for name, value in options.items()}


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        parse_list(text, "t", "E0500")
    except CompileError as exc:
        assert exc.diagnostics


def test_nan_reads_back() -> None:
    assert math.isnan(values(format_item("p", {"x": math.nan}))["x"])  # type: ignore[arg-type]
