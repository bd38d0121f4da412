"""Weights in several files: indices, folders, links, and what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.array_files import load_files
from mlcc.errors import CompileError

WEIGHTS = {"a.weight": np.arange(40, dtype="float32"), "b.weight": np.ones((3, 30), "float32")}
TEXT = """
@R.function
def main(x: R.Tensor((40,), "float32"), a_weight: R.Tensor((40,), "float32"), b_weight: R.Tensor((3, 30), "float32")):
    return R.add(x, a_weight), R.sum(b_weight)
"""


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with two shards and their index, as Hugging Face's libraries write them."""
    folder = tmp_path / "model"
    folder.mkdir()
    names = {key: f"model-0000{i}-of-00002.safetensors" for i, key in enumerate(WEIGHTS, 1)}
    for key, name in names.items():
        mlcc.save_arrays(str(folder / name), {key: WEIGHTS[key]})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


@pytest.mark.parametrize("name", ["", "model.safetensors.index.json"])
def test_shards_are_one_set_of_arrays(shards: Path, name: str) -> None:
    found = mlcc.load_arrays(str(shards / name))
    assert sorted(found) == sorted(WEIGHTS)
    assert all(np.array_equal(found[key], array) for key, array in WEIGHTS.items())


def test_a_folder_without_an_index(shards: Path) -> None:
    (shards / "model.safetensors.index.json").unlink()
    assert [os.path.basename(file.path) for file in load_files(str(shards))] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_bind_params_takes_shards(shards: Path) -> None:
    (shards.parent / "m.mlc").write_text(TEXT)
    bound = mlcc.run_passes(mlcc.parse(TEXT), f"bind-params{{params={shards}}}")
    assert [p.name for p in bound["main"].params] == ["x"]


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "has no map `weight_map`"),
        ('{"weight_map": {"a": 1}}', "has no map `weight_map`"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "is not a .safetensors file in the folder of the index"),
        ('{"weight_map": {"a": "/x.safetensors"}}', "is not a .safetensors file in the folder of the index"),
        ('{"weight_map": {"a": ".."}}', "is not a .safetensors file in the folder of the index"),
        ('{"weight_map": {"a": "x.bin"}}', "is not a .safetensors file in the folder of the index"),
        ('{"weight_map": {"c": "model-00001-of-00002.safetensors"}}', "has no array `c`"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "cannot read"),
    ],
)
def test_a_wrong_index_is_said(shards: Path, index: str, said: str) -> None:
    (shards / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CompileError, match=said):
        mlcc.load_arrays(str(shards))


def test_two_indices_and_no_weights(tmp_path: Path, shards: Path) -> None:
    (shards / "other.safetensors.index.json").write_text("{}")
    with pytest.raises(CompileError, match="has 2 index files"):
        mlcc.load_arrays(str(shards))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CompileError, match=r"has no \.safetensors, \.npz or \.npy file"):
        mlcc.load_arrays(str(empty))
