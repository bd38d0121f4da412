"""Continue a text with the compiled model: python generate.py writer.o [TEXT] [COUNT] [TEMPERATURE] [SEED]."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import mlcc

LAYERS, HEADS, DEPTH = 2, 4, 16
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


def sampled(scores: np.ndarray, temperature: float, random: np.random.Generator) -> int:
    """Sample a character by its scores; the most likely one at temperature 0."""
    if temperature == 0:
        return int(scores.argmax())
    odds = np.exp((scores - scores.max()) / temperature)
    return int(random.choice(len(odds), p=odds / odds.sum()))


def written(model: Any, text: str, count: int, temperature: float = 0.0, seed: int = 0) -> Iterator[str]:
    """Yield the characters that continue a text. Each call returns the extended keys and values."""
    random = np.random.default_rng(seed)
    keys = values = np.zeros((LAYERS, HEADS, 0, DEPTH), np.float32)
    new = np.array([CHARACTERS.index(c) for c in text])
    for _ in range(count):
        scores, keys, values = model(new, keys, values)
        new = np.array([sampled(scores[-1], temperature, random)])
        yield CHARACTERS[new[0]]


def main() -> None:
    path, *given = sys.argv[1:]
    text, count, temperature, seed = [*given, *("The pass ", "140", "0.5", "0")[len(given) :]]
    model = mlcc.load(path)["main"]
    print(text, end="")
    began = time.perf_counter()
    for character in written(model, text, int(count), float(temperature), int(seed)):
        print(character, end="", flush=True)
    print(f"\n({int(count) / (time.perf_counter() - began):.0f} characters a second)", file=sys.stderr)


if __name__ == "__main__":
    main()
