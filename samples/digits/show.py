"""Print the accuracy of scores on the test images, and a few images as text: python show.py scores.npz."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SHADES = " .:-=+*#%@"


def picture(image: np.ndarray) -> list[str]:
    """An 8x8 image with values 0..1 as 8 lines of text."""
    return ["".join(SHADES[int(v * (len(SHADES) - 1))] * 2 for v in row) for row in image.reshape(8, 8)]


def main() -> None:
    scores = np.load(sys.argv[1], allow_pickle=False)["out"]
    images = np.load(HERE / "test.npz", allow_pickle=False)["x"]
    labels = np.load(HERE / "labels.npz", allow_pickle=False)["labels"]
    answers = scores.argmax(1)
    wrong = np.flatnonzero(answers != labels)
    shown = [*range(3), *wrong[:1]]
    for line in zip(*(picture(images[i]) for i in shown), strict=True):
        print("  ".join(line))
    print("  ".join(f"answer {answers[i]}, is {labels[i]}".ljust(16) for i in shown))
    print(f"accuracy on {len(labels)} test images: {np.mean(answers == labels):.2%} ({len(wrong)} wrong)")


if __name__ == "__main__":
    main()
