"""Blocks: `with T.block("C"):`, their axes, regions, predicate, init, annotations, and the buffers they own."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import Label, did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import attribute_values
from mlcc.grammar.tir import buffers as tir_buffers
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.evaluation_results import describe
from mlcc.grammar.tir.non_expressions import as_range
from mlcc.grammar.tir.scope import BlockFrame, FunctionWalk
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import FLOAT32
from mlcc.ir.node import Attrs
from mlcc.ir.tir import IterKind

_KINDS = {
    "spatial": IterKind.SPATIAL, "S": IterKind.SPATIAL, "reduce": IterKind.REDUCE, "R": IterKind.REDUCE,
    "scan": IterKind.SCAN, "opaque": IterKind.OPAQUE,
}  # fmt: skip


# ---------------------------------------------------------------- the block


def walk_block(fw: FunctionWalk, call: tree.Call, body: tree.Body, cst: tree.With) -> None:
    """`with T.block("name"):`."""
    arguments = signature("T.block", "name= no_realize= exec_scope=").bind(fw.walk, call)
    name = fw.ev.string(arguments["name"], "the name of a block") if "name" in arguments else ""
    bare = "no_realize" in arguments and bool(fw.ev.value(arguments["no_realize"]))
    frame = BlockFrame()
    fw.frames.append(frame)
    loops, fw.loops = fw.loops, 0  # a block is left only at its end
    try:
        with fw.scope.frame(f" in block `{name}`, and is visible in that block only"):
            statements = fw.body(body)
    finally:
        fw.frames.pop()
        fw.loops = loops
    span = fw.walk.span(cst)
    block = tir.Block(
        name, tuple(frame.axes), frame.reads, frame.writes, statements or (fw.nothing(cst),), frame.init,  # type: ignore[arg-type]
        tuple(frame.allocs), tuple(frame.matches), Attrs(frame.annotations), span=span,
    )  # fmt: skip
    if bare:
        fw.out.add(block)
        return
    predicate = frame.predicate if frame.predicate is not None else construct.const(True)
    fw.out.add(tir.BlockRealize(tuple(frame.values), predicate, block, span=span))


def directly_in_block(fw: FunctionWalk, what: str, cst: tree.Node) -> BlockFrame:
    """The block that directly contains this statement; fails if there is none."""
    frame = fw.frames[-1]
    if frame is None:
        fw.walk.fail("E0305", f"`{what}` must stand directly in a block", cst, help='`with T.block("name"):`')
    return frame


def _once(fw: FunctionWalk, frame: BlockFrame, what: str, cst: tree.Node) -> None:
    before = frame.places.get(what)
    if before is not None:
        fw.walk.fail("E0305", f"`{what}` appears twice in one block", cst, related=(Label(before, "first here"),))
    frame.places[what] = fw.walk.span(cst)


def walk_init(fw: FunctionWalk, call: tree.Call, body: tree.Body, cst: tree.With) -> None:
    """`with T.init():`."""
    frame = directly_in_block(fw, "T.init", cst)
    _once(fw, frame, "T.init", call)
    signature("T.init", "").bind(fw.walk, call)
    frame.init = fw.inner(body, " in `T.init`", cst)


# ---------------------------------------------------------------- statements directly in a block


def _regions(fw: FunctionWalk, call: tree.Call) -> tuple[tir.BufferRegion, ...]:
    items = tree.items_of(call.args[0]) if len(call.args) == 1 else call.args
    return tuple(fw.ev.region(item) for item in items)


def _reads(fw: FunctionWalk, call: tree.Call) -> None:
    frame = directly_in_block(fw, "T.reads", call)
    _once(fw, frame, "T.reads", call)
    frame.reads = _regions(fw, call)


def _writes(fw: FunctionWalk, call: tree.Call) -> None:
    frame = directly_in_block(fw, "T.writes", call)
    _once(fw, frame, "T.writes", call)
    frame.writes = _regions(fw, call)


def _where(fw: FunctionWalk, call: tree.Call) -> None:
    frame = directly_in_block(fw, "T.where", call)
    _once(fw, frame, "T.where", call)
    frame.predicate = fw.ev.bool(signature("T.where", "predicate").bind(fw.walk, call)["predicate"])


def _block_attr(fw: FunctionWalk, call: tree.Call) -> None:
    frame = directly_in_block(fw, "T.block_attr", call)
    arguments = signature("T.block_attr", "attrs").bind(fw.walk, call)
    frame.annotations.update(attribute_values.attributes(fw.ev, arguments["attrs"], "annotations"))


STATEMENTS: dict[str, Callable[[FunctionWalk, tree.Call], None]] = {
    "reads": _reads, "writes": _writes, "where": _where, "block_attr": _block_attr, "sblock_attr": _block_attr,
}  # fmt: skip


# ---------------------------------------------------------------- axes


def axes(fw: FunctionWalk, target: tree.Expr, call: tree.Call) -> bool:
    """`vi = T.axis.spatial(16, i)` or `vi, vj = T.axis.remap("SS", [i, j])`; False if it is neither."""
    path = fw.walk.dotted(call.function, fw.scope)
    if path is None or not path.startswith("T.axis."):
        return False
    frame = directly_in_block(fw, path, call)
    kind = path.removeprefix("T.axis.")
    if kind == "remap":
        _remap(fw, frame, target, call)
    elif kind in _KINDS:
        if isinstance(target, tree.Display):
            if len(target.items) != 1:
                fw.walk.fail("E0302", f"cannot unpack one axis into {len(target.items)} names", target)
            target = target.items[0]
        _axis(fw, frame, target, _KINDS[kind], call)
    else:
        known = [*_KINDS, "remap"]
        help = did_you_mean(kind, known) or "the axes of a block are T.axis.spatial and T.axis.reduce"
        fw.walk.fail("E0203", f"there is no `{path}`", call.function, help=help)
    return True


def _axis(fw: FunctionWalk, frame: BlockFrame, target: tree.Expr, kind: IterKind, call: tree.Call) -> None:
    name = fw.walk.dotted(call.function, fw.scope) or ""
    arguments = signature(name, "dom binding dtype=").bind(fw.walk, call)
    dom = as_range(fw.ev, arguments["dom"])
    value = fw.ev.expr(arguments["binding"])
    if not (value.dtype.is_int or value.dtype.is_bool):
        fw.walk.fail("E0301", f"an axis must be bound to an integer, not {value.dtype}", arguments["binding"])
    _bind(fw, frame, target, kind, dom, value)


def _bind(
    fw: FunctionWalk, frame: BlockFrame, target: tree.Expr, kind: IterKind, dom: tir.Range, value: tir.Expr
) -> None:
    if not isinstance(target, tree.Name):
        fw.walk.fail("E0302", "an axis must be bound to a name", target)
    span = fw.walk.span(target)
    var = tir.Var(target.id, dom.extent.dtype, span=span)
    fw.define(target, var)
    frame.axes.append(tir.IterVar(var, dom, kind, span=span))
    frame.values.append(value)


def _remap(fw: FunctionWalk, frame: BlockFrame, target: tree.Expr, call: tree.Call) -> None:
    arguments = signature("T.axis.remap", "kinds bindings dtype=").bind(fw.walk, call)
    kinds = fw.ev.string(arguments["kinds"], "the kinds of axes")
    bad = next((c for c in kinds if c not in "SR"), None)
    if bad is not None or not kinds:
        help = 'one letter for each axis: "SSR"'
        fw.walk.fail("E0302", "the kinds of axes are S (spatial) and R (reduce)", arguments["kinds"], help=help)
    at = arguments["bindings"]
    items = tree.items_of(at)
    bindings = [(item, fw.ev.value(item)) for item in items]
    if len(bindings) == 1 and isinstance(bindings[0][1], (tuple, list)):
        bindings = [(items[0], v) for v in bindings[0][1]]
    if len(bindings) != len(kinds):
        fw.walk.fail("E0302", f"{len(kinds)} kinds for {len(bindings)} loops", call)
    targets = _targets(fw, target, len(kinds))
    for one, kind, (item, loop) in zip(targets, kinds, bindings, strict=True):
        dom = fw.ranges.get(loop) if isinstance(loop, tir.Var) else None
        if dom is None:
            what = describe(loop) if not isinstance(loop, tir.Expr) else "this"
            help = "bind other values by `T.axis.spatial(extent, value)`"
            fw.walk.fail("E0302", f"{what} is not the variable of a loop around the block", item, help=help)
        _bind(fw, frame, one, _KINDS[kind], dom, loop)


def _targets(fw: FunctionWalk, target: tree.Expr, count: int) -> list[tree.Expr]:
    """The names for the axes of a remap: as many as there are axes, or one with a star for several."""
    if not isinstance(target, tree.Display):
        if count == 1:
            return [target]
        fw.walk.fail("E0302", f"cannot bind {count} axes to one name", target)
    items = target.items
    if len(items) != count:
        fw.walk.fail("E0302", f"cannot unpack {count} axes into {len(items)} names", target)
    return list(items)


# ---------------------------------------------------------------- buffers of a block


def alloc(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """Allocate a buffer in the innermost block, or in the function; loops in between are ignored."""
    arguments = tir_buffers.BLOCK_ALLOC.bind(fw.walk, call)
    data = None
    if "data" in arguments:
        data, _ = tir_buffers.data_pointer(fw.ev, arguments["data"], target.id, FLOAT32, "global")
    buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target, data=data)
    blocks = [frame for frame in fw.frames if frame is not None]
    owner = blocks[-1].allocs if blocks else fw.root_allocs
    owner.append(buffer)
    fw.define(target, buffer)


def match(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """`A = T.match_buffer(a, ...)` of a parameter, or of a region inside a block."""
    arguments = tir_buffers.MATCH.bind(fw.walk, call)
    at = arguments["param"]
    value = fw.ev.value(at) if isinstance(at, tree.Name) else None
    if isinstance(value, tir.Var) and value.dtype.is_handle:
        _match_parameter(fw, target, value, arguments, call)
        return
    frame = directly_in_block(fw, "T.match_buffer", call)
    source = fw.ev.region(at)
    shape = dtype = None
    if "shape" not in arguments:
        shape = tuple(r.extent for r in source.region)
    if "dtype" not in arguments:
        dtype = source.buffer.dtype
    scope = None if "scope" in arguments else source.buffer.scope
    buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target, shape=shape, dtype=dtype, scope=scope)
    frame.matches.append(tir.MatchBufferRegion(buffer, source, span=fw.walk.span(call)))
    fw.define(target, buffer)


def _match_parameter(
    fw: FunctionWalk, target: tree.Name, param: tir.Var, arguments: dict[str, tree.Expr], call: tree.Call
) -> None:
    if param not in fw.signature.params:
        fw.walk.fail("E0302", f"`{param.name}` is not a parameter", arguments["param"])
    if param in fw.matched:
        before = fw.matched[param].span
        related = (Label(before, "first here"),) if before is not None else ()
        fw.walk.fail("E0305", f"parameter `{param.name}` is matched twice", call, related=related)
    if "shape" not in arguments:
        fw.walk.fail("E0304", "`T.match_buffer` of a parameter needs `shape`", call)
    buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target)
    fw.matched[param] = buffer
    fw.define(target, buffer)
