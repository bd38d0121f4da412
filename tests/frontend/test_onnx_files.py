"""ONNX files as strangers send them: what is wrong ends in a diagnostic, and nothing outside of a folder is read."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_onnx
from tests.frontend.onnx_check import check
from tests.frontend.onnx_models import FLOAT, model, node, value

pytestmark = pytest.mark.usefixtures("onnx")


def _code(given: Any, **options: Any) -> str:
    with pytest.raises(mlcc.CompileError) as caught:
        from_onnx(given, **options)
    return str(caught.value.diagnostics[0].code)


def _sum(**options: Any) -> Any:
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    return model([node("Add", ["x", "w"])], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, None)}, {"w": weight}, **options)


# ---------------------------------------------------------------- files


def test_paths_bytes_and_models_import_alike(tmp_path: Path) -> None:
    given = model([node("Relu", ["x"])], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])})
    path = tmp_path / "m.onnx"
    path.write_bytes(given.SerializeToString())
    texts = {mlcc.script(from_onnx(source)) for source in (given, given.SerializeToString(), path, str(path))}
    assert len(texts) == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    whole = _sum().SerializeToString()
    for data in (b"", b"PK\x03\x04", b"# text", whole[: len(whole) // 2], os.urandom(100)):
        assert _code(data) in ("E1041", "E1042", "E1043", "E1046")
    assert _code(tmp_path / "absent.onnx") == "E0001"
    with pytest.raises(TypeError):
        from_onnx(3)


def test_unsupported_versions_are_refused() -> None:
    assert _code(_sum(opset=6)) == "E1042"
    assert _code(_sum(opset=99)) == "E1042"
    given = _sum()
    given.ir_version = 99
    assert _code(given) == "E1042"
    assert _code(_sum(), opset=3) == "E1042"


# ---------------------------------------------------------------- external data


def _external(location: str, **entries: str) -> Any:
    from onnx import TensorProto

    given = _sum()
    tensor = given.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return given


def test_external_data_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + np.arange(6, dtype="float32").tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(_external("w.bin", offset="8", length="24").SerializeToString())
    run = mlcc.load(mlcc.build(from_onnx(path)))["main"]
    np.testing.assert_array_equal(run(np.ones((2, 3), "float32")), np.arange(6).reshape(2, 3) + 1)


def test_external_data_stay_in_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(b"\0" * 24)
    (folder / "link").symlink_to(secret)
    path = folder / "m.onnx"
    for location in ("../secret", str(secret), "link", "a/../../secret", "", "absent", ".", "..\\secret", "a\0b"):
        path.write_bytes(_external(location).SerializeToString())
        assert _code(path) == "E1044", location
    assert _code(_external("w.bin")) == "E1044"  # no folder


@pytest.mark.parametrize("entries", [{"offset": "-1"}, {"offset": "9" * 30}, {"length": "25"}, {"offset": "x"}])
def test_places_outside_of_external_data(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    path = tmp_path / "m.onnx"
    path.write_bytes(_external("w.bin", **entries).SerializeToString())
    assert _code(path) == "E1044"


# ---------------------------------------------------------------- graphs


def test_nodes_in_any_order() -> None:
    nodes = [node("Relu", ["b"]), node("Neg", ["a"], ["b"]), node("Exp", ["x"], ["a"])]
    given = model(nodes, {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    check(given, np.ones(3, "float32"), expected=[np.zeros(3, "float32")])


@pytest.mark.parametrize(
    "nodes",
    [
        [("Add", ["x", "b"], ["a"]), ("Neg", ["a"], ["b"]), ("Neg", ["a"], ["y"])],  # a circle
        [("Neg", ["absent"], ["y"])],
        [("Neg", ["x"], ["y"]), ("Exp", ["x"], ["y"])],  # made twice
    ],
)
def test_graphs_that_are_not_sound(nodes: list[Any]) -> None:
    assert _code(model([node(*n) for n in nodes], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})) == "E1043"


def test_everything_that_is_unknown_is_listed_at_once() -> None:
    nodes = [
        node("Nonsense", ["x"], ["a"]),
        node("Nonsense", ["a"], ["b"]),
        node("FusedThing", ["x"], ["c"], domain="com.example"),
        node("Add", ["b", "c"]),
    ]
    with pytest.raises(mlcc.CompileError) as caught:
        from_onnx(model(nodes, {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}))
    messages = [d.message for d in caught.value.diagnostics]
    assert any("`Nonsense`, 1x" in m for m in messages) and any("`com.example.FusedThing`" in m for m in messages)


def test_huge_shapes_take_no_memory() -> None:
    given = _sum()
    given.graph.initializer[0].dims[:] = [2**40, 2**40]
    assert _code(given) == "E1002"
    given.graph.initializer[0].dims[:] = [-1, 3]
    assert _code(given) == "E1002"


def test_more_nodes_than_are_taken_end_soon() -> None:
    given = model([node("Relu", ["x"])], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    given.graph.ClearField("node")
    given.graph.node.extend([node("Nonsense", ["x"], [""])] * 100_001)
    assert _code(given) == "E1045"


def test_initializers_that_are_inputs_have_defaults() -> None:
    given = _sum()
    given.graph.input.append(value("w", FLOAT, [2, 3]))
    assert 'def main(x: R.Tensor(("n", 3), dtype="float32")) ->' in mlcc.script(from_onnx(given))


def test_shapes_and_names_that_are_given() -> None:
    given = model([node("Relu", ["x"])], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, None)})
    assert 'x: R.Tensor((2, 3), dtype="float32")' in mlcc.script(from_onnx(given, {"x": [2, 3]}))
    assert 'x: R.Tensor(("batch", 3)' in mlcc.script(from_onnx(given, {"x": ["batch", 3]}))
    assert _code(given, shape_dict={"x": [2, 4]}) == "E1046"
    assert _code(given, shape_dict={"x": [2]}) == "E1046"
    assert _code(given, shape_dict={"z": [2]}) == "E1046"
    odd = model([node("Relu", ["a/b:0"])], {"a/b:0": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    assert "def main(a_b_0:" in mlcc.script(from_onnx(odd))
    assert _code(odd, sanitize_input_names=False) == "E1046"


# ---------------------------------------------------------------- functions, branches, loops


def test_functions_are_inlined() -> None:
    from onnx import helper

    body = [node("Mul", ["a", "a"], ["square"]), node("Neg", ["square"], ["n"]), node("LeakyRelu", ["n"], ["leaky"])]
    slope = body[2].attribute.add()
    slope.name, slope.ref_attr_name, slope.type = "alpha", "slope", 1
    function = helper.make_function("own", "Leaky", ["a"], ["leaky"], body, [helper.make_opsetid("", 18)], ["slope"])
    nodes = [
        node("Leaky", ["x"], ["z"], domain="own", slope=0.5),
        node("Neg", ["z"], ["v"]),
        node("Leaky", ["v"], domain="own", slope=0.1),
    ]
    own = [helper.make_opsetid("own", 1)]
    given = model(nodes, {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])}, opsets=own, functions=[function])
    x = np.arange(-3, 4, dtype="float32")
    check(given, x, expected=[-(x**4) * np.float32(0.025)])


def test_functions_that_call_themselves() -> None:
    from onnx import helper

    body = [helper.make_node("Again", ["a"], ["b"], domain="own")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Again", ["a"], ["b"], body, opsets)
    own, calls = [helper.make_opsetid("own", 1)], [node("Again", ["x"], domain="own")]
    given = model(calls, {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}, opsets=own, functions=[function])
    assert _code(given) == "E1002"


@pytest.mark.parametrize("fixed", [None, True, False])
def test_branches_see_outer_values(fixed: bool | None) -> None:
    """Branches see the values around them; run time chooses where the condition is not constant."""
    from onnx import helper

    then = helper.make_graph([node("Add", ["x", "w"], ["a"])], "then", [], [value("a", FLOAT, None)])
    other = helper.make_graph([node("Neg", ["x"], ["b"])], "else", [], [value("b", FLOAT, None)])
    inputs: dict[str, Any] = {"x": (FLOAT, ["n", 3]), "c": ("bool", [])}
    constants: dict[str, Any] = {"w": np.ones(3, "float32")}
    if fixed is not None:
        del inputs["c"]
        constants["c"] = np.array(fixed)
    given = model([node("If", ["c"], then_branch=then, else_branch=other)], inputs, {"y": (FLOAT, None)}, constants)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for condition in (True, False) if fixed is None else (fixed,):
        check(given, x, *([np.array(condition)] if fixed is None else []), expected=[x + 1 if condition else -x])


def test_a_loop_of_constant_length() -> None:
    from onnx import helper

    body = helper.make_graph(
        [node("Add", ["v", "x"], ["w"]), node("Identity", ["go"], ["on"]), node("Neg", ["w"], ["seen"])],
        "body",
        [value("i", "int64", []), value("go", "bool", []), value("v", FLOAT, [3])],
        [value("on", "bool", []), value("w", FLOAT, [3]), value("seen", FLOAT, [3])],
    )
    given = model(
        [node("Loop", ["count", "", "start"], ["last", "all"], body=body)],
        {"x": (FLOAT, [3])},
        {"last": (FLOAT, [3]), "all": (FLOAT, [4, 3])},
        {"count": np.int64(4), "start": np.zeros(3, "float32")},
    )
    x = np.arange(3, dtype="float32")
    check(given, x, expected=[4 * x, np.stack([-x, -2 * x, -3 * x, -4 * x])])


@pytest.mark.parametrize(
    "kind, numbers", [("INT4", range(-8, 7)), ("UINT4", range(15)), ("INT2", None), ("UINT2", None)]
)
@pytest.mark.parametrize("in_field", [False, True])
def test_weights_of_few_bits_are_dequantized(kind: str, numbers: Any, in_field: bool) -> None:
    """An odd number of them, in raw bytes or in the field of the type, dequantized."""
    from onnx import TensorProto, helper, numpy_helper

    low = -2 if kind == "INT2" else 0
    some = [low + (i * 7 + i // 4) % 4 for i in range(15)] if numbers is None else list(numbers)
    packed = [helper.make_tensor(n, getattr(TensorProto, kind), *what) for n, what in (
        ("w", ([5, 3], some)), ("z", ([3], some[3:6])))]  # fmt: skip
    if in_field:
        for tensor in packed:
            raw = tensor.raw_data or numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name).raw_data
            tensor.ClearField("raw_data")
            tensor.ClearField("int32_data")
            tensor.int32_data.extend(raw)
    nodes = [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1), node("MatMul", ["x", "d"])]
    scales = np.array([0.5, 0.25, 2], "float32")
    given = model(nodes, {"x": (FLOAT, [2, 5])}, {"y": (FLOAT, [2, 3])}, {"s": scales}, opset=25)
    given.graph.initializer.extend(packed)
    x = np.arange(10, dtype="float32").reshape(2, 5)
    weights = (np.array(some, "float32").reshape(5, 3) - np.array(some[3:6], "float32")) * scales
    check(given, x, expected=[x @ weights])


# ---------------------------------------------------------------- mutations


def test_mutated_files_end_in_diagnostics() -> None:
    """Bytes of a model that are changed, cut out or doubled: imported, or refused."""
    from onnx import helper

    then = helper.make_graph([node("Neg", ["x"], ["a"])], "then", [], [value("a", FLOAT, None)])
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Shape", ["c"], ["s"]),
        node("Reshape", ["c", "s"], ["r"]),
        node("Slice", ["r", "zero", "one", "zero"], ["p"]),
        node("If", ["yes"], ["q"], then_branch=then, else_branch=then),
        node("Softmax", ["p"], axis=1),
    ]
    constants = {
        "w": np.ones((2, 3, 3, 3), "float32"),
        "zero": np.array([0]),
        "one": np.array([1]),
        "yes": np.array(True),
    }
    whole = model(nodes, {"x": (FLOAT, ["n", 3, 5, 5])}, {"y": (FLOAT, None)}, constants).SerializeToString()
    chance = random.Random(7)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            kind = chance.random()
            if kind < 0.6:
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
            elif kind < 0.8:
                del data[at : at + chance.randint(1, 8)]
            else:
                data[at:at] = data[at : at + chance.randint(1, 8)]
        try:
            from_onnx(bytes(data))
        except mlcc.MlccError as problem:
            assert problem.diagnostics
