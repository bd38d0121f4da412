"""Language models of transformers with their caches: one object for the prompt and every step gives the tokens that
transformers' own greedy search gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.frontend import from_exported_program
from tests.frontend.language_models import (
    FAMILIES,
    VOCABULARY,
    causal_lm,
    continued,
    empty_cache,
    expected,
    with_cache,
    with_cache_object,
    with_static_cache,
)
from tests.frontend.model_check import leaves

DAILY = ("GPT2", "Qwen3")
COUNT = 10


def _prompt(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(1, VOCABULARY, (batch, length))


def _build_main(module: Any) -> Any:
    return mlcc.load(mlcc.build(module, "llvm{cpu=native}"))["main"]


@pytest.mark.parametrize("family", FAMILIES)
def test_growing_caches_agree(torch: Any, transformers: Any, all_cases: bool, family: str) -> None:
    if family not in DAILY and not all_cases:
        pytest.skip("the share above is for every day (--all-cases runs all)")
    model = causal_lm(family)
    step = _build_main(from_exported_program(with_cache(model)))
    for batch, length in ((1, 5), (3, 1)):
        prompt, cache = _prompt(batch, length), empty_cache(model, batch)
        assert continued(step, prompt, COUNT, cache).tolist() == expected(model, prompt, COUNT).tolist()


def test_a_cache_object_from_a_file(
    torch: Any, transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = causal_lm("Llama")
    torch.export.save(with_cache_object(model), "llama.pt2")
    assert run(["import", "llama.pt2", "--shape", "input_ids=b,new", "--weights-as-inputs", "-o", "llama.mlc"]) == 0
    assert run(["compile", "llama.mlc", "-t", "llvm", "-o", "llama.o"]) == 0
    main = mlcc.load("llama.o")["main"]
    weights = dict(mlcc.load_arrays("llama.npz"))

    def step(tokens: Any, *cache: Any) -> list[Any]:
        names = main.signature.parameter_names[1 : 1 + len(cache)]
        given = {"input_ids": tokens, **dict(zip(names, cache, strict=True)), **weights}
        return leaves(main(*mlcc.arguments_by_name(main, given)))

    prompt = _prompt(2, 4)
    cache = empty_cache(model, 2)
    assert continued(step, prompt, COUNT, cache).tolist() == expected(model, prompt, COUNT).tolist()


def test_caches_in_buffers_agree(torch: Any, transformers: Any, tmp_path: Path) -> None:
    model = causal_lm("Llama")
    torch.export.save(with_static_cache(model), tmp_path / "llama.pt2")
    command = ["import", str(tmp_path / "llama.pt2"), "--shape", "input_ids=1,new", "--state-as-inputs"]
    assert run([*command, "-o", str(tmp_path / "llama.mlc")]) == 0
    text = tmp_path / "llama.mlc"
    module = mlcc.parse(text.read_text(), name=str(text), folder=str(tmp_path))
    params, attrs = module["main"].params, module["main"].attrs
    names = [f"c_{name.replace('.', '_')}" for name in attrs["mutated"]]
    assert [p.name for p in params] == ["input_ids", "cache_position", *names] and attrs["num_input"] == 2
    main = _build_main(module)
    state = [np.zeros([n.value for n in p.struct_info.dims], str(p.struct_info.dtype)) for p in params[2:]]
    place = 0

    def step(tokens: Any, *state: Any) -> Any:
        nonlocal place
        begin, place = place, place + tokens.shape[1]
        return main(tokens, np.arange(begin, place), *state)

    prompt = _prompt(1, 6)
    assert continued(step, prompt, COUNT, state).tolist() == expected(model, prompt, COUNT).tolist()
