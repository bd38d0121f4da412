"""The encoder block in NumPy: its weights, inputs of any size, and its results.

python model.py OUT     writes OUT/weights.npz, OUT/in.npz (x, mask) and OUT/expected.npz (out)
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

WIDTH, HEADS, HIDDEN = 32, 4, 64
Arrays = dict[str, np.ndarray]


def weights(seed: int = 4) -> Arrays:
    """Random weights by the names of the parameters in encoder.mlc."""
    random = np.random.default_rng(seed)
    shapes = {
        "w_qkv": (WIDTH, 3 * WIDTH), "b_qkv": (3 * WIDTH,), "w_out": (WIDTH, WIDTH), "b_out": (WIDTH,),
        "gain1": (WIDTH,), "shift1": (WIDTH,), "w_up": (WIDTH, HIDDEN), "b_up": (HIDDEN,),
        "w_down": (HIDDEN, WIDTH), "b_down": (WIDTH,), "gain2": (WIDTH,), "shift2": (WIDTH,),
    }  # fmt: skip
    arrays = {name: random.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: value + np.float32(name.startswith("gain")) for name, value in arrays.items()}


def inputs(batch: int, length: int, seed: int = 5) -> Arrays:
    """Return x, and a mask that keeps a prefix of at least one position of each sequence."""
    random = np.random.default_rng(seed)
    kept = random.integers(1, length + 1, batch) if length else np.zeros(batch, int)
    mask = np.arange(length) < kept[:, None]
    return {"x": random.normal(0, 1, (batch, length, WIDTH)).astype(np.float32), "mask": mask}


def normalised(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def reference(x: np.ndarray, mask: np.ndarray, w: Arrays) -> np.ndarray:
    """Compute the block with NumPy in float64."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    x = x.astype(np.float64)
    batch, length, _ = x.shape
    heads = (x @ w["w_qkv"] + w["b_qkv"]).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
    q, k, v = heads.transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(WIDTH // HEADS)
    scores = np.where(mask[:, None, None, :], scores, -1e9)
    power = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    mixed = (power / power.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
    middle = normalised(x + mixed @ w["w_out"] + w["b_out"], w["gain1"], w["shift1"])
    up = middle @ w["w_up"] + w["b_up"]
    up = up * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(up / math.sqrt(2)))
    return normalised(middle + up @ w["w_down"] + w["b_down"], w["gain2"], w["shift2"])


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    given = inputs(3, 17)
    np.savez(out / "weights.npz", **weights())
    np.savez(out / "in.npz", **given)
    np.savez(out / "expected.npz", out=reference(given["x"], given["mask"], weights()).astype(np.float32))


if __name__ == "__main__":
    main()
