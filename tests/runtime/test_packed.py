"""Packed functions: views of the caller's memory, exceptions through native code, environments, the registry."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CallError, LoadError
from mlcc.runtime import registry
from mlcc.runtime.dlpack import TensorView
from mlcc.runtime.env import load_env
from mlcc.runtime.executable import Executable
from mlcc.runtime.loader import load
from mlcc.runtime.native_function import NativeFunction
from mlcc.runtime.packed import packed_function_error
from mlcc.runtime.registry import get_func, register_func, remove_func
from tests.runtime.hand_made import PRELUDE, artifact, manifest, tensor

# calls slot 0 with (x, weights in constant memory, y) and slot 1 with (a string, an int, a float, a bool, a shape, y)
SOURCE = r"""
static struct { packed fn; void *context; } slots[3];
static const float weights[2] = {5, 7};
int32_t m_set_packed_slot(int32_t slot, packed fn, void *context) {
    slots[slot].fn = fn;
    slots[slot].context = context;
    return 0;
}
static DLTensor make(void *data, uint8_t code, uint8_t bits, int32_t ndim, int64_t *shape) {
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data, t.device.type = 1, t.ndim = ndim, t.dtype.code = code, t.dtype.bits = bits, t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}
int32_t m_f_query(const arg *a, int64_t *out, int32_t all) { out[0] = 64; return 0; }
int32_t m_f_run(const arg *a, const int64_t *symbols, void *workspace) {
    int64_t two[1] = {2}, five[1] = {5}, shape[2] = {3, 4}, number = -9;
    double real = 0.5;
    char yes = 1, text[] = "hallo";
    DLTensor w = make((void *)weights, 2, 32, 1, two), y = make(a[1].t->data, 2, 32, 1, two);
    DLTensor *first[3];
    first[0] = a[0].t, first[1] = &w, first[2] = &y;
    if (slots[0].fn(slots[0].context, first, 3)) return 13 | 1 << 8;
    DLTensor s = make(text, 1, 8, 1, five), i = make(&number, 0, 64, 0, 0), d = make(&real, 2, 64, 0, 0);
    DLTensor b = make(&yes, 6, 8, 0, 0), n = make(shape, 0, 64, 1, two);
    DLTensor *second[6];
    second[0] = &s, second[1] = &i, second[2] = &d, second[3] = &b, second[4] = &n, second[5] = &y;
    if (slots[1].fn(slots[1].context, second, 6)) return 13 | 2 << 8;
    return 0;
}
const char *m_f_error(int32_t code) { return code == (13 | 1 << 8) ? "packed function `t.first` failed" : "other"; }

int32_t m_half_query(const arg *a, int64_t *out, int32_t all) { out[0] = 0; return 0; }
int32_t m_half_run(const arg *a, const int64_t *symbols, void *workspace) {
    DLTensor *both[2];
    both[0] = a[0].t, both[1] = a[1].t;
    return slots[2].fn(slots[2].context, both, 2) ? 13 | 3 << 8 : 0;
}
const char *m_half_error(int32_t code) { return "bad"; }
"""
F = {
    "kind": "relax", "symbol": "m_f", "symbols": [], "params": [tensor("x", "float32", [2])],
    "results": tensor("", "float32", [2], "out"),
}  # fmt: skip
HALF = {
    "kind": "relax", "symbol": "m_half", "symbols": [], "params": [tensor("x", "bfloat16", [4])],
    "results": tensor("", "bfloat16", [4], "out"),
}  # fmt: skip
PACKED = [
    {"name": "t.first", "args": ["tensor", "tensor"], "results": 1, "style": "dps"},
    {"name": "t.second", "args": ["str", "int", "float", "bool", "shape"], "results": 1, "style": "value"},
    {"name": "t.half", "args": ["tensor"], "results": 1, "style": "dps"},
]


@pytest.fixture(scope="module")
def exe(tmp_path_factory: pytest.TempPathFactory) -> Executable:
    return load(artifact(SOURCE, manifest({"f": F, "half": HALF}, PACKED), tmp_path_factory.mktemp("packed")))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    for name in ("t.first", "t.second", "t.half", "t.other"):
        remove_func(name)


def first(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    out[:] = x * w


def second(text: str, number: int, real: float, flag: bool, shape: tuple[int, ...]) -> np.ndarray:
    assert (text, number, real, flag, shape) == ("hallo", -9, 0.5, True, (3, 4))
    return np.array([number, real], np.float32)


X = np.array([2, 3], np.float32)


def test_arguments_of_every_kind_are_passed(exe: Executable) -> None:
    seen: dict[str, Any] = {}

    def looking(x: Any, w: Any, out: Any) -> None:
        views = [np.from_dlpack(v) for v in (x, w, out)]
        seen.update(x=views[0].ctypes.data, writable=[v.flags.writeable for v in views], w=views[1].tolist())
        views[2][:] = 1

    register_func("t.first", looking)
    register_func("t.second", second)
    assert exe["f"](X).tolist() == [-9, 0.5]
    assert seen["x"] == X.ctypes.data, "the caller's memory, not a copy"
    assert seen["w"] == [5, 7]
    assert seen["writable"] == [True, False, True], "constants are read-only"
    frozen = X.copy()
    frozen.flags.writeable = False
    exe["f"](frozen)
    assert seen["writable"] == [False, False, True], "what the caller passed read-only stays so"


def test_a_name_that_nobody_registered(exe: Executable) -> None:
    register_func("t.first", first)
    with pytest.raises(CallError, match="no packed function `t.second` is registered"):
        exe["f"](X)
    register_func("t.secnd", second)
    try:
        with pytest.raises(CallError, match="did you mean `t.secnd`"):
            exe["f"](X)
    finally:
        remove_func("t.secnd")
    register_func("t.second", second)
    assert exe["f"](X).tolist() == [-9, 0.5], "registered after loading"


def test_exceptions_come_through(exe: Executable) -> None:
    class Odd(Exception):
        pass

    def failing(x: Any, w: Any, out: Any) -> None:
        raise Odd("from inside")

    register_func("t.first", failing)
    with pytest.raises(Odd, match="from inside") as caught:
        exe["f"](X)
    assert any(entry.name == "failing" for entry in caught.traceback)
    shown = packed_function_error(caught.value)
    assert shown is not None and "packed function `t.first` raised Odd: from inside" in str(shown)
    assert "in failing" in str(shown) and packed_function_error(ValueError()) is None
    register_func("t.first", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()), override=True)
    with pytest.raises(KeyboardInterrupt):
        exe["f"](X)
    call = exe["f"].bind(X)
    register_func("t.first", first, override=True)
    register_func("t.second", second)
    assert call().tolist() == [-9, 0.5], "a bound call sees a function that was registered later"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "the result of packed function `t.second` is a NoneType, not an array"),
        (np.zeros(3, "f4"), r"is float32\[3\], expected float32\[2\]"),
        (np.zeros(2), r"is float64\[2\], expected float32\[2\]"),
    ],
)
def test_wrong_results_are_named(exe: Executable, value: Any, text: str) -> None:
    register_func("t.first", first)
    register_func("t.second", lambda *a: value)
    with pytest.raises(CallError, match=text):
        exe["f"](X)


def test_dtypes_that_numpy_lacks_come_as_views(exe: Executable) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def half(x: Any, out: Any) -> None:
        assert isinstance(x, TensorView) and x.dtype == "bfloat16" and x.shape == (4,)
        assert x.__dlpack_device__() == (1, 0)
        out.bits[:] = x.bits + 1
        assert "bfloat16" in repr(out)

    register_func("t.half", half)
    x = np.arange(4, dtype=np.float32).astype(ml_dtypes.bfloat16)
    y = exe["half"](x)
    assert y.dtype == ml_dtypes.bfloat16
    assert y.view(np.uint16).tolist() == (x.view(np.uint16) + 1).tolist()
    bits = exe["half"](x.view(np.uint16))
    assert bits.dtype == np.uint16 and bits.tolist() == y.view(np.uint16).tolist()


def test_a_view_tells_dlpack_its_true_dtype() -> None:
    from mlcc.runtime.dlpack import borrow, of_array

    bits = np.arange(3, dtype=np.uint16)
    plain = of_array(bits)
    view = TensorView(type(plain)(plain.address, plain.shape, None, (4, 16, 1), False, bits))

    class Foreign:
        def __dlpack__(self, **options: Any) -> Any:
            return view.__dlpack__(**options)

    for tensor_ in (borrow(Foreign()), borrow(view)):
        assert tensor_.dtype == "bfloat16" and tensor_.address == bits.ctypes.data


def test_memory_of_a_view_outlives_the_call(exe: Executable) -> None:
    kept: list[np.ndarray] = []
    register_func("t.first", lambda x, w, out: kept.append(out))
    register_func("t.second", second)
    for _ in range(50):
        exe["f"](X.copy())
    assert all(k.shape == (2,) for k in kept) and np.isfinite(sum(float(k.sum()) for k in kept))


def test_calls_nest_and_threads_keep_apart(exe: Executable) -> None:
    depth = threading.local()

    def nested(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
        level = getattr(depth, "level", 0)
        if level == 3:
            raise ValueError(f"at the bottom of {threading.get_ident()}")
        depth.level = level + 1
        try:
            exe["f"](x + 1)
        finally:
            depth.level = level

    register_func("t.first", nested)
    register_func("t.second", second)
    found: list[str] = []

    def work() -> None:
        for _ in range(20):
            with pytest.raises(ValueError, match=f"at the bottom of {threading.get_ident()}$"):
                exe["f"](X)
        found.append("done")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3


# ---------------------------------------------------------------- the registry


def test_a_name_is_taken_once() -> None:
    register_func("t.other", first)
    with pytest.raises(CallError, match="`t.other` is registered already"):
        register_func("t.other", second)
    assert register_func("t.other", second, override=True) is second
    assert get_func("t.other") is second and "t.other" in registry.registered()
    remove_func("t.other")
    assert get_func("t.other") is None
    with pytest.raises(CallError):
        register_func("t.other", 3)  # type: ignore[arg-type]


def test_it_is_a_decorator_too() -> None:
    @register_func("t.other", override=True)
    def one() -> None: ...

    assert get_func("t.other") is one

    @register_func
    def plainly_named() -> None: ...

    assert get_func("plainly_named") is plainly_named
    remove_func("plainly_named")


def test_printing_is_a_packed_function(capsys: pytest.CaptureFixture[str]) -> None:
    show = get_func("mlcc.print")
    assert show is not None
    show("x = {}, y = {}", np.arange(2), 3)
    show("", 1, 2)
    show("{} {}", 1)
    assert capsys.readouterr().out == "x = [0 1], y = 3\n1 2\n{} {} 1\n"


# ---------------------------------------------------------------- environments

LIBRARY = (
    PRELUDE
    + r"""
typedef struct {
    int32_t version;
    void *handle;
    int32_t (*add)(void *handle, const char *name, packed fn, void *context);
} mlcc_registry;
static float factor = 3;
static int32_t first(void *context, DLTensor **args, int32_t count) {
    float *x = args[0]->data, *y = args[2]->data;
    if (count != 3) return 1;
    if (x[0] < 0) return 42;
    y[0] = x[0] * *(float *)context;
    y[1] = x[1] * *(float *)context;
    return 0;
}
int mlcc_register(const mlcc_registry *r) { return r->version == 1 ? r->add(r->handle, "t.first", first, &factor) : 1; }
"""
)


def library(tmp_path: Path, text: str) -> str:
    (tmp_path / "env.c").write_text(text)
    subprocess.run(["cc", "-std=c99", "-shared", "-fPIC", "env.c", "-o", "env.so"], cwd=tmp_path, check=True)
    return str(tmp_path / "env.so")


def test_a_c_library_registers_functions(exe: Executable, tmp_path: Path) -> None:
    assert load_env(library(tmp_path, LIBRARY)) == ["t.first"]
    seen: list[list[float]] = []
    register_func("t.second", lambda *a: np.array([0, 0], np.float32))
    y = np.zeros(2, np.float32)
    first_native = get_func("t.first")
    assert isinstance(first_native, NativeFunction)
    first_native(X, X, y)
    assert y.tolist() == [6, 9]
    exe["f"](X)
    with pytest.raises(CallError, match="packed function `t.first` failed"):
        exe["f"](-X)
    with pytest.raises(CallError, match="failed with code 42"):
        first_native(-X, X, y)
    with pytest.raises(CallError, match="argument 0 of `t.first` is not contiguous"):
        first_native(np.zeros((4, 4), np.float32)[:, 0], X, y)
    register_func("t.first", lambda x, w, out: seen.append(x.tolist()), override=True)
    exe["f"](X)
    assert seen == [[2, 3]], "Python may take the name over"


def test_a_python_file_registers_functions(tmp_path: Path) -> None:
    path = tmp_path / "env.py"
    path.write_text("import mlcc\nmlcc.register_func('t.other', lambda out: None, override=True)\n")
    assert load_env(str(path)) == ["t.other"]


def test_environments_that_cannot_be_loaded(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("1 / 0\n")
    with pytest.raises(LoadError, match="ZeroDivisionError"):
        load_env(str(bad))
    with pytest.raises(LoadError, match="no such file"):
        load_env(str(tmp_path / "none.py"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LoadError, match="cannot load the environment"):
        load_env(str(tmp_path / "text.so"))
    with pytest.raises(LoadError, match="does not export mlcc_register"):
        load_env(library(tmp_path, "int other;"))
    refusing = LIBRARY.replace("r->version == 1 ?", "r->version == 0 ?")
    (tmp_path / "b").mkdir()
    with pytest.raises(LoadError, match="mlcc_register returned 1"):
        load_env(library(tmp_path / "b", refusing))
