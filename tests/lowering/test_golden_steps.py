"""Each step of lowering, by a small kernel before and after it: `steps/STEP.expected`. `make golden` rewrites those.

A kernel says in its first lines what it is lowered for, and which steps it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import mlcc
from mlcc import backends
from mlcc.ir.node import Attrs
from mlcc.passes.manage.stages import SANITIZED, STAGE, STEP, TARGET
from mlcc.verify import check

HERE = Path(__file__).resolve().parent / "steps"


def kernels_of_steps() -> dict[str, tuple[Path, str]]:
    """The kernel of each step, and the target."""
    found = {}
    for path in sorted(HERE.glob("*.mlc")):
        target, steps = re.findall(r"^# (?:TARGET|STEPS): (.*)$", path.read_text(), re.M)
        found.update(dict.fromkeys(steps.split(), (path, target)))
    return found


SHOWN = kernels_of_steps()


def test_every_step_is_shown() -> None:
    assert {*SHOWN} == {step for b in backends.registered_backends() for step in (*b.lowering, *b.sanitizing)}


@pytest.mark.parametrize("step", SHOWN)
def test_steps_match_their_golden_files(step: str, golden: Callable[[Path, str], None]) -> None:
    path, target = SHOWN[step]
    backend = backends.of(target)
    steps = backend.lowering if step in backend.lowering else backend.sanitizing
    earlier = steps[: steps.index(step)]
    before = mlcc.run_passes(mlcc.parse(path.read_text(), name=path.name), ",".join(earlier), target=target)
    after = mlcc.run_passes(before, step, target=target)
    check(after)
    again = mlcc.parse(mlcc.script(after), name="printed.mlc")
    assert mlcc.script(again) == mlcc.script(after)
    texts = [_functions(before), _functions(after)]
    assert texts[0] != texts[1], f"{path.name} does not show what {step} does"
    golden(HERE / f"{step}.expected", f"# before\n{texts[0]}\n# after {step}\n{texts[1]}")


def _functions(module: mlcc.IRModule) -> str:
    """The text without the note of how far it is."""
    plain = module.copy()
    plain.attrs = Attrs({k: v for k, v in module.attrs.items() if k not in (SANITIZED, STAGE, STEP, TARGET)})
    return mlcc.script(plain).partition("class Module:\n")[2]
