"""Arrays in attributes of relax functions, as `params` of an imported function has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.frontend import detach_params
from mlcc.grammar.constants import array_with_dtype
from mlcc.ir.dtypes import DType
from mlcc.ir.equal import structural_equal
from mlcc.ir.hashing import structural_hash

TEXT = """@R.function
def main(x: R.Tensor((30,), dtype="float32"), w: R.Tensor((30,), dtype="float32")):
    R.func_attr({ATTRIBUTES})
    return R.add(x, w)
"""


def module(**attributes: Any) -> mlcc.IRModule:
    made = mlcc.parse(TEXT.replace("{ATTRIBUTES}", "{}"))
    for name, value in attributes.items():
        made.functions["main"] = made["main"].with_attr(name, value)
    return made


RANDOM = np.random.default_rng(0)
BFLOAT16 = array_with_dtype(np.arange(40, dtype="uint16"), DType.of("bfloat16"))


@pytest.mark.parametrize(
    "array",
    [
        RANDOM.standard_normal(30).astype("float32"),
        RANDOM.standard_normal((3, 5)),
        np.array([[True, False]]),
        np.array([1.5, np.inf, -0.0], "float16"),
        np.arange(100, dtype="uint8").reshape(4, 25)[:, ::2],
        np.zeros((0, 3), "int64"),
        BFLOAT16,
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
@pytest.mark.parametrize("name", ["params", "of_mine"])
def test_arrays_read_back(array: np.ndarray, name: str) -> None:
    made = module(**{name: [array, np.float32(2)]})
    text = made.script()
    read = mlcc.parse(text)
    (found, _) = read["main"].attrs[name]
    assert found.dtype == array.dtype and found.dtype.metadata == array.dtype.metadata and found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert structural_equal(made, read) and structural_hash(made) == structural_hash(read)
    assert read.script() == text


def test_weights_are_named_after_their_parameters() -> None:
    weight = RANDOM.standard_normal(30).astype("float32")
    made = module(num_input=1, params=[weight])
    assert '"params": [R.data("w", R.Tensor((30,), dtype="float32"), sha256=' in made.script()
    _, params = detach_params(mlcc.parse(made.script()))
    run = mlcc.load(mlcc.build(made, target="llvm"))["main"]
    np.testing.assert_allclose(run(np.ones(30, "float32"), *params["main"]), weight + 1)


def test_a_scalar_weight_keeps_its_dtype() -> None:
    (found,) = mlcc.parse(module(params=[np.array(0.5, "float32")]).script())["main"].attrs["params"]
    assert found.dtype == "float32" and found.shape == () and found == 0.5


def test_other_weights_make_another_function() -> None:
    one, other = (module(params=[np.full(30, value, "float32")]) for value in (1, 2))
    assert not structural_equal(one, other)
    assert not structural_equal(one, module(params=[np.full(30, 1.0)]))


def test_data_that_are_not_there_stay_references() -> None:
    text = module(params=[RANDOM.standard_normal(30)]).script()
    text = "".join(line for line in text.splitlines(keepends=True) if "mlcc.data" not in line)
    assert mlcc.parse(text).script() == text


def test_metadata_of_tvm_is_kept() -> None:
    nodes = """metadata = tvm.ir.load_json('{"root_index": 3, "nodes": [{"type": "ffi.String", "data": "ffi.Tensor"},
 {"type": "ffi.Tensor", "data": "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA="},
 {"type": "ffi.Array", "data": [1]}, {"type": "ffi.Map", "data": [0, 2]}]}')
""".replace("\n {", "{")
    text = TEXT.replace("{ATTRIBUTES}", '{"params": [metadata["ffi.Tensor"][0]]}')
    (found,) = mlcc.parse(nodes + text)["main"].attrs["params"]
    np.testing.assert_array_equal(found, np.array([1, 2], "float32"))
    assert 'metadata["ffi.Tensor"][0]' in mlcc.parse(text).script()  # without what it refers to


def test_only_constants_are_read() -> None:
    with pytest.raises(CompileError) as problem:
        mlcc.parse(TEXT.replace("{ATTRIBUTES}", '{"params": [R.zeros([2], "float32")]}'))
    assert problem.value.diagnostics[0].code == "E0203"
