"""The primitives that set the kind of a loop: `parallel`, `vectorize`, `unroll`, `bind`."""

from __future__ import annotations

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import ForKind, IterKind
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind, shared_by_threads, vars_of
from mlcc.passes.schedule.analysis.checks import check_subtree_compact_dataflow
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree

THREADS = (
    "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vthread", "vthread.x", "vthread.y", "vthread.z",
)  # fmt: skip


@primitive()
def parallel(state: State, loop: LoopRef) -> None:
    """Run the iterations of a loop in parallel.

    Refused if a block inside has an axis that is not spatial and depends on the loop (E0627), or is neither complete
    nor a reduction within it (E0657).
    """
    _check_iterations(loop, "parallelize")
    _set_kind(state, loop, ForKind.PARALLEL)


@primitive()
def vectorize(state: State, loop: LoopRef) -> None:
    """Run the iterations of a loop in the lanes of vectors.

    Refused as `parallel` is: E0627, E0657; and for a loop whose extent is not a constant (E0635; TVM accepts that, and
    cannot build it).
    """
    name = loop.loop.var.name
    if tir.const_int(loop.loop.extent) is None:
        raise Refusal(
            "E0635", f"cannot vectorize loop `{name}`: its extent `{loop.loop.extent}` is not a constant",
            loop.loop, f"split it, and vectorize the inner part: `sch.split({name}, factors=[None, 4])`",
        )  # fmt: skip
    _check_iterations(loop, "vectorize")
    _set_kind(state, loop, ForKind.VECTORIZED)


@primitive()
def unroll(state: State, loop: LoopRef) -> None:
    """Unroll a loop: repeat its body for each iteration.

    Never refused.
    """
    _set_kind(state, loop, ForKind.UNROLLED)


@primitive()
def bind(state: State, loop: LoopRef, thread_axis: str) -> None:
    """Bind a loop to an axis of GPU threads, such as `blockIdx.x`, `threadIdx.y`, `vthread.x`.

    Refused as `parallel` is (E0627, E0657), but `threadIdx.*` may run a reduce axis, the threads then reduce
    together; for other names of axes (E0628), and inside or around a loop with the same axis (E0634; TVM accepts that),
    unless the inner loop shares out work that each thread would do alike, as when threads fill shared memory together.
    """
    if thread_axis not in THREADS:
        help = did_you_mean(thread_axis, THREADS) or f"the axes are {', '.join(THREADS)}"
        raise Refusal("E0628", f"there is no thread axis `{thread_axis}`", loop.loop, help)
    _check_iterations(loop, f"bind to `{thread_axis}`", reduces=thread_axis.startswith("threadIdx"))
    _check_axis_free(loop, thread_axis)
    _set_kind(state, loop, ForKind.THREAD_BINDING, thread_axis)


def _check_axis_free(ref: LoopRef, axis: str) -> None:
    """Refuse (E0634) an axis to which a loop above or below is bound, since a thread has one index on it."""
    if axis.startswith("vthread"):
        return
    tree, loop = ref.tree, ref.loop
    above: list[tir.For] = []
    at = tree.parent(loop)
    while at is not None:
        if isinstance(at, tir.For):
            above.append(at)
        at = tree.parent(at)
    inside = [n for n in walk(loop) if isinstance(n, tir.For) and n is not loop]
    for other in (*above, *inside):
        outer, inner = (other, loop) if other in above else (loop, other)
        if other.thread == axis and not _shares_work(tree, outer, inner, axis):
            raise Refusal(
                "E0634",
                f"cannot bind loop `{loop.var.name}` to `{axis}`: loop `{other.var.name}`"
                f" {'around' if other in above else 'inside'} it is bound to it, and both would be the same index",
                (loop, other), "use another axis, or fuse the two loops and bind the result",
            )  # fmt: skip


def _shares_work(tree: Tree, outer: tir.For, inner: tir.For, axis: str) -> bool:
    """Return True if all threads along `axis` do the same work in `inner`, on memory that they share."""
    for realize in tree.child_realizes(inner.body):
        if any(outer.var in vars_of(value) for value in (*realize.values, realize.predicate)):
            return False
        if not all(shared_by_threads(w.buffer.scope, axis) for w in realize.block.writes):
            return False
    return True


def _set_kind(state: State, loop: LoopRef, kind: ForKind, thread: str | None = None) -> None:
    edit = Rebuild(loop.tree)
    edit.put(loop.loop, replace(loop.loop, kind=kind, thread=thread))
    state.update(loop.func_name, edit)


def _check_iterations(ref: LoopRef, action: str, reduces: bool = False) -> None:
    tree, loop = ref.tree, ref.loop
    check_subtree_compact_dataflow(tree, loop)
    allowed = (IterKind.SPATIAL, IterKind.REDUCE) if reduces else (IterKind.SPATIAL,)
    for realize in _realizes(tree, loop):
        block = realize.block
        for axis, value in zip(block.iter_vars, realize.values, strict=True):
            if axis.kind not in allowed and loop.var in vars_of(value):
                kind = {IterKind.REDUCE: "reduce", IterKind.SCAN: "ordered"}.get(axis.kind, axis.kind.name.lower())
                raise Refusal(
                    "E0627",
                    f"cannot {action} loop `{loop.var.name}`: it drives the {kind} axis `{axis.var.name}` of block"
                    f" `{block.name}`",
                    (loop, block), _alternatives(tree, block, axis.kind, action),
                )  # fmt: skip


def _realizes(tree: Tree, loop: tir.For) -> list[tir.BlockRealize]:
    """Return all blocks inside, except those in inits."""
    realizes, bodies = [], [loop.body]
    while bodies:
        for realize in tree.child_realizes(bodies.pop()):
            realizes.append(realize)
            bodies.append(realize.block.body)
    return realizes


def _alternatives(tree: Tree, block: tir.Block, kind: IterKind, action: str) -> str:
    loops = tree.loops_above(block)
    spatial = [f"`{x.var.name}`" for x in loops if loop_iter_kind(tree, x) is IterKind.SPATIAL]
    alternatives = [f"the loops around `{block.name}` that are spatial: {', '.join(spatial) or 'none'}"]
    if kind is IterKind.REDUCE:
        bound = action.startswith("bind")
        alternatives.append(
            "bind it to `threadIdx.x`, `.y` or `.z`, whose threads can reduce together" if bound else ""
        )
        alternatives.append("`sch.rfactor(loop, 0)` makes a spatial loop of a reduce loop")
    return "; ".join(alternative for alternative in alternatives if alternative)
