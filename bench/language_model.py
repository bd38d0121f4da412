"""Decoding steps of a language model: `python -m bench llm [--layers 12] [--width 768] [--threads 1] [--peers torch]`.

A model with the Llama architecture and random weights is exported with its KV cache, and compiled in float32, in
bfloat16 and with 8-bit and 4-bit weights. Each continues a prompt of 24 tokens, interleaved with the others and with
PyTorch if requested. The table shows the time of a step (CPU time with one thread), the speedup over PyTorch, or over
float32 without it, and the size of the object in bytes, which is that of the weights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from bench.measure import machine

PROMPT, VOCABULARY, HEADS, CACHED_HEADS = 24, 16000, 12, 4
KINDS = {"float32": "", "bfloat16": "", "int8": "bits=8", "int4": "bits=4"}
Step = Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]  # (tokens, cache) -> (scores, cache); None: an empty cache


def model_of(layers: int, width: int, dtype: str) -> Any:
    """Return a LlamaForCausalLM with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=width * 8 // 3, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=CACHED_HEADS, tie_word_embeddings=True, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval().to(getattr(torch, dtype))


def exported(model: Any) -> Any:
    """Export the model with a growing KV cache; it returns the logits of the last token only."""
    import torch
    from torch.export import Dim
    from transformers import DynamicCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    config = model.config
    shape = (2, CACHED_HEADS, 5, config.hidden_size // HEADS)
    cache = DynamicCache([(torch.zeros(shape).to(model.dtype),) * 2 for _ in range(config.num_hidden_layers)])
    batch, new, past = Dim("batch", max=8), Dim("new", max=512), Dim("past", max=1024)
    one = [{0: batch, 2: past}] * config.num_hidden_layers
    inputs = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "past_key_values": cache, "logits_to_keep": 1}
    shapes = {"input_ids": {0: batch, 1: new}, "past_key_values": [one, one], "logits_to_keep": None}
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)


def compiled(program: Any, way: str, path: Path) -> None:
    """Compile a program, with quantized weights if `way` selects a quantization."""
    module = mlcc.frontend.from_exported_program(program, unwrap_unit_return_tuple=True)
    if way:
        module = mlcc.run_passes(module, f"normalize,quantize-weights{{{way}}}")
    mlcc.build(module, "llvm{cpu=native}").save(path)


def step_of(path: Path, layers: int, width: int, dtype: str) -> Step:
    """Return the step function of a compiled model."""
    main = mlcc.load(str(path))["main"]
    shape = (1, CACHED_HEADS, 0, width // HEADS)
    empty = [np.zeros(shape, "uint16" if dtype == "bfloat16" else dtype)] * (2 * layers)

    def step(tokens: np.ndarray, cache: Any) -> tuple[np.ndarray, Any]:
        scores, *kept = _flat(main(tokens, *(empty if cache is None else cache)))
        return np.asarray(scores, "float32"), kept

    return step


def peer_of(model: Any) -> Step:
    """Return the step function of PyTorch."""
    import torch

    def step(tokens: np.ndarray, cache: Any) -> tuple[np.ndarray, Any]:
        with torch.no_grad():
            output = model(torch.from_numpy(tokens), past_key_values=cache, use_cache=True, logits_to_keep=1)
        return output.logits.float().numpy(), output.past_key_values

    return step


def _flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple) else [value]


def measured(step: Step, count: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the milliseconds of the prompt and the median of the following steps."""
    new = np.random.default_rng(0).integers(1, VOCABULARY, (1, PROMPT))
    cache, times = None, []
    for _ in range(count + 1):
        begin = clock()
        scores, cache = step(new, cache)
        times.append((clock() - begin) * 1e3)
        new = scores[:, -1].argmax(-1)[:, None]
    return times[0], statistics.median(times[1:])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark described in the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench llm")
    for name, default in (("layers", 12), ("width", 768), ("threads", 1), ("rounds", 5), ("steps", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--peers", default="torch")
    given = parser.parse_args(argv)
    os.environ["MLCC_NUM_THREADS"] = str(given.threads)
    import torch

    torch.set_num_threads(given.threads)
    steps: dict[str, Step] = {}
    bytes_of: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kinds.split(","):
            dtype = kind if kind in ("float32", "bfloat16") else "float32"
            model = model_of(given.layers, given.width, dtype)
            path = Path(folder) / f"{kind}.o"
            compiled(exported(model), KINDS[kind], path)
            steps[kind], bytes_of[kind] = step_of(path, given.layers, given.width, dtype), path.stat().st_size
            if "torch" in given.peers.split(",") and kind == dtype:
                steps[f"torch {kind}"] = peer_of(model)
        clock = time.process_time if given.threads == 1 else time.perf_counter
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for _ in range(given.rounds):
            for name, step in steps.items():
                times[name].append(measured(step, given.steps, clock))
    _show(times, bytes_of, given.threads)


def _show(found: dict[str, list[tuple[float, float]]], bytes_of: dict[str, int], threads: int) -> None:
    best = {name: tuple(statistics.median(part) for part in zip(*times, strict=True)) for name, times in found.items()}
    base = "torch float32" if "torch float32" in best else next(iter(best))
    print(f"{machine()}; {threads} threads; ratios to {base}, above 1 is faster")
    for name, (prompt, step) in best.items():
        size = f"{bytes_of[name] / 1e6:6.0f} MB" if name in bytes_of else " " * 9
        ratios = f"prompt {best[base][0] / prompt:5.2f} x  step {best[base][1] / step:5.2f} x"
        print(f"{name:15} {size}  prompt {prompt:7.1f} ms  step {step:6.1f} ms ({1e3 / step:4.0f} tokens/s)  {ratios}")
