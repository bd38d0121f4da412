"""Write the test images and labels as plain bytes, so that C needs no reader of .npz: test_images.py DIGITS OUT."""

import sys
from pathlib import Path

import numpy as np

folder, out = map(Path, sys.argv[1:])
x = np.load(folder / "test.npz")["x"].astype("<f4")
labels = np.load(folder / "labels.npz")["labels"].astype("<i4")
out.write_bytes(np.int32(len(x)).tobytes() + x.tobytes() + labels.tobytes())
