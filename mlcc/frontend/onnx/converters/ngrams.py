"""Counting n-grams."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.frontend.onnx.helpers import constant_extent, one_of, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax

MODES = ("TF", "IDF", "TFIDF")


@converts("TfIdfVectorizer", since=9)
def _tfidf(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Compare every n-gram of the pool with every position of the data."""
    import numpy as np

    mode = one_of(node.attribute("mode", ""), MODES, "mode")
    if node.attribute("pool_strings"):
        raise Unsupported("n-grams of strings are not supported")
    least, most = node.attribute("min_gram_length"), node.attribute("max_gram_length")
    places = node.attribute("ngram_indexes")
    rows = x if t.ndim(x) == 2 else t.emit(t.op.expand_dims(x, [0]))
    counts, columns = [], []
    for size, grams, first in _grams(node):
        if not least <= size <= most or not grams:
            continue
        table = np.array(grams, t.dtype(x))
        for step in range(1, 2 if size == 1 else node.attribute("max_skip_count") + 2):
            counted = _counted(t, rows, table, step)
            if counted is not None:
                counts.append(counted)
                columns += places[first : first + len(grams)]
    width = max(places) + 1
    if counts:
        spread = np.zeros((len(columns), width), "float32")
        spread[np.arange(len(columns)), columns] = 1
        scores = t.emit(t.op.matmul(t.op.concat(counts, 1), t.constant(spread)))
    else:
        scores = t.full([t.shape(rows)[0], width], 0, "float32")
    if mode == "IDF":
        scores = t.emit(t.op.astype(t.op.greater(scores, t.scalar(0, "float32")), "float32"))
    weights = node.attribute("weights")
    if weights and mode != "TF":
        scores = t.emit(t.op.multiply(scores, t.constant(np.array(weights, "float32"))))
    return scores if t.ndim(x) == 2 else t.op.squeeze(scores, [0])


def _grams(node: OnnxNode) -> list[tuple[int, list[Sequence[int]], int]]:
    """Return the n-grams of each size: (n, the n-grams, the number of n-grams before them in the pool)."""
    pool, begins = node.attribute("pool_int64s", []), node.attribute("ngram_counts")
    groups, before = [], 0
    for size, begin in enumerate(begins, 1):
        end = begins[size] if size < len(begins) else len(pool)
        grams = [pool[i : i + size] for i in range(begin, end - size + 1, size)]
        groups.append((size, grams, before))
        before += len(grams)
    return groups


def _counted(t: OnnxTranslator, rows: relax.Expr, grams: object, step: int) -> relax.Expr | None:
    """Count each n-gram in each row, its elements `step` apart; return None if the rows are too short."""
    import numpy as np

    table = np.asarray(grams)
    reach = constant_extent(t.shape(rows)[1], "the length of the data") - step * (table.shape[1] - 1)
    if reach <= 0:
        return None
    same: relax.Expr | None = None
    for i, column in enumerate(table.T):
        part = t.op.expand_dims(slice_axis(t, rows, 1, i * step, i * step + reach), [2])
        equal = t.emit(t.op.equal(part, t.constant(np.ascontiguousarray(column))))
        same = equal if same is None else t.emit(t.op.logical_and(same, equal))
    assert same is not None
    return t.emit(t.op.sum(t.cast(same, "float32"), [1]))
