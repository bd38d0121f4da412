"""Models of torchvision, timm, transformers and our own: imported from `.pt2`, built, compared with PyTorch."""

from __future__ import annotations

import pytest

from tests.frontend.model_check import Way, outcome
from tests.frontend.models import CASES

SHARE = {
    "torchvision_squeezenet1_1": False, "llama": True, "bert": True, "own_gcn": True,
    "own_unet": True, "own_cached_decoder": False, "own_quantized": True,
}  # fmt: skip
EVERY = [(name, dynamic) for name, case in CASES.items() for dynamic in (False, True) if not dynamic or case.dynamic]


@pytest.mark.parametrize(("name", "dynamic"), SHARE.items())
def test_a_share_of_the_models(request: pytest.FixtureRequest, name: str, dynamic: bool) -> None:
    request.getfixturevalue(CASES[name].package)
    assert outcome(CASES[name], Way(dynamic=dynamic, levels=(None,))).wrong == ""


@pytest.mark.parametrize(("name", "dynamic"), EVERY)
def test_every_model_agrees(request: pytest.FixtureRequest, all_cases: bool, name: str, dynamic: bool) -> None:
    if not all_cases:
        pytest.skip("the share above is for every day (--all-cases runs all)")
    request.getfixturevalue(CASES[name].package)
    assert outcome(CASES[name], Way(dynamic=dynamic)).wrong == ""
