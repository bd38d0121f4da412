"""Mutated model files end with a documented exit code and a diagnostic."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.fuzz import model_files
from tests.fuzz.commands import judged
from tests.fuzz.test_model_files import write_seeds

DOCUMENTED = model_files.DOCUMENTED


def prepare(folder: Path) -> None:
    """Write the models that are mutated."""
    write_seeds(folder)


def case(folder: Path, seed: str, number: int) -> str:
    here = Path.cwd()
    for path in folder.iterdir():
        if not (here / path.name).exists():
            (here / path.name).symlink_to(path) if path.suffix != ".mlc" else shutil.copy(path, here)
    argv = model_files.case(model_files.seeds_in(here), f"soak/{seed}", number, here)
    words = [word.replace(f"{here}{os.sep}", "") for word in argv]
    (mutated,) = here.glob("case.*")
    (here / "mutated").write_text(mutated.name)
    (here / "argv").write_text("\n".join(words))
    problem, said = judged(words, DOCUMENTED)
    return f"{problem}: mlcc {' '.join(words)}: {said.strip()[-400:]}" if problem else ""
