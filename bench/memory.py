"""Peak memory of commands on a model with large weights (`--mib N`), as a multiple of the size of the weights."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench.measure import commands, machine

SIDE = 2048  # 16 MiB a matrix


def prepare(folder: str, layers: int) -> None:
    """Write a chain of products with constant matrices, its weights and its input."""
    import numpy as np

    weights = {f"w{i}": np.full((SIDE, SIDE), (i + 1) / SIDE, np.float32) for i in range(layers)}
    np.savez(f"{folder}/model.npz", **weights)  # type: ignore[arg-type]  # the stubs take a name for an option
    np.savez(f"{folder}/in.npz", x0=np.ones((1, SIDE), np.float32))
    data = [f'    {name} = R.data("{name}", R.Tensor(({SIDE}, {SIDE}), "float32"))' for name in weights]
    products = [f"        x{i + 1} = R.matmul(x{i}, w{i})" for i in range(layers)]
    head = f'@R.function\ndef main(x0: R.Tensor((1, {SIDE}), "float32")):'
    last = [f"        R.output(x{layers})", f"    return x{layers}", ""]
    with open(f"{folder}/model.mlc", "w") as file:
        file.write("\n".join([head, *data, "    with R.dataflow():", *products, *last]))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench memory", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="MiB of weights (%(default)s)")
    layers = max(1, parser.parse_args(list(arguments)).mib * (1 << 20) // (SIDE * SIDE * 4))
    weights = layers * SIDE * SIDE * 4 / (1 << 20)
    os.environ["MLCC_CACHE"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        # in another process: the memory of this one would count for each that it starts
        subprocess.run([sys.executable, "-m", "bench.memory", folder, str(layers)], check=True)
        mlcc = [sys.executable, "-m", "mlcc"]
        text, object_file, io = f"{folder}/model.mlc", f"{folder}/model.o", ["--in", f"{folder}/in.npz"]
        compiling = [*mlcc, "compile", text, "-t", "llvm{cpu=native}", "-o", object_file]
        samples = commands(
            {
                "mlcc check model.mlc": [*mlcc, "check", text],
                **{f"mlcc compile -O{level} model.mlc": [*compiling, f"-O{level}"] for level in (1, 2, 3)},
                "mlcc run model.mlc": [*mlcc, "run", text, *io],
                "mlcc inspect model.o": [*mlcc, "inspect", object_file],
                "mlcc run model.o": [*mlcc, "run", object_file, *io],
                "mlcc check --help": [*mlcc, "check", "--help"],
            },
            rounds=1,
        )
    print(f"peak memory, {weights:.0f} MiB of weights; {machine()}")
    print(f"{'command':28} {'MiB':>8} {'x weights':>10} {'CPU s':>8}")
    for name, runs in samples.items():
        _, cpu, peak = runs[0]
        print(f"{name:28} {peak:8.0f} {peak / weights:10.2f} {cpu / 1e3:8.2f}")


if __name__ == "__main__":
    prepare(sys.argv[1], int(sys.argv[2]))
