"""Calls through the runtime: arguments of every kind, errors that say what is wrong, results, timing, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CallError
from mlcc.runtime.executable import Executable
from mlcc.runtime.loader import load
from tests.runtime.hand_made import artifact, manifest, tensor

# y[i, j] = x[i, j] * w[j] + s, with the checks that generated code makes: code 5 is "symbols disagree", 4 "shape"
SCALE = r"""
int32_t m_main_query(const arg *a, int64_t *out, int32_t all) {
    DLTensor *x = a[0].t, *w = a[1].t, *y = a[3].t;
    out[0] = 1000;
    out[1] = x->shape[0];
    if (x->shape[1] != 3 || w->shape[0] != 3) return 4;
    if (all && y->shape[0] != x->shape[0]) return 5;
    char *px = x->data, *py = y->data;
    if (all && py < px + x->shape[0] * 12 && px < py + x->shape[0] * 12) return 9;
    return 0;
}
int32_t m_main_run(const arg *a, const int64_t *symbols, void *workspace) {
    float *x = a[0].t->data, *w = a[1].t->data, *y = a[3].t->data;
    if ((uintptr_t)workspace % 64) return 10;
    memset(workspace, 1, 1000);
    for (int64_t i = 0; i < symbols[0]; i++)
        for (int j = 0; j < 3; j++) y[i * 3 + j] = x[i * 3 + j] * w[j] + (float)a[2].d;
    return 0;
}
const char *m_main_error(int32_t code) { return code == 9 ? "`out` overlaps" : "bad"; }

int32_t m_inc_query(const arg *a, int64_t *out, int32_t all) { out[0] = 0; out[1] = a[0].t->shape[0]; return 0; }
int32_t m_inc_run(const arg *a, const int64_t *symbols, void *workspace) {
    int32_t *x = a[0].t->data, *y = a[1].t->data;
    for (int64_t i = 0; i < symbols[0]; i++) y[i] = x[i] + 1;
    return 0;
}
const char *m_inc_error(int32_t code) { return "bad"; }
"""
MAIN = {
    "kind": "relax", "symbol": "m_main", "symbols": ["n"],
    "params": [
        tensor("x", "float32", ["n", 3]), tensor("w", "float32", [3]),
        {"kind": "scalar", "name": "s", "dtype": "float64"},
    ],
    "results": tensor("", "float32", ["n", 3], "out"),
}  # fmt: skip
INC = {
    "kind": "prim", "symbol": "m_inc", "symbols": ["n"],
    "params": [tensor("A", "int32", ["n"]), tensor("B", "int32", ["n"], "out")],
}  # fmt: skip


@pytest.fixture(scope="module")
def exe(tmp_path_factory: pytest.TempPathFactory) -> Executable:
    return load(artifact(SCALE, manifest({"main": MAIN, "inc": INC}), tmp_path_factory.mktemp("calls")))


X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([1, 10, 100], np.float32)


def refused(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(CallError) as caught:
        call(*args, **options)
    return str(caught.value)


def test_call_returns_results(exe: Executable) -> None:
    y = exe["main"](X, W, 0.5)
    assert y.dtype == np.float32 and y.shape == (2, 3)
    np.testing.assert_array_equal(y, X * W + 0.5)
    assert exe["main"](X[:0], W, 1.0).shape == (0, 3)


def test_out_is_written_and_returned(exe: Executable) -> None:
    out = np.zeros((2, 3), np.float32)
    assert exe["main"](X, W, 1, out=out) is out
    np.testing.assert_array_equal(out, X * W + 1)


def test_bound_call_reads_anew(exe: Executable) -> None:
    x, out = X.copy(), np.zeros((2, 3), np.float32)
    call = exe["main"].bind(x, W, 2.0, out=out)
    call()
    x[:] = 7
    assert call() is out
    np.testing.assert_array_equal(out, x * W + 2)


def test_strided_inputs_are_copied_at_each_call(exe: Executable) -> None:
    base = np.arange(12, dtype=np.float32).reshape(2, 6)
    call = exe["main"].bind(base[:, ::2], W, 0.0)
    np.testing.assert_array_equal(call(), base[:, ::2] * W)
    base[:] = 3
    np.testing.assert_array_equal(call(), base[:, ::2] * W)
    np.testing.assert_array_equal(exe["main"](np.asfortranarray(X), W[::-1], 0.0), X * W[::-1])


def test_strided_and_misaligned_outputs_are_copied_back(exe: Executable) -> None:
    wide = np.zeros((2, 6), np.float32)
    exe["main"](X, W, 0.0, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], X * W)
    assert not wide[:, 1::2].any()
    raw = np.zeros(25, np.uint8)
    shifted = raw[1:].view(np.float32).reshape(2, 3)
    exe["main"](X, W, 0.0, out=shifted)
    np.testing.assert_array_equal(shifted, X * W)


def test_prim_func_takes_or_makes_outputs(exe: Executable) -> None:
    a, b = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    assert exe["inc"](a, b) is None
    assert b.tolist() == [1, 2, 3, 4]
    assert exe["inc"](a).tolist() == [1, 2, 3, 4]
    assert exe["inc"].call_with_fresh_outputs([a, None]).tolist() == [1, 2, 3, 4]
    assert exe["inc"].call_with_fresh_outputs([a, b]) is b
    assert exe["inc"].parameter_names == ["A", "B"] and exe["inc"].output_names == ("B",)


def test_any_dlpack_array_is_an_argument(exe: Executable) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    class Old(Foreign):
        def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
            return self.array.__dlpack__()

    class Elsewhere(Foreign):
        def __dlpack_device__(self) -> Any:
            return 2, 0

    for kind in (Foreign, Old):
        np.testing.assert_array_equal(exe["main"](kind(X), kind(W), 0.0), X * W)
        np.testing.assert_array_equal(exe["main"](kind(np.asfortranarray(X)), W, 0.0), X * W)
    out = np.zeros((2, 3), np.float32)
    exe["main"](X, W, 1.0, out=Foreign(out))
    np.testing.assert_array_equal(out, X * W + 1)
    assert "`x` of `main` is an array in the memory of device type cuda" in refused(exe["main"], Elsewhere(X), W, 0.0)
    readonly = X.copy()
    readonly.flags.writeable = False
    np.testing.assert_array_equal(exe["main"](Foreign(readonly), W, 0.0), X * W)
    assert "is an array that cannot be exported" in refused(exe["main"], Old(readonly), W, 0.0)


def test_errors_name_the_argument(exe: Executable) -> None:
    main = exe["main"]
    assert "takes 3 arguments (x, w, s), got 2" in refused(main, X, W)
    assert "`x` of `main` is float64, expected float32(n, 3)" in refused(main, X.astype(float), W, 0.0)
    assert "`w` of `main` has 2 dimensions, expected float32(3,)" in refused(main, X, W[None], 0.0)
    assert "`x` of `main` is a str, not an array" in refused(main, "x", W, 0.0)
    assert "`s` of `main` is None, expected a number" in refused(main, X, W, None)
    assert "dim 1 of `x` is 4, expected 3: it has shape (2, 4), expected (n, 3)" in refused(
        main, np.zeros((2, 4), "f4"), W, 0
    )
    assert "dim n of `x` is 2, of `out` is 5" in refused(main, X, W, 0, out=np.zeros((5, 3), "f4"))
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    assert "`out` of `main` is read-only" in refused(main, X, W, 0.0, out=frozen)
    same = X.copy()
    assert "overlaps" in refused(main, same, W, 0.0, out=same)
    swapped = refused(main, X.astype(">f4"), W, 0.0)
    assert "a NumPy array of dtype >f4" in swapped or "of dtype float32" in swapped
    assert "takes 1 or 2 arguments" in refused(exe["inc"])
    assert "no function `mian`" in refused(lambda: exe["mian"])
    assert "did you mean `main`?" in refused(lambda: exe["mian"])
    several = refused(main, X.astype(float), W[None], "s")
    assert several.count("error[") == 3
    assert isinstance(CallError(()), TypeError) and isinstance(CallError(()), ValueError)


def test_timing_is_native(exe: Executable) -> None:
    timing = exe.time_evaluator("main", number=20, repeat=4)(X, W, 1.0)
    assert len(timing.times) == 4 and 0 < timing.min <= timing.median <= timing.max < 0.1
    assert exe.time_evaluator("inc")(np.zeros(4, np.int32)).mean > 0
    longer = exe.time_evaluator("main", number=1, repeat=2, min_seconds=1e-3)
    assert longer(X, W, 1.0).median < 1e-3
    assert "at least 1" in refused(exe.time_evaluator, "main", number=0)


def test_threads_may_share_a_function(exe: Executable) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((50, 3), seed, np.float32)
        for _ in range(200):
            if not np.array_equal(exe["main"](x, W, 1.0), x * W + 1):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_executable_lists_its_functions(exe: Executable) -> None:
    assert list(exe) == ["main", "inc"] and "main" in exe and "x" not in exe
    assert exe.manifest["functions"]["main"]["symbols"] == ["n"]
    assert "main, inc" in repr(exe) and "main(x, w, s)" in repr(exe["main"])
