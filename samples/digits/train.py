"""Train the digits classifier of this folder with NumPy, on the handwritten digits bundled with scikit-learn.

    pip install scikit-learn && python samples/digits/train.py

Writes mlp.npz (w0, b0, w1, b1), and test.npz (x: 360 images of 8x8 as 64 floats in 0..1, labels beside them in
labels.npz). Run once; the results are committed. The same seed gives the same weights on one NumPy version.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
HIDDEN, EPOCHS, BATCH, RATE, MOMENTUM, DECAY = 64, 200, 32, 0.05, 0.9, 1e-4


def forward(x: np.ndarray, p: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Hidden activations (n, 64) and scores (n, 10)."""
    hidden = np.maximum(x @ p["w0"].T + p["b0"], 0)
    return hidden, hidden @ p["w1"].T + p["b1"]


def gradients(x: np.ndarray, labels: np.ndarray, p: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the gradients of the mean cross-entropy."""
    hidden, scores = forward(x, p)
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    delta = shifted / shifted.sum(1, keepdims=True)
    delta[np.arange(len(x)), labels] -= 1
    delta /= len(x)
    back = (delta @ p["w1"]) * (hidden > 0)
    return {"w0": back.T @ x, "b0": back.sum(0), "w1": delta.T @ hidden, "b1": delta.sum(0)}


def main() -> None:
    random = np.random.default_rng(2026)
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    order = random.permutation(len(images))
    test, train = order[:360], order[360:]
    p = {
        "w0": random.normal(0, np.sqrt(2 / 64), (HIDDEN, 64)), "b0": np.zeros(HIDDEN),
        "w1": random.normal(0, np.sqrt(2 / HIDDEN), (10, HIDDEN)), "b1": np.zeros(10),
    }  # fmt: skip
    velocity = {k: np.zeros_like(v) for k, v in p.items()}
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        shuffled = random.permutation(train)
        for start in range(0, len(shuffled), BATCH):
            batch = shuffled[start : start + BATCH]
            for k, g in gradients(images[batch], labels[batch], p).items():
                velocity[k] = MOMENTUM * velocity[k] - rate * (g + DECAY * p[k])
                p[k] = p[k] + velocity[k]
    p = {k: v.astype(np.float32) for k, v in p.items()}
    for name, part in (("train", train), ("test", test)):
        print(f"{name} accuracy {np.mean(forward(images[part], p)[1].argmax(1) == labels[part]):.4f}")
    np.savez(HERE / "mlp.npz", **p)
    np.savez_compressed(HERE / "test.npz", x=images[test])
    np.savez_compressed(HERE / "labels.npz", labels=labels[test].astype(np.int64))


if __name__ == "__main__":
    main()
