"""Tensor intrinsics of tensor cores that every schedule knows: TVM's names, and TVM's programs."""

from __future__ import annotations

import re

import pytest

import mlcc
from mlcc.passes.schedule.tensor_cores import catalogue
from mlcc.passes.schedule.tensor_intrin import make_intrin

# of the catalogue, those that lower to the same texts
NAMES = sorted(catalogue())


@pytest.mark.parametrize("name", NAMES[::16])
def test_texts_are_pairs_of_a_description_and_an_implementation(name: str) -> None:
    from mlcc.passes.schedule.tensor_cores import module_of

    made = make_intrin(name, module_of(name), None)
    assert [b.dtype for b in made.desc.buffers if b] == [b.dtype for b in made.impl.buffers if b]


def test_programs_are_tvms() -> None:
    pytest.importorskip("tvm")
    import tvm.s_tir.tensor_intrin.cuda as theirs
    from tvm.s_tir import TensorIntrin

    with open(theirs.__file__) as file:
        listed = set(re.findall(r'"((?:wmma|mma)_[a-z0-9_]+)"', file.read(), re.IGNORECASE))
    compared = 0
    for name in sorted(listed & set(NAMES))[::4]:
        theirs_of, ours = TensorIntrin.get(name), make_intrin(name, mlcc.parse(_text(name)), None)
        for mine, script in ((ours.desc, theirs_of.desc.script()), (ours.impl, theirs_of.impl.script())):
            (func,) = mlcc.parse(script).functions.values()
            mlcc.assert_structural_equal(mine.without_attr("global_symbol"), func.without_attr("global_symbol"))
        compared += 1
    assert compared >= 18, sorted(listed - set(NAMES))


def _text(name: str) -> str:
    from mlcc.passes.schedule.tensor_cores import module_of

    module = module_of(name)
    assert module is not None
    return str(module.script())
