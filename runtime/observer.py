"""The observer of artifacts that were built with `observe`: what looks at the tensors of each call while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from mlcc.runtime import registry

OBSERVER = "mlcc.observe"  # the packed function
BEFORE, AFTER = 0, 1  # phases


class ObservedTensor(NamedTuple):
    """A tensor of a call. `place` is `argument`, `result`, `constant` or `temporary`; `number` is that of an argument
    or constant. `in_place`: the call changes what was written before."""

    name: str
    dtype: str
    written: bool
    place: str
    in_place: bool
    number: int = -1


class Site(NamedTuple):
    """A call of a kernel or packed function in a function; its place in the text, and its tensors.

    `start` and `end` are offsets into the text of `file`, or for a model into that of its nodes; `binding` is the
    variable that the line binds.
    """

    function: str
    kind: str
    name: str
    tensors: tuple[ObservedTensor, ...]
    file: str | None = None
    line: int | None = None
    start: int = 0
    end: int = 0
    binding: str = ""
    origin: str = ""

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Site:
        """Return an entry of `observed` in a manifest."""
        return Site(**{**facts, "tensors": tuple(ObservedTensor(**t) for t in facts["tensors"])})


def sites(manifest: Mapping[str, Any]) -> list[Site] | None:
    """Return the calls of an artifact that are observed; None if it was not built with `observe`."""
    observed = manifest.get("observed")
    return None if observed is None else [Site.of(facts) for facts in observed]


@contextmanager
def observing(observer: Callable[..., None]) -> Iterator[None]:
    """Call `observer(site, phase, *tensors)` for the calls of artifacts inside the `with`.

    `site` is an index, `tensors` are arrays as packed functions get them, valid during the call only.
    """
    registry.register_func(OBSERVER, observer, override=True)
    try:
        yield
    finally:
        registry.remove_func(OBSERVER)
