"""The value that replaces loads of an inlined buffer, derived from the block that stores it."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_inverse import inverse_affine_iter_map
from mlcc.arith.iter_map import NotAffine, detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Body


class ProducerInlining:
    """The value that `block` stores to `buffer`, as a function of the indices.

    Refuses (E0645) a block whose body is no single store, or whose indices do not invert to its axes.
    """

    def __init__(self, block: tir.Block, buffer: tir.Buffer) -> None:
        store = only_store(block, buffer)
        self._indices: list[tir.Var]
        self._value = store.value
        axes = self._plain_axes(block, store)
        if axes is not None:
            self._indices = axes
        else:
            self._invert(block, store)
        self._bound = [n.var for n in walk(self._value) if isinstance(n, tir.Let)]

    def value_at(self, load: tir.BufferLoad) -> tir.Expr:
        """Return the stored value at the indices of `load`. Refuses (E0646) a vector index."""
        if any(i.dtype.lanes > 1 for i in load.indices):
            raise Refusal("E0646", f"`{load.buffer.name}` is read by a vector index: {load}")
        values: dict[tir.Var, tir.Expr] = dict(zip(self._indices, load.indices, strict=True))
        values.update((var, tir.Var(var.name, var.dtype)) for var in self._bound)  # each copy binds its own
        return substitute(self._value, values)

    @staticmethod
    def _plain_axes(block: tir.Block, store: tir.BufferStore) -> list[tir.Var] | None:
        """The axes, if the store is indexed by them in order (or by 0 for an axis of one value)."""
        if len(block.iter_vars) != len(store.indices):
            return None
        analyzer = Analyzer()
        for axis, index in zip(block.iter_vars, store.indices, strict=True):
            if index is axis.var:
                continue
            unit = tir.const_int(axis.dom.min) == 0 and tir.const_int(axis.dom.extent) == 1
            if not (unit and analyzer.prove(c.equal(index, 0))):
                return None
        return [a.var for a in block.iter_vars]

    def _invert(self, block: tir.Block, store: tir.BufferStore) -> None:
        domain = {a.var: a.dom for a in block.iter_vars}
        iter_map = detect_iter_map(store.indices, domain, tir.TRUE, "bijective", Analyzer(), simplify_trivial=False)
        self._indices = [tir.Var(f"ph_{k}", i.dtype) for k, i in enumerate(store.indices)]
        why, inverse = iter_map.reason, {}
        if iter_map:
            try:
                inverse = dict(inverse_affine_iter_map(iter_map.indices, self._indices))
            except NotAffine as failure:
                why = str(failure)
        if why:
            indices = ", ".join(map(str, store.indices))
            raise Refusal(
                "E0645",
                f"block `{block.name}` cannot be inlined: the indices of `{store.buffer.name}[{indices}]` do not "
                f"determine which iteration stored an element ({why})",
                block,
            )
        for axis in block.iter_vars:
            if isinstance(axis.dom.min, tir.IntImm) and tir.const_int(axis.dom.extent) == 1:
                inverse[axis.var] = axis.dom.min
        self._value = substitute(self._value, inverse)


def only_store(block: tir.Block, buffer: tir.Buffer | None = None) -> tir.BufferStore:
    """Return the only store of `block`; refuse (E0645) other bodies, and stores through a matched buffer."""
    store = block.body[0] if len(block.body) == 1 else None
    if not isinstance(store, tir.BufferStore):
        raise Refusal("E0645", f"block `{block.name}` cannot be inlined: its body is {_body_text(block.body)}", block)
    own = {m.buffer: m.source.buffer for m in block.match_buffers} | {b: b for b in block.alloc_buffers}
    for node in walk(store):
        used = getattr(node, "buffer", None)
        if isinstance(used, tir.Buffer) and used in own:
            words = f"a view of `{own[used].name}`" if own[used] is not used else "its own buffer"
            raise Refusal(
                "E0645", f"block `{block.name}` cannot be inlined: it uses `{used.name}`, which is {words}", block
            )
    if buffer is not None and store.buffer is not buffer:
        raise Refusal(
            "E0645",
            f"block `{block.name}` stores to `{store.buffer.name}`, but declares that it writes `{buffer.name}`",
            block,
        )
    return store


def _body_text(body: Body) -> str:
    """Return a description of a body, to follow "its body is"."""
    if len(body) != 1:
        return f"{len(body)} statements, not one store"
    match body[0]:
        case tir.For(var=var):
            return f"the loop `{var.name}`, not one store"
        case tir.BlockRealize(block=block):
            return f"the block `{block.name}`, not one store"
        case tir.IfThenElse():
            return "a branch, not one store"
    return "not one store"
