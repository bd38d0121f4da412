"""Texts: mutated ones end in documented exit codes, generated ones are read back as what was printed."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import mlcc
from mlcc.ir.module import IRModule
from tests.fuzz.commands import judged
from tests.fuzz.mutate import mutate
from tests.fuzz.worker import COMMANDS, DOCUMENTED, Pools
from tests.fuzz.worker import case as mutated_case
from tests.generate import functions, graphs

GENERATED = 0.2  # of the cases print a generated program, read it back and mutate it
_FEW_COMMANDS = [words for words in COMMANDS if words[0] in ("check", "fmt")]


@functools.cache
def _pools() -> Pools:
    return Pools.read()


def prepare(folder: Path) -> None:
    """Nothing is shared: the texts are those of the repository."""


def case(folder: Path, seed: str, number: int) -> str:
    here = Path.cwd()
    rng = random.Random(f"texts/{seed}/{number}")
    if rng.random() < GENERATED:
        text = generated(rng)
        found = differs_when_read(text)
        if found:
            (here / "case.mlc").write_text(text)
            return found
        (here / "case.mlc").write_bytes(mutate(text, _pools().texts, f"{seed}:{number}"))
        argv = [*rng.choice(_FEW_COMMANDS), str(here / "case.mlc")]
    else:
        argv = mutated_case(_pools(), seed, number, here)
    problem, said = judged(argv, DOCUMENTED)
    return f"{problem}: mlcc {' '.join(argv)}: {' | '.join(said.strip().splitlines()[-4:])}" if problem else ""


def generated(rng: random.Random) -> str:
    """The text of a generated graph or kernel."""
    seed = rng.randrange(1 << 40)
    if rng.random() < 0.5:
        return mlcc.script(graphs.module(seed))
    return mlcc.script(IRModule({"main": functions.prim_func(seed)}))


def differs_when_read(text: str) -> str:
    """What is wrong with a printed text: it must be read, and print as itself."""
    try:
        module = mlcc.parse(text)
    except mlcc.CompileError as exc:
        return f"a printed text is not read: {exc.diagnostics[0].message}"
    again = mlcc.script(module)
    if again != text:
        return "a printed text prints as another one after it was read"
    return "" if mlcc.structural_equal(mlcc.parse(again), module) else "a text is read as two different modules"
