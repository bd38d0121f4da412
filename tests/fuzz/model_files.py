"""Runs mutated model files through the command line in one process:

    python -m tests.fuzz.model_files FOLDER SEED SECONDS

FOLDER has the files that are mutated, `seed*.safetensors`, `seed*.onnx` and `seed*.pt2`, and what the commands need
beside them: `net.mlc`, whose weights are inputs, and `x.npz`. Prints a line per finding, one for its reduced file, and
`done N` at the end.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import struct
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.fuzz import file_reduction
from tests.fuzz.commands import judged
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.reduction import MOST_REDUCED

OF_MODELS = (
    ("import", "CASE", "--force", "-o", "made.mlc"), ("check", "CASE"), ("compile", "-O0", "CASE", "-o", "made.o"),
)  # fmt: skip
COMMANDS = {
    ".safetensors": (
        ("import", "CASE"), ("run", "net.mlc", "--in", "x.npz", "--params", "CASE"),
        ("passes", "-p", "bind-params{params=CASE}", "net.mlc"),
        ("import", "seed.onnx", "--weights", "CASE", "--force", "-o", "made.mlc"),
    ),
    **dict.fromkeys((".onnx", ".pt2"), OF_MODELS),
}  # fmt: skip
DOCUMENTED = (0, 1, 3, 6)
VALUES = [
    None, -1, 0, 1 << 62, 1 << 80, 0.5, "x", "", "F32", "BF16", "s77*", [], [0], [-1, 2], [1 << 40, 1 << 40], {}, True,
    [0, 1 << 62], {"as_name": "x"}, "torch.ops.aten.add.Tensor",
]  # fmt: skip


def case(seeds: list[Path], seed: str, number: int, folder: Path) -> list[str]:
    """Write the mutated file of a number to FOLDER/case.SUFFIX, and return the command for it."""
    rng = random.Random(f"{seed}/{number}")
    source = rng.choice(seeds)
    path = folder / f"case{source.suffix}"
    path.write_bytes(mutated(source, rng))
    words = rng.choice(COMMANDS[source.suffix])
    return [w.replace("CASE", str(path)) if "CASE" in w else _path(folder, w) for w in words]


def seeds_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("seed*")) if path.suffix in COMMANDS]


def reduce_left(folder: Path) -> str:
    """Reduce the case that ended its process. Return a line with the path."""
    (path,) = folder.glob("case.*")
    return file_reduction.note(path, (folder / "argv").read_text().splitlines(), DOCUMENTED)


def main(folder: Path, seed: str, seconds: float) -> None:
    """Mutate and judge until the time is over."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    seeds = seeds_in(folder)
    limit, number, found = time.monotonic() + seconds, 0, 0
    while time.monotonic() < limit:
        argv = case(seeds, seed, number, folder)
        (folder / "argv").write_text("\n".join(argv))
        problem, said = judged(argv, DOCUMENTED)
        if problem:
            (path,) = folder.glob("case.*")
            kept = folder / f"found-{seed}-{number}{path.suffix}"
            path.rename(kept)
            print(f"{number}: {problem}: mlcc {' '.join(argv)} (kept as {kept}): {said.strip()[-400:]}", flush=True)
            found += 1
            if found <= MOST_REDUCED:
                words = [word.replace(str(path), str(kept)) for word in argv]
                print(f"  {file_reduction.note(kept, words, DOCUMENTED)}", flush=True)
        for path in folder.glob("case.*"):
            path.unlink()
        number += 1
    print(f"done {number}")


def _path(folder: Path, word: str) -> str:
    return str(folder / word) if word.endswith((".mlc", ".npz", ".onnx", ".o")) else word


def mutated(source: Path, rng: random.Random) -> bytes:
    """The file with bytes changed, or with values of what is JSON in it."""
    data = source.read_bytes()
    if rng.random() < 0.4 or source.suffix == ".onnx":
        return mutate_bytes(data, rng)
    if source.suffix == ".safetensors":
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        change(header, rng)
        made = json.dumps(header).encode()
        return (
            struct.pack("<Q", len(made) if rng.random() < 0.9 else rng.randrange(1 << 63)) + made + data[8 + length :]
        )
    return _archive(data, rng)


def _archive(data: bytes, rng: random.Random) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            member = old.read(info)
            if info.filename.endswith(".json") and rng.random() < 0.5:
                found = json.loads(member)
                change(found, rng)
                member = json.dumps(found).encode()
            elif rng.random() < 0.05:
                member = mutate_bytes(member, rng)
            new.writestr(info.filename, member)
    return made.getvalue()


def change(found: Any, rng: random.Random) -> None:
    """Replace a few values of nested JSON, drop some, double some."""
    for _ in range(rng.randint(1, 3)):
        places = list(_places(found))
        if not places:
            return
        holder, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.7:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind < 0.85 or not isinstance(holder, list):
            del holder[key]
        else:
            holder.insert(key, copy.deepcopy(holder[key]))


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield value, key
        yield from _places(part)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
