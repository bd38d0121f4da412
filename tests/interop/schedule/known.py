"""Where mlcc and TVM disagree on purpose. docs/schedules.md lists the same reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.schedule.differential import DIFFER, THEY_REFUSE, WE_REFUSE, Outcome


@dataclass(frozen=True)
class Known:
    """A disagreement on purpose: outcomes of those primitives and that status for which `applies` holds."""

    primitives: str
    status: str
    reason: str
    applies: Callable[[Outcome], bool]


def _code(code: str, words: str = "") -> Callable[[Outcome], bool]:
    """mlcc refuses with that code, and says the words."""
    pattern = rf"mlcc: refuses: error\[{code}\].*(?:{words})"
    return lambda outcome: re.search(pattern, outcome.detail) is not None


def _they(words: str) -> Callable[[Outcome], bool]:
    """TVM refuses, and says the words."""
    return lambda outcome: re.search(rf"TVM: refuses: .*(?:{words})", outcome.detail) is not None


def _differs_at(path: str, *families: str) -> Callable[[Outcome], bool]:
    """The programs differ first at a place whose path ends so (of programs of these families, if any)."""
    pattern = rf"not structurally equal at \S*{path}:"
    return lambda outcome: (
        re.search(pattern, outcome.detail) is not None and (not families or outcome.family in families)
    )


def _says(pattern: str) -> Callable[[Outcome], bool]:
    """The report of the disagreement has the pattern."""
    return lambda outcome: re.search(pattern, outcome.detail) is not None


KNOWN: tuple[Known, ...] = (
    Known(
        "split", WE_REFUSE, "`disable_predication` is refused where the factors are seen to go beyond the extent",
        _code("E0621", "exceed the extent"),
    ),
    Known(
        "loop_partition", WE_REFUSE, "a reduce loop of a block with an init is refused: each part would start again",
        _code("E0629", "would run again"),
    ),
    Known(
        "loop_partition", DIFFER,
        "of a buffer that a block accesses elsewhere than at its axes, the region stays; TVM widens another one",
        _differs_at(r"\.(reads|writes)\[\d+\]\.region\[\d+\]\.\w+"),
    ),
    Known(
        "loop_partition", DIFFER, "a block in a block keeps its axes; TVM narrows them instead of the outer block's",
        _differs_at(r"\.iter_vars\[\d+\]\.dom\.\w+\.value", "nested", "matched"),
    ),
    Known(
        "loop_partition", THEY_REFUSE, "TVM fails on a buffer that a block accesses at a loop inside it",
        _they("key is not in Map"),
    ),
    Known(
        "annotate_buffer_access", DIFFER, "the block that is named is annotated; TVM annotates blocks inside it too",
        _differs_at(r"\.block\.body\S*\.block\.body\S*\.block\.(reads|writes|annotations)\S*"),
    ),
    Known(
        "annotate_buffer_access", THEY_REFUSE, "one range for each dimension; TVM wants one for each axis of the block",
        _they("must match number of new_ranges_spec"),
    ),
    Known("bind", WE_REFUSE, "a thread axis that no target has is refused", _code("E0628")),
    Known(
        "bind", WE_REFUSE, "a loop inside one that is bound to the same thread axis is refused: they have one index",
        _code("E0634"),
    ),
    Known(
        "vectorize", WE_REFUSE, "a loop whose extent is not constant is refused; TVM fails when it is built",
        _code("E0635"),
    ),
    Known(
        "cache_index", THEY_REFUSE,
        "no index or one index to cache: mlcc does what TVM documents, TVM ends in an internal error",
        _they("SeqStmt"),
    ),
    Known(
        "cache_read cache_inplace", THEY_REFUSE,
        "the buffer may be given by its name: TVM finds it among the writes and gives up",
        _they("Expected buffer to be read buffer, but"),
    ),
    Known(
        "reorder merge transform_block_layout", WE_REFUSE,
        "an order in which an iteration comes before one whose result it needs is refused",
        _code("E0633"),
    ),
    Known(
        "sample_perfect_tile sample_partitioned_tile", WE_REFUSE,
        "a decision that does not tile the loop is refused; TVM takes another one without a word",
        _code("E0695", "the decision|the inner factors"),
    ),
    Known(
        "sample_partitioned_tile", WE_REFUSE, "a partition position that is no position between factors is refused",
        _code("E0696"),
    ),
    Known(
        "pad_einsum", WE_REFUSE, "an einsum that leaves out a part of its output is refused: TVM writes that, too",
        _code("E0674", "does not write all"),
    ),
    Known(
        "transform_block_layout", WE_REFUSE,
        "a loop that does not run over all of its axis is refused: TVM's new loops do",
        _code("E0638", "values, but the axis"),
    ),
    Known(
        "transform_block_layout", WE_REFUSE, "axes for a block that uses loop variables without axes are refused",
        _code("E0638", "directly, not by an axis"),
    ),
    Known(
        "pad_einsum", WE_REFUSE,
        "an einsum whose loops are shared, split or fused is refused: TVM pads the loops of the other block too",
        _code("E0674"),
    ),
    Known(
        "pad_einsum", WE_REFUSE, "padding that would show in the result is refused (a maximum, a part of a buffer)",
        _code("E0675"),
    ),
    Known(
        "pad_einsum", THEY_REFUSE, "the windows of convolutions are padded along spatial axes: TVM takes no windows",
        lambda o: o.family in ("conv2d", "depthwise") and _they("not a computation of Einsum pattern")(o),
    ),
    Known(
        "transform_layout", WE_REFUSE, "a map that sends several elements to one place is refused",
        _code("E0670", "stored in one place"),
    ),
    Known(
        "transform_layout transform_block_layout", THEY_REFUSE,
        "maps that count backwards, constants and blocks without loops are taken; TVM fails on them inside",
        _they(r"is_zero\(range->min\)|Expected mapping function|Could not get the corresponding|tgt_stmt_"),
    ),
    Known(
        "transform_layout", THEY_REFUSE, "a number as padding is brought to the dtype of the buffer",
        _they("fills padding with"),
    ),
    Known(
        "transform_layout", THEY_REFUSE, "TVM fails on padding together with assume_injective_transform",
        _they("optional access"),
    ),
    Known(
        "can_decompose_padding", THEY_REFUSE, "a block may be given by its name, as elsewhere; TVM takes no name here",
        _they("Mismatched type on argument"),
    ),
    Known("rolling_buffer", THEY_REFUSE, "TVM fails on int64 indices", _they("mismatched types")),
    Known(
        "decompose_reduction", WE_REFUSE, "a loop whose iterations each need an init is refused", _code("E0663"),
    ),
    Known(
        "decompose_reduction", DIFFER, "the init block lists what it reads; TVM's lists nothing",
        lambda outcome: "_init" in outcome.detail and ".reads:" in outcome.detail,
    ),
    Known(
        "rfactor", DIFFER, "the combination keeps the condition under which partial results exist; TVM drops it",
        lambda outcome: "left:" in outcome.detail and ".predicate:" in outcome.detail,
    ),
    Known(
        "reverse_compute_at", WE_REFUSE, "a loop after which consumers would have read the block's output is refused",
        _code("E0650", "runs before loop"),
    ),
    Known(
        "reverse_compute_at", WE_REFUSE,
        "a loop at which a sum would add terms twice, read unfinished sums or more than is there is refused",
        _code("E0651", "more than once|before they are finished|not a multiple of them"),
    ),
    Known(
        "reverse_compute_at", WE_REFUSE,
        "a reader by remainders (`i % 16`) stays behind the loop over them: TVM's reads what is not yet written",
        _code("E0651", "cannot be told from the index"),
    ),
    Known(
        "reverse_compute_at", THEY_REFUSE,
        "a producer that is done before the outermost loop begins need not be below the loop; TVM wants all there",
        _they("all the producer"),
    ),
    Known(
        "compute_at reverse_compute_at", WE_REFUSE, "a block that runs for a part of an axis is refused",
        _code("E0651", "for a part of its axis"),
    ),
    Known(
        "pad_einsum", WE_REFUSE,
        "padding a spatial axis that does not index the output is refused: its iterations would write the output again",
        _code("E0675", "would write"),
    ),
    Known(
        "transform_layout", WE_REFUSE,
        "a parameter from whose new shape a symbolic size can no longer be told is refused",
        _code("E0670", "is known only from the shape"),
    ),
    Known(
        "reverse_compute_at", WE_REFUSE,
        "a loop that computes fewer elements than the box which the block would read there is refused",
        _code("E0651", "may compute only"),
    ),
    Known(
        "compute_at", WE_REFUSE,
        "a block that nothing reads is refused at a loop that still computes what the block reads",
        _code("E0650", "nothing reads what block"),
    ),
    Known(
        "reindex", WE_REFUSE,
        "a block of which the loops of its scope run only a part is refused: TVM's copy is of the whole",
        _code("E0642", "run only a part of block"),
    ),
    Known(
        "reverse_compute_inline", WE_REFUSE, "a producer that adds to its output keeps it",
        _code("E0645", "adds to what"),
    ),
    Known(
        "reverse_compute_inline", WE_REFUSE,
        "a consumer is refused if others read the producer's output: it would be gone",
        _code("E0646", "reads it too"),
    ),
    Known(
        "reverse_compute_inline", WE_REFUSE, "a consumer that uses one element in several iterations is refused",
        _code("E0645", "the same element in several"),
    ),
    Known(
        "reverse_compute_inline", THEY_REFUSE, "a consumer without axes goes into its producer too",
        lambda outcome: "()" in outcome.program,
    ),
    Known(
        "fuse_reduction_epilogue", WE_REFUSE,
        "an epilogue that does more than to add is refused (clipping unless asked for)",
        _code("E0652"),
    ),
    Known(
        "fuse_reduction_epilogue", WE_REFUSE, "a sum that is not from 0, or that others read, keeps its buffer",
        _code("(E0646|E0668|E0669)"),
    ),
    *(
        Known(
            "fuse_reduction_epilogue", status,
            "axes go together by the indices of the sum; in TVM by order, right or not",
            lambda outcome: any(step.name.startswith("transform_") for step in outcome.before),
        )
        for status in (DIFFER, THEY_REFUSE)
    ),
    Known(
        "cache_read cache_write reindex reindex_cache_read reindex_cache_write", WE_REFUSE,
        "a cache that would be read before anything is in it is refused", _code("E0642"),
    ),
    Known(
        "cache_read cache_write", DIFFER,
        "a copy in a loop is made where what it copies is written: TVM's copies what is not there, too",
        _says(r"predicate: (\w+) against IntImm"),
    ),
    Known(
        "cache_read", DIFFER, "the copy of what padding reads stays inside the buffer: TVM's goes out of bounds",
        _says(r"alloc_buffers\[\d+\]\.shape\[\d+\]\.value: (\d+) against (?!\1)\d+"),
    ),
    Known(
        "cache_write", DIFFER,
        "a block that is named as a consumer of its own output starts in the cache, too: in TVM its init goes on"
        " writing the buffer", lambda o: "consumer_blocks" in str(o.step) and "init" in o.detail,
    ),
    Known(
        "cache_inplace", WE_REFUSE, "a region that leaves the buffer is refused: the copy would leave it too",
        _code("E0643", "may be outside"),
    ),
    Known(
        "cache_inplace", DIFFER,
        "the copies are indexed by the loops around the block: TVM's use variables of the block outside of it",
        _says(r"values\[\d+\].*do not correspond to each other"),
    ),
    Known(
        "cache_index", THEY_REFUSE, "axes may be driven by fewer loops than there are axes",
        _says("TVM: refuses: KeyError: 'key is not in Map'"),
    ),
    Known(
        "cache_index", DIFFER, "the block says in its T.reads that it reads the buffers of indices",
        lambda o: "index_var" in o.detail and _differs_at(r"\.reads")(o),
    ),
    Known("cache_index", WE_REFUSE, "an unknown storage scope is refused", _code("E0641")),
    Known(
        "cache_index", DIFFER, "the axes of the new blocks are as long as the buffers that they index, not as loops",
        _says(r"iter_vars\[\d+\]\.dom\.extent"),
    ),
    Known(
        "reindex_cache_read reindex_cache_write", DIFFER,
        "the copy has the predicate of the block that it serves: without it, TVM's goes out of bounds",
        _says(r"predicate: (\w+) against IntImm"),
    ),
    Known(
        "reindex_cache_read reindex_cache_write", WE_REFUSE, "a map that puts several elements in one place is refused",
        _code("E0653", "several elements"),
    ),
    Known(
        "reindex_cache_read reindex_cache_write", DIFFER, "the ranges of the copy's loops are over its own loops",
        _says(r"(extent|min)\S*: .* do not correspond to each other"),
    ),
    Known(
        "reindex", WE_REFUSE, "an index that varies inside the block is refused: TVM's copy uses its variable outside",
        _code("E0643", "varies inside the"),
    ),
    Known(
        "reindex reindex_cache_read", WE_REFUSE,
        "an access that a condition keeps inside the buffer is refused: the copy has none",
        _code("E0643", "under a condition"),
    ),
    Known(
        "read_at write_at", WE_REFUSE, "a cache that would be read before anything is in it is refused",
        _code("E0644", "before anything there writes it"),
    ),
    Known(
        "read_at write_at", THEY_REFUSE, "variables of an enclosing block, and symbolic sizes, may be in the region",
        _says("TVM: refuses: KeyError: 'key is not in Map'"),
    ),
    Known(
        "write_at", DIFFER,
        "each thread copies back what it has written; in TVM each copies what all threads of the block write, done or"
        " not", lambda o: "thread" in o.program + str(o.before) and _says(r"C_shared|_shared")(o),
    ),
    Known(
        "transform_layout", DIFFER,
        "padding is written by a block of its own where the writer is more than one plain block in its loops",
        lambda o: "pad_value" in str(o.step) and _differs_at(r"")(o) and "_padding" in o.detail,
    ),
    Known(
        "blockize", WE_REFUSE, "blocks in another order than they stand in, or one of them twice, are refused",
        _code("E0686", "in this order|several blocks"),
    ),
    Known(
        "blockize", WE_REFUSE, "a reduction with an init in a list of blocks is refused; TVM drops the init",
        _code("E0686", "with an init"),
    ),
    Known(
        "blockize", WE_REFUSE, "an `if` between the loop and the block is refused; TVM drops it",
        _code("E0685", "statements other than loops"),
    ),
    Known(
        "blockize", WE_REFUSE, "a condition that the axes of the two blocks cannot tell is refused; TVM drops it",
        _code("E0685", "do not fall [^|]* where "),
    ),
    Known(
        "blockize", DIFFER, "a condition on a loop that the axes of the two blocks do not tell stays; TVM drops it",
        _says(r"^not structurally equal at [^\n]*predicate[^\n]*: (LT|And) against IntImm"),
    ),
    Known(
        "blockize", DIFFER, "an init has the conditions of its own loops; TVM's also those of loops that it is not in",
        _says(r"^not structurally equal at [^\n]*init\[0\][^\n]*predicate"),
    ),
    Known(
        "blockize", THEY_REFUSE, "axes of 64-bit integers that are not affine: TVM gives them 32-bit extents",
        _says("extent_ty == var_ty"),
    ),
)  # fmt: skip


def reason(outcome: Outcome) -> str | None:
    """Why the sides disagree, where that is meant to be."""
    for entry in KNOWN:
        if outcome.step.name in entry.primitives.split() and entry.status == outcome.status and entry.applies(outcome):
            return entry.reason
    return None


def table() -> str:
    """The rows of the table in docs/schedules.md."""
    rows: dict[str, list[str]] = {}
    for entry in KNOWN:
        rows.setdefault(entry.reason, []).extend(entry.primitives.split())
    return "".join(f"| {', '.join(f'`{n}`' for n in dict.fromkeys(names))} | {why} |\n" for why, names in rows.items())
