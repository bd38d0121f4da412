"""The files of one version: how they are made, and what each has to do later."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc.cli.main import run
from mlcc.grammar.syntax.version import VERSION
from mlcc.interp import run_function, run_prim_func
from mlcc.ir import tir
from mlcc.records.database import SCHEMA
from mlcc.runtime.abi import ABI_VERSION
from mlcc.targets.c.artifact import CArtifact
from tests.archive import contents
from tests.passes.arguments import leaves

HERE = Path(__file__).parent
INDEX = "index.json"
TEXTS = {  # each with its function's results in NAME.results.npz, for the inputs in NAME.inputs.npz
    "today.mlc": contents.TODAY, "dialect-2022.mlc": contents.DIALECT_2022, "dialect-tvm.mlc": contents.DIALECT_TVM,
    "kernel.mlc": contents.KERNEL,
}  # fmt: skip
SHAPES = {  # of their arguments
    "today.mlc": ((6, 16), (3, 8)), "dialect-2022.mlc": ((6, 16), (16, 8)), "dialect-tvm.mlc": ((6, 16), (6, 16)),
    "kernel.mlc": ((32, 24), (24, 16), (32, 16)),
}  # fmt: skip
SCRIPTS = {"tiled.mls": contents.SCRIPT, "trace-tvm.mls": contents.SCRIPT_TVM}  # for kernel.mlc
CPU = "llvm{triple=x86_64-unknown-linux-gnu cpu=x86-64-v2}"
ARTIFACTS = {  # name: the command's words behind `mlcc compile today.mlc`
    "today.o": ("-t", CPU, "--header", "today.h"),
    "versions.o": ("-t", "llvm{triple=x86_64-unknown-linux-gnu}"),
    "today.so": ("-t", CPU), "libtoday.a": ("-t", CPU), "arm.o": ("-t", "llvm{triple=aarch64-linux-gnu}"),
    "today.c": ("--emit", "c"), "today.ptx": ("-t", "cuda{arch=sm_80}"),
    "today.mlca": ("-t", "cuda{arch=sm_80}"),
}  # fmt: skip

APP = """/* calls today.o through its header: cc app.c today.o -lm */
#include <stdio.h>
#include "today.h"

int main(void) {
    static float x[6][16], y[3][8], out[3][6];
    int64_t x_shape[] = {6, 16}, y_shape[] = {3, 8}, out_shape[] = {3, 6};
    DLTensor a = {x, {1, 0}, 2, {2, 32, 1}, x_shape, 0, 0}, b = {y, {1, 0}, 2, {2, 32, 1}, y_shape, 0, 0};
    DLTensor c = {out, {1, 0}, 2, {2, 32, 1}, out_shape, 0, 0};
    if (fread(x, sizeof x, 1, stdin) != 1 || fread(y, sizeof y, 1, stdin) != 1) return 2;
    int32_t code = today_main(&a, &b, &c);
    if (code) { fprintf(stderr, "%s\\n", today_main_error(code)); return 1; }
    for (int i = 0; i < 18; i++) printf("%.9g\\n", (double)(&out[0][0])[i]);
    return 0;
}
"""


def versions() -> list[Path]:
    """The folders of the archive, oldest first."""
    return sorted((p for p in HERE.iterdir() if (p / INDEX).exists()), key=lambda p: int(p.name))


def index(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / INDEX).read_text()))


def digests(folder: Path) -> dict[str, str]:
    names = sorted(p for p in folder.iterdir() if p.name != INDEX)
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in names}


def command(*words: str) -> None:
    """Run a command of mlcc. Raises RuntimeError if it fails."""
    if run(list(words)):
        raise RuntimeError(f"mlcc {' '.join(words)} failed")


def make(folder: Path) -> None:
    """Write the files of this version into a folder, with an index of them."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        _write_texts()
        for name, words in ARTIFACTS.items():
            command("compile", "today.mlc", *words, "-o", name)
        _write_c_manifest()
        Path("app.c").write_text(APP)
        _write_records()
    finally:
        os.chdir(before)
    about = {"mlcc": mlcc.__version__, "text": VERSION, "abi": ABI_VERSION, "schema": SCHEMA}
    whole = {"written by": about, "sha256": digests(folder)}
    (folder / INDEX).write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")


def _write_texts() -> None:
    """Texts, each with arguments and the results that the reference interpreter gives for them; scripts."""
    rng = np.random.default_rng(2026)
    np.savez("weights.npz", w=rng.standard_normal((16, 8)).astype("float32"))
    for name, text in TEXTS.items():
        Path(name).write_text(text)
        module = mlcc.parse(Path(name))
        given = [rng.standard_normal(shape).astype("float32") for shape in SHAPES[name]]
        np.savez(f"{Path(name).stem}.inputs.npz", *given)
        np.savez(f"{Path(name).stem}.results.npz", *interpreted(module, given))
    for name, text in SCRIPTS.items():
        Path(name).write_text(text)
    command("passes", "today.mlc", "-p", "fuse,lower-to-tir,fuse-tir", "-o", "lowered.mlc")
    command("schedule", "kernel.mlc", "--auto", "-t", CPU, "-o", "auto.mls")


def _write_c_manifest() -> None:
    """What the loader of C source in the tests has to know, which C programs have from the header."""
    artifact = mlcc.build(mlcc.parse(Path("today.mlc")), target="c", prefix="today")
    assert isinstance(artifact, CArtifact)
    Path("today.c.json").write_text(json.dumps(artifact._facts("today"), indent=1) + "\n")


def _write_records() -> None:
    """A database with records of a few candidates that were measured, and its best one as a script."""
    command(
        "tune", "kernel.mlc", "--trials", "4", "--threads", "1", "--until", "9", "--db", "tune.db", "-o", "tuned.mlc"
    )
    _one_file("tune.db")
    if SCHEMA == 2:
        shutil.copy("tune.db", "tune-1.db")
        floors = "UPDATE machine SET floors = substr(floors, 2, length(floors) - 2)"
        _one_file("tune-1.db", "ALTER TABLE record DROP COLUMN digest", floors, "PRAGMA user_version=1")


def _one_file(path: str, *statements: str) -> None:
    """Change a database, and keep all of it in one file."""
    with sqlite3.connect(path) as link:
        for statement in statements:
            link.execute(statement)
        link.execute("PRAGMA journal_mode=DELETE")
    link.close()


def interpreted(module: mlcc.IRModule, given: list[np.ndarray]) -> list[np.ndarray]:
    """The results of `main` in the reference interpreter; of a kernel, its last buffer."""
    func = module["main"]
    if isinstance(func, tir.PrimFunc):
        buffers = [array.copy() for array in given]
        run_prim_func(func, buffers)
        return buffers[-1:]
    return leaves(run_function(module, "main", given))


def arrays(path: Path) -> list[np.ndarray]:
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]
