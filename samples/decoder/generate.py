"""Continue a prompt token by token with the compiled decoder: python generate.py decoder.o [COUNT]."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import model
import numpy as np

import mlcc

PROMPT = (7, 21, 3, 40, 5)


def generate(decoder: Callable[..., Any], prompt: Sequence[int], count: int) -> list[int]:
    """Return the prompt and `count` more tokens, each the most likely one. Each call returns the extended KV cache."""
    tokens, cache = list(prompt), model.empty_cache()
    new = np.array([tokens])
    for _ in range(count):
        scores, *cache = decoder(new, *cache)
        tokens.append(int(scores[0, -1].argmax()))
        new = np.array([tokens[-1:]])
    return tokens


def main() -> None:
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 24
    tokens = generate(mlcc.load(sys.argv[1])["main"], PROMPT, count)
    print(*tokens[: len(PROMPT)], "|", *tokens[len(PROMPT) :])
    whole = model.reference(np.array([tokens]), model.weights())[0].argmax(-1)
    same = np.sum(whole[len(PROMPT) - 1 : -1] == tokens[len(PROMPT) :])
    print(f"{same} of {count} tokens equal those of NumPy without a cache")
    sys.exit(int(same != count))


if __name__ == "__main__":
    main()
