"""The decoder in NumPy: its weights, and the scores of every next token, computed without a cache.

python model.py OUT     writes OUT/weights.npz
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

LAYERS, WIDTH, HEADS, HIDDEN, TOKENS = 2, 32, 4, 64, 64
DEPTH = WIDTH // HEADS
FREQUENCIES = np.array([1.0, 0.1, 0.01, 0.001])
Arrays = dict[str, np.ndarray]


def weights(seed: int = 6) -> Arrays:
    """Random weights by the names of the parameters in decoder.mlc."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"embedding": (TOKENS, WIDTH), "gain": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {
            f"w_qkv{i}": (WIDTH, 3 * WIDTH), f"w_out{i}": (WIDTH, WIDTH), f"w_gate{i}": (WIDTH, HIDDEN),
            f"w_up{i}": (WIDTH, HIDDEN), f"w_down{i}": (HIDDEN, WIDTH), f"gain1_{i}": (WIDTH,), f"gain2_{i}": (WIDTH,),
        }  # fmt: skip
    arrays = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: value + np.float32(name.startswith("gain")) for name, value in arrays.items()}


def empty_cache(batch: int = 1) -> list[np.ndarray]:
    """Return the empty KV cache: keys and values of no tokens for every layer."""
    return [np.zeros((batch, HEADS, 0, DEPTH), np.float32)] * (2 * LAYERS)


def normalised(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain


def rotated(x: np.ndarray) -> np.ndarray:
    angle = np.arange(x.shape[2])[:, None] * FREQUENCIES
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * np.cos(angle) - high * np.sin(angle), low * np.sin(angle) + high * np.cos(angle)], -1)


def reference(tokens: np.ndarray, w: Arrays) -> np.ndarray:
    """Scores (b, n, 64) for whole sequences (b, n), in float64."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    batch, length = tokens.shape
    x = w["embedding"][tokens]
    for i in range(LAYERS):
        heads = (normalised(x, w[f"gain1_{i}"]) @ w[f"w_qkv{i}"]).reshape(batch, length, 3, HEADS, DEPTH)
        q, k, v = heads.transpose(2, 0, 3, 1, 4)
        scores = rotated(q) @ rotated(k).swapaxes(-1, -2) / math.sqrt(DEPTH)
        power = np.exp(np.where(np.tri(length, dtype=bool), scores, -np.inf))
        mixed = (power / power.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        x = x + mixed @ w[f"w_out{i}"]
        inner = normalised(x, w[f"gain2_{i}"])
        gate = inner @ w[f"w_gate{i}"]
        x = x + (gate / (1 + np.exp(-gate)) * (inner @ w[f"w_up{i}"])) @ w[f"w_down{i}"]
    return normalised(x, w["gain"]) @ w["embedding"].T


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    np.savez(out / "weights.npz", **weights())


if __name__ == "__main__":
    main()
