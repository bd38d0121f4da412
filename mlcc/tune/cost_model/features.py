"""Feature extraction for cost models: a candidate's decisions as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcc.passes.schedule.trace import Instruction


class DecisionFeatures:
    """Feature columns for decisions; each step of each design space has its own columns.

    Tile factors and chosen numbers are represented by their logarithms. Columns that a candidate lacks are 0.
    """

    def __init__(self) -> None:
        self._columns: dict[tuple[int, int, int], int] = {}

    def matrix(self, candidates: Sequence[Any]) -> np.ndarray:
        """Return one row per candidate (`space`, `steps`), float64; later calls may append columns."""
        rows = [self._row(candidate) for candidate in candidates]
        features = np.zeros((len(rows), len(self._columns)))
        for at, row in enumerate(rows):
            for column, value in row:
                features[at, column] = value
        return features

    def _row(self, candidate: Any) -> list[tuple[int, float]]:
        row = [(self._column(candidate.space, -1, 0), 4.0)]
        for at, inst in enumerate(candidate.steps):
            for part, value in enumerate(_numbers(inst)):
                row.append((self._column(candidate.space, at, part), value))
        return row

    def _column(self, *key: int) -> int:
        return self._columns.setdefault(key, len(self._columns))  # type: ignore[arg-type]


def _numbers(inst: Instruction) -> list[float]:
    decision = inst.decision
    if inst.name == "annotate" and inst.arguments["ann_key"] == "meta_schedule.parallel":
        return [math.log2(1 + int(inst.arguments["ann_val"]))]
    if not inst.is_sampling or decision is None:
        return []
    if isinstance(decision, (list, tuple)):
        return [math.log2(max(factor, 1)) for factor in decision]
    if inst.name == "sample_categorical":
        value = inst.arguments["candidates"][decision]
        return [math.log2(1 + abs(value)) if isinstance(value, int) else float(decision)]
    return [float(decision)]
