"""Random number operators, which are not supported."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported


@converts(
    "aten.rand", "aten.randn", "aten.randint", "aten.rand_like", "aten.randn_like", "aten.randint_like",
    "aten.randperm", "aten.bernoulli", "aten.multinomial", "aten.normal", "aten.normal_functional", "aten.uniform",
    "aten.exponential", "aten.poisson", "aten.binomial", "aten.random", "aten.log_normal", "aten.geometric",
    "aten.cauchy", "aten.rrelu_with_noise_functional",
)  # fmt: skip
def _random(t: Translator, **arguments: Any) -> None:
    raise Unsupported("random numbers are not supported", "generate them outside the model and pass them as an input")
