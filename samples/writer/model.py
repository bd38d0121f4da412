"""A small character-level language model in PyTorch, with the architecture of Llama.

python model.py OUT     writes OUT/writer.pt2, the trained model in the format of `torch.export`
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, HIDDEN = 2, 64, 4, 168
DEPTH = WIDTH // HEADS
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
WEIGHTS = Path(__file__).with_name("weights.safetensors")


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Apply a rotary embedding: x is (heads, n, depth), position (n,)."""
    frequency = 10000 ** (-torch.arange(0, DEPTH, 2, dtype=torch.float32) / DEPTH)
    angle = position.to(torch.float32)[:, None] * frequency
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * angle.cos() - high * angle.sin(), low * angle.sin() + high * angle.cos()), dim=-1)


class Layer(nn.Module):
    """Causal attention, then a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.dense_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x is (n, width); keys and values of the m previous characters are (heads, m, depth)."""
        new, old = x.shape[0], keys.shape[1]
        q, k, v = self.qkv(self.attention_norm(x)).reshape(new, 3, HEADS, DEPTH).permute(1, 2, 0, 3)
        position = torch.arange(old, old + new)
        keys, values = torch.cat((keys, rotate(k, position)), dim=1), torch.cat((values, v), dim=1)
        seen = torch.arange(old + new)[None, :] <= position[:, None]
        mixed = functional.scaled_dot_product_attention(rotate(q, position), keys, values, attn_mask=seen)
        x = x + self.out(mixed.permute(1, 0, 2).reshape(new, WIDTH))
        inner = self.dense_norm(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner)), keys, values


class Writer(nn.Module):
    """Returns the scores of the next character, and the keys and values of all characters for the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(CHARACTERS), WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)  # also the output projection
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, characters: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """characters is (n,) int64, keys and values are (layers, heads, m, depth). n and m may be any numbers."""
        x = self.embedding(characters)
        kept = []
        for i, layer in enumerate(self.layers):
            x, *cache = layer(x, keys[i], values[i])
            kept.append(cache)
        scores = self.norm(x) @ self.embedding.weight.T
        return scores, torch.stack([k for k, _ in kept]), torch.stack([v for _, v in kept])


def empty_cache() -> Tensor:
    """Return the keys, or values, of no characters."""
    return torch.zeros(LAYERS, HEADS, 0, DEPTH)


def trained() -> Writer:
    """Return the model with the weights trained by `train.py`."""
    from safetensors.torch import load_file

    model = Writer()
    model.load_state_dict(load_file(WEIGHTS))
    return model.eval()


def exported(model: Writer) -> torch.export.ExportedProgram:
    """Export the model for any number of new and previous characters, for the prompt and every step after it."""
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    cache = torch.zeros(LAYERS, HEADS, 5, DEPTH)
    sizes = ({0: n}, {2: m}, {2: m})
    return torch.export.export(model, (torch.zeros(3, dtype=torch.int64), cache, cache.clone()), dynamic_shapes=sizes)


if __name__ == "__main__":
    torch.export.save(exported(trained()), Path(sys.argv[1]) / "writer.pt2")
