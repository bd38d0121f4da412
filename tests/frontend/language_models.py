"""Language models of transformers with their caches: small configurations, the ways they are exported, and a loop
that continues a prompt with what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LAYERS, KV_HEADS, DEPTH, VOCABULARY = 2, 2, 16, 96
_SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": KV_HEADS, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "attn_implementation": "sdpa",
}  # fmt: skip
_GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": LAYERS, "n_head": KV_HEADS, "n_positions": 128,
    "bos_token_id": 1, "eos_token_id": None, "attn_implementation": "sdpa",
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": _SHARED,
    "GPT2": _GPT2,
    "Qwen2": _SHARED,
    "Qwen3": {**_SHARED, "head_dim": DEPTH},
    "Mistral": {**_SHARED, "sliding_window": None},
    "Gemma": {**_SHARED, "head_dim": DEPTH},
    "Gemma2": {**_SHARED, "head_dim": DEPTH, "sliding_window": 64, "attn_implementation": "eager"},
    "Gemma3Text": {**_SHARED, "head_dim": DEPTH, "sliding_window": 64},
    "Phi": _SHARED,
    "Phi3": _SHARED,
}


def causal_lm(family: str, dtype: str = "float32", **options: Any) -> Any:
    """A causal language model of the family with random weights, in eval mode."""
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], **options})
    torch.manual_seed(0)
    name = {"Gemma3Text": "Gemma3ForCausalLM", "GPT2": "GPT2LMHeadModel"}.get(family, f"{family}ForCausalLM")
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.2 + float(value.dim() == 1))
    model.generation_config.eos_token_id = None
    return model.to(getattr(torch, dtype))


def _with_cache(model: Any) -> Any:
    """The model as a function of new tokens and the caches, key and value of each layer, which it gives back grown."""
    import torch
    from transformers import DynamicCache

    class WithCache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, *cache: Any) -> Any:
            past = DynamicCache(list(zip(cache[::2], cache[1::2], strict=True)))
            made = self.model(input_ids=input_ids, past_key_values=past, use_cache=True)
            return made.logits, *(t for layer in made.past_key_values.layers for t in (layer.keys, layer.values))

    return WithCache()


def empty_cache(model: Any, batch: int, length: int = 0) -> list[Any]:
    """Keys and values of `length` tokens for each layer, random ones."""
    import torch

    with torch.no_grad():
        made = model(torch.ones(1, 1, dtype=torch.int64), use_cache=True).past_key_values
    return [
        torch.randn(batch, known.shape[1], length, known.shape[3]).to(known.dtype)
        for layer in made.layers
        for known in (layer.keys, layer.values)
    ]


def with_cache(model: Any) -> Any:
    """The program of `(tokens, *cache) -> (logits, *cache)` for any batch and any numbers of new and old tokens."""
    import torch

    batch, new, past = (torch.export.Dim(n, max=64) for n in ("batch", "new", "past"))
    cache = empty_cache(model, 2, 5)
    shapes = ({0: batch, 1: new}, tuple({0: batch, 2: past} for _ in cache))
    return torch.export.export(_with_cache(model), (torch.ones(2, 3, dtype=torch.int64), *cache), dynamic_shapes=shapes)


def with_cache_object(model: Any) -> Any:
    """The program of the model itself, called with a `DynamicCache`."""
    import torch
    from transformers import DynamicCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    batch, new, past = (torch.export.Dim(n, max=64) for n in ("batch", "new", "past"))
    tensors = empty_cache(model, 2, 5)
    cache = DynamicCache(list(zip(tensors[::2], tensors[1::2], strict=True)))
    inputs = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "past_key_values": cache, "use_cache": True}
    one = [{0: batch, 2: past}] * (len(tensors) // 2)
    shapes = {"input_ids": {0: batch, 1: new}, "past_key_values": [one, one], "use_cache": None}
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)


def with_static_cache(model: Any, length: int = 48) -> Any:
    """The program of transformers' own recipe, whose caches are buffers of `length` tokens that change."""
    import torch
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    model.generation_config.cache_implementation = "static"
    made = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=length)
    new = torch.export.Dim("new", max=length - 1)
    inputs = {"input_ids": torch.ones(1, 3, dtype=torch.int64), "cache_position": torch.arange(3)}
    return made.export(**inputs, dynamic_shapes={"input_ids": {1: new}, "cache_position": {0: new}}, strict=False)


def continued(step: Callable[..., Sequence[Any]], prompt: np.ndarray, count: int, state: Sequence[Any]) -> np.ndarray:
    """The prompt (batch, length) and `count` more tokens, each the likeliest. `step` takes tokens and the state, and
    gives scores and the new state."""
    tokens = new = prompt
    for _ in range(count):
        scores, *state = step(new, *state)
        new = np.asarray(scores)[:, -1].astype("float32").argmax(-1)[:, None]
        tokens = np.concatenate([tokens, new], 1)
    return tokens


def expected(model: Any, prompt: np.ndarray, count: int) -> np.ndarray:
    """What transformers' own greedy search continues the prompt with."""
    import torch

    model.generation_config.cache_implementation = None
    with torch.no_grad():
        made = model.generate(torch.from_numpy(prompt), max_new_tokens=count, do_sample=False)
    return np.asarray(made.numpy())
