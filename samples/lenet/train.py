"""Train the convolutional digits classifier of this folder with NumPy, on the digits bundled with scikit-learn.

    pip install scikit-learn && python samples/lenet/train.py

Writes lenet.npz; the test images are those of samples/digits. Run once, the result is committed. The same seed gives
the same weights on one NumPy version.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
EPOCHS, BATCH, RATE, MOMENTUM, DECAY = 40, 32, 0.05, 0.9, 2e-4
SHAPES = {
    "k1": (8, 1, 3, 3), "b1": (8,), "k2": (16, 8, 3, 3), "b2": (16,), "w3": (64, 32), "b3": (32,), "w4": (32, 10),
    "b4": (10,),
}  # fmt: skip
Arrays = dict[str, np.ndarray]


def windows(x: np.ndarray) -> np.ndarray:
    """Return the windows of a 3x3 convolution with zero padding: (n, c, h, w, 3, 3)."""
    around = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    return np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))


def conv(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return np.tensordot(windows(x), kernel, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def pool(x: np.ndarray) -> np.ndarray:
    """Max pooling over 2x2 windows."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def forward(x: np.ndarray, p: Arrays) -> list[np.ndarray]:
    """Return the values of every layer for images (n, 64); the last are the scores (n, 10)."""
    image = x.reshape(-1, 1, 8, 8)
    first = np.maximum(conv(image, p["k1"]) + p["b1"][:, None, None], 0)
    half = pool(first)
    second = np.maximum(conv(half, p["k2"]) + p["b2"][:, None, None], 0)
    flat = pool(second).reshape(len(x), -1)
    hidden = np.maximum(flat @ p["w3"] + p["b3"], 0)
    return [image, first, half, second, flat, hidden, hidden @ p["w4"] + p["b4"]]


def gradients(x: np.ndarray, labels: np.ndarray, p: Arrays) -> Arrays:
    """Return the gradients of the mean cross-entropy."""
    image, first, half, second, flat, hidden, scores = forward(x, p)
    grads = {}

    def unpool(back: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Backpropagate through the max pooling and the ReLU before it."""
        largest = before == after.repeat(2, 2).repeat(2, 3)
        return back.reshape(after.shape).repeat(2, 2).repeat(2, 3) * (largest & (before > 0))

    delta = np.exp(scores - scores.max(1, keepdims=True))
    delta /= delta.sum(1, keepdims=True)
    delta[np.arange(len(x)), labels] -= 1
    delta /= len(x)
    grads["w4"], grads["b4"] = hidden.T @ delta, delta.sum(0)
    delta = delta @ p["w4"].T * (hidden > 0)
    grads["w3"], grads["b3"] = flat.T @ delta, delta.sum(0)
    back = unpool(delta @ p["w3"].T, second, pool(second))
    grads["k2"] = np.tensordot(back, windows(half), ((0, 2, 3), (0, 2, 3)))
    grads["b2"] = back.sum((0, 2, 3))
    back = unpool(conv(back, p["k2"].swapaxes(0, 1)[:, :, ::-1, ::-1]), first, half)
    grads["k1"] = np.tensordot(back, windows(image), ((0, 2, 3), (0, 2, 3)))
    grads["b1"] = back.sum((0, 2, 3))
    return grads


def main() -> None:
    from sklearn.datasets import load_digits

    random = np.random.default_rng(2026)
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    order = random.permutation(len(images))  # the same test images as in samples/digits
    test, train = order[:360], order[360:]
    p = {}
    for name, shape in SHAPES.items():
        inputs = np.prod(shape[1:]) if name.startswith("k") else shape[0]
        p[name] = random.normal(0, np.sqrt(2 / inputs), shape) if len(shape) > 1 else np.zeros(shape)
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
        print(f"{name} accuracy {np.mean(forward(images[part], p)[-1].argmax(1) == labels[part]):.4f}")
    np.savez(HERE / "lenet.npz", **p)


if __name__ == "__main__":
    main()
