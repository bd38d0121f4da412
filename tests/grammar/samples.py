"""Hand-made modules that together hold every kind of node; built from nodes, so that no parser is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, FLOAT32, HANDLE, INT32, INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ir.tensor_data import TensorData

NAMED = Attrs(global_symbol="main")


def _range(extent: int, start: int = 0) -> tir.Range:
    return tir.Range(c.const(start), c.const(extent))


def _prim(body: list[tir.Stmt], *buffers: tir.Buffer, attrs: Attrs = NAMED) -> IRModule:
    params = tuple(tir.Var(b.name, HANDLE) for b in buffers)
    return IRModule({"main": tir.PrimFunc(params, buffers, attrs, tuple(body))})


def _root(*body: tir.Stmt, alloc: tuple[tir.Buffer, ...] = ()) -> tir.BlockRealize:
    return tir.BlockRealize((), tir.TRUE, tir.Block("root", (), (), (), body, alloc_buffers=alloc))


def matmul() -> IRModule:
    a, b, y, d = (c.make_buffer(n, (16, 16)) for n in "ABYD")
    i, j, k = (tir.Var(n, INT32) for n in "ijk")
    vi, vj, vk = (tir.Var(n, INT32) for n in ("vi", "vj", "vk"))

    def at(buffer: tir.Buffer, *places: tir.Expr) -> tir.BufferRegion:
        return tir.BufferRegion(buffer, tuple(tir.Range(p, c.const(1)) for p in places))

    def axes(*pairs: tuple[tir.Var, tir.IterKind]) -> tuple[tir.IterVar, ...]:
        return tuple(tir.IterVar(v, _range(16), kind) for v, kind in pairs)

    spatial, reduce = tir.IterKind.SPATIAL, tir.IterKind.REDUCE
    product = c.mul(c.load(a, vi, vk), c.load(b, vk, vj))
    first = tir.Block(
        "Y", axes((vi, spatial), (vj, spatial), (vk, reduce)), (at(a, vi, vk), at(b, vk, vj)), (at(y, vi, vj),),
        (c.store(y, c.add(c.load(y, vi, vj), product), vi, vj),), (c.store(y, 0.0, vi, vj),),
    )  # fmt: skip
    x, z = tir.Var("vi", INT32), tir.Var("vj", INT32)
    second = tir.Block(
        "relu", axes((z, spatial), (x, spatial)), (at(y, x, z),), (at(d, x, z),),
        (c.store(d, c.maximum(c.load(y, x, z), 0.0), x, z),), annotations=Attrs(tile=(4, 4)),
    )  # fmt: skip
    nest: tir.Stmt = tir.BlockRealize((i, j, k), tir.TRUE, first)
    for var in (k, j, i):
        nest = tir.For(var, c.const(0), c.const(16), tir.ForKind.SERIAL, (nest,))
    o, n, m = tir.Var("i_0", INT32), tir.Var("i_1", INT32), tir.Var("j", INT32)
    split = c.add(c.mul(o, 6), n)
    inner: tir.Stmt = tir.BlockRealize((m, split), c.less(split, 16), second)
    inner = tir.For(m, c.const(0), c.const(16), tir.ForKind.VECTORIZED, (inner,))
    inner = tir.For(n, c.const(0), c.const(6), tir.ForKind.UNROLLED, (inner,), annotations=Attrs(pragma="x", k=1))
    inner = tir.For(o, c.const(0), c.const(3), tir.ForKind.PARALLEL, (inner,))
    attrs = Attrs({"global_symbol": "main", "tir.noalias": True})
    return _prim([_root(nest, inner, alloc=(y,))], a, b, d, attrs=attrs)


def buffers() -> IRModule:
    """Strides, offsets, scopes, views, symbolic shapes, regions matched inside a block."""
    n, m, offset = tir.Var("n", INT64), tir.Var("m", INT64), tir.Var("offset", INT64)
    a = c.make_buffer("A", (n, m), "float16", strides=(m, 1), elem_offset=offset, offset_factor=8)
    b = c.make_buffer("B", (c.add(n, 1),), "int8", alignment=16)
    flat = c.make_buffer("flat", (64,), "float32")
    local = c.make_buffer("scratch", (8, 8), scope="shared")
    row = c.make_buffer("row", (4,), scope="shared", strides=(tir.Var("s", INT32),), elem_offset=tir.Var("o", INT32))
    zero = c.const(0, "int64")
    source = tir.BufferRegion(local, (_range(1, 3), _range(4, 4)))
    match = tir.MatchBufferRegion(row, source)
    body = c.store(flat, c.add(c.load(row, 1), c.cast("float32", c.load(a, c.sub(n, 1), 0))), 3)
    block = tir.Block(
        "match", (), (tir.BufferRegion(a, (tir.Range(zero, n), tir.Range(c.sub(m, 1), c.const(1, "int64")))),),
        (tir.BufferRegion(flat, (_range(1, 3),)),), (body,), match_buffers=(match,),
    )  # fmt: skip
    view = tir.Buffer("view", flat.data, FLOAT32, (c.const(8), c.const(8)), (), c.const(0))
    pointer = tir.Var("p", HANDLE, tir.PointerType(DType.of("int8")))
    words = tir.Buffer("words", pointer, DType.of("int8"), (c.const(4),), (), c.const(0))
    address = c.call("handle", "address_of", c.load(b, c.const(0, "int64")))
    stmts: list[tir.Stmt] = [
        tir.BlockRealize((), tir.TRUE, block),
        tir.DeclBuffer(view, view.data),
        c.store(view, 1.0, 2, 3),
        tir.Bind(pointer, address),
        tir.DeclBuffer(words, pointer),
        c.store(words, 7, 0),
        tir.Evaluate(c.call("int32", "call_extern", "use", flat.data)),
    ]
    return _prim([_root(*stmts, alloc=(local,))], a, b, flat)


def statements() -> IRModule:
    a, f = c.make_buffer("A", (8,), "int32"), c.make_buffer("F", (8, 4))
    i, j, k, x, o = (tir.Var(n, INT32) for n in ("i", "j", "i", "x", "i"))
    t, flag = tir.Var("t", INT32), tir.Var("flag", BOOL)
    counter = c.make_buffer("counter", (1,), "int32", "local")
    lanes = tir.Ramp(INT32.with_lanes(4), c.mul(o, 4), c.const(1), 4)
    picked = tir.Evaluate(tir.Shuffle(INT32.with_lanes(2), (lanes,), (c.const(0), c.const(2))))
    whole = tir.Ramp(INT32.with_lanes(4), c.const(0), c.const(1), 4)
    four = FLOAT32.with_lanes(4)
    packed = c.call("int32", "call_packed", "env.f", a.data)
    body: list[tir.Stmt] = [
        tir.Bind(t, c.add(c.load(a, 0), 1)),
        tir.Bind(flag, c.less(t, 3)),
        tir.AssertStmt(c.greater(t, 0), "RuntimeError", ("t is positive",)),
        tir.AssertStmt(flag, "ValueError", ("a is ", "too large")),
        tir.AllocBuffer(counter, Attrs(note=1)),
        c.store(counter, 0, 0),
        tir.While(
            c.less(c.load(counter, 0), 8),
            (
                c.store(counter, c.add(c.load(counter, 0), 1), 0),
                tir.IfThenElse(c.equal(c.load(counter, 0), 5), (tir.Break(),), (tir.Continue(),)),
            ),
        ),
        tir.For(i, c.const(2), c.const(4), tir.ForKind.SERIAL, (c.store(a, i, i),)),
        tir.For(j, c.const(0), c.const(8), tir.ForKind.SERIAL, (c.store(a, j, j),), step=c.const(2)),
        tir.IfThenElse(flag, (), (tir.IfThenElse(c.less(t, 5), (tir.Evaluate(c.const(0)),), (tir.Evaluate(t),)),)),
        tir.Evaluate(tir.Let(INT32, x, t, c.mul(x, x))),
        tir.For(
            k, c.const(0), c.const(8), tir.ForKind.SERIAL,
            (tir.BufferStore(f, tir.Broadcast(four, c.const(0.5), 4), (k, whole)),),
        ),
        tir.For(o, c.const(0), c.const(8), tir.ForKind.PARALLEL, (picked,)),
        tir.AttrStmt(c.const(0), "pragma", tir.StringImm("on"), (tir.Evaluate(packed),)),
        tir.AttrStmt(a, "scope", 3, (tir.Evaluate(c.call("float32", "exp", c.const(1.0))),)),
    ]  # fmt: skip
    return _prim(body, a, f)


def separators() -> IRModule:
    """What TVM 0.27 has no more."""
    flat = c.make_buffer("flat", (64,), "float32")
    view = tir.Buffer("view", flat.data, FLOAT32, (c.const(8), c.const(8)), (), c.const(0), 64, 1, (1,))
    return _prim([tir.DeclBuffer(view, view.data), c.store(view, 1.0, 2, 3)], flat)


def threads() -> IRModule:
    a = c.make_buffer("A", (64,))
    block, thread = tir.Var("bx", INT32), tir.Var("tx", INT32)
    extent = tir.Range(c.const(0), c.const(8))
    x = tir.IterVar(block, extent, tir.IterKind.THREAD, "blockIdx.x")
    y = tir.IterVar(thread, extent, tir.IterKind.THREAD, "threadIdx.x")
    place = c.add(c.mul(block, 8), thread)
    twice = tir.AttrStmt(y, "thread_extent", c.const(8), (c.store(a, 1.0, place),))
    again = tir.AttrStmt(y, "thread_extent", c.const(8), (c.store(a, 2.0, place),))
    launched = tir.AttrStmt(x, "thread_extent", c.const(8), (twice, again))
    bound = tir.Var("b", INT32)
    loop = tir.For(bound, c.const(0), c.const(64), tir.ForKind.THREAD_BINDING, (c.store(a, 3.0, bound),), "threadIdx.y")
    p, q = tir.Var("p", FLOAT32), tir.Var("q", FLOAT32)
    reducer = tir.CommReducer((p,), (q,), (c.add(p, q),), (c.const(0.0),))
    reduce = tir.Reduce(FLOAT32, reducer, (c.const(1.0),), (), (y,), tir.TRUE, 0)
    reducing = tir.AttrStmt(reducer, "reduce_scope", c.const(0), (tir.Evaluate(reduce),))
    return _prim([loop, launched, reducing], a)


def _tensor(*dims: tir.Expr | int, dtype: str = "float32") -> relax.TensorStructInfo:
    made = tuple(c.const(n, INT64) if isinstance(n, int) else n for n in dims)
    return relax.TensorStructInfo(relax.ShapeExpr(made), DType.of(dtype), len(made))


def _call(name: str, *args: relax.Expr, info: relax.StructInfo | None = None, **attrs: object) -> relax.Call:
    return relax.Call(tir.Op("relax." + name), args, Attrs(attrs), (), info)


def graph() -> IRModule:
    """Symbolic shapes, calls of all kinds, a dataflow block, a branch, an inner function."""
    n, m = tir.Var("n", INT64), tir.Var("m", INT64)
    x = relax.Var("x", _tensor(n, 4))
    s = relax.Var("s", relax.ShapeStructInfo((n, c.mul(m, 2), m), 3))
    p = relax.Var("p", relax.PrimStructInfo(INT64, tir.Var("p", INT64)))
    f = relax.Var("f", relax.FuncStructInfo((_tensor(n, 4),), _tensor(n), True))
    anything = relax.ObjectStructInfo()
    o = relax.Var("o", relax.TupleStructInfo((anything, relax.FuncStructInfo(None, anything, False))))
    info = _tensor(n, 4)
    lv = relax.DataflowVar("lv", info)
    lv1 = relax.DataflowVar("lv", info)
    k = tir.Var("k", INT64)
    lv2 = relax.DataflowVar("lv", _tensor(k, 4))
    gv, gv1 = relax.Var("gv", info), relax.Var("gv", _tensor(1, dtype="float16"))
    half = relax.Constant(TensorData.of(np.array([0.5], "float16")), _tensor(1, dtype="float16"))
    call = relax.Call(
        tir.Op("relax.call_tir"), (relax.GlobalVar("kernel"), relax.Tuple((lv,))), sinfo_args=(info,), struct_info=info
    )
    packed = relax.Call(
        tir.Op("relax.call_dps_packed"), (relax.ExternFunc("env.f"), relax.Tuple((lv, lv1))),
        sinfo_args=(relax.TupleStructInfo((info, info)),),
    )  # fmt: skip
    both = relax.DataflowVar("both", relax.TupleStructInfo((info, info)))
    flow = relax.DataflowBlock((
        relax.VarBinding(lv, _call("add", x, x, info=info)),
        relax.VarBinding(lv1, call),
        relax.VarBinding(both, packed),
        relax.MatchCast(lv2, lv, _tensor(k, 4)),
        relax.VarBinding(gv, relax.TupleGetItem(both, 1)),
        relax.VarBinding(gv1, half),
    ))  # fmt: skip
    condition = relax.Var("c", _tensor(dtype="bool"))
    sides = []
    for op, v in (("sum", relax.Var("w", _tensor(4))), ("max", relax.Var("u", _tensor(4)))):
        reduced = relax.VarBinding(v, _call(op, gv, axis=(0,), keepdims=False, info=_tensor(4)))
        sides.append(relax.SeqExpr((relax.BindingBlock((reduced,)),), v))
    r = relax.Var("r", _tensor(4))
    y = relax.Var("y", info)
    z = relax.Var("z", info)
    inner = relax.Function(
        (y,), relax.SeqExpr((relax.BindingBlock((relax.VarBinding(z, _call("nn.relu", y, info=info)),)),), z), info
    )
    g = relax.Var("inner", relax.FuncStructInfo((info,), info))
    misc = relax.Tuple((
        relax.ShapeExpr((n, c.add(n, c.mul(m, 2)), c.minimum(n, 8))), relax.PrimValue(c.const(1, "int64")),
        relax.StringImm("x"), relax.DataTypeImm(FLOAT32), relax.Tuple(()), relax.Tuple((gv,)),
    ))  # fmt: skip
    pair = relax.TupleStructInfo((_tensor(4), relax.TupleStructInfo(())))
    plain = relax.BindingBlock((
        relax.VarBinding(condition, relax.Constant(TensorData.of(np.array(True)))),
        relax.VarBinding(r, relax.If(condition, sides[0], sides[1], _tensor(4))),
        relax.VarBinding(g, inner),
        relax.VarBinding(relax.Var("h", info), relax.Call(g, (gv,))),
        relax.VarBinding(relax.Var("e", pair), relax.Call(
            relax.ExternFunc("ext"), (r, misc), Attrs(option=True), pair.fields)),
        relax.VarBinding(relax.Var("m", _tensor(4)), relax.Call(relax.GlobalVar("other"), (r,))),
        relax.VarBinding(relax.Var("w", _tensor(n)), _call("matmul", gv, r, out_dtype=None)),
        relax.VarBinding(relax.Var("_", relax.TupleStructInfo(())), _call("print", relax.StringImm("{}"), gv)),
    ))  # fmt: skip
    result = relax.Tuple((gv, gv1))
    ret = relax.TupleStructInfo((info, _tensor(1, dtype="float16")))
    body = relax.SeqExpr((flow, plain), result, ret)
    attrs = Attrs({"global_symbol": "main", "num_input": 1, "k": (1, "a")})
    main = relax.Function((x, s, p, f, o), body, ret, False, attrs)
    v, u = relax.Var("v", _tensor(4)), relax.Var("v", relax.TensorStructInfo(None, FLOAT32, 1))
    other = relax.Function((v,), relax.SeqExpr((), v), v.struct_info)
    q, sh = relax.Var("q", relax.TensorStructInfo(None, None, -1)), relax.Var("sh", relax.ShapeStructInfo(None, 2))
    unknown = relax.Function((u, q, sh), relax.SeqExpr((), u), u.struct_info)
    attrs = {"version": 1, "map": {"b": [1.5, None], "a": True}}
    return IRModule({"kernel": _copy(), "other": other, "unknown": unknown, "main": main}, attrs, "Sample")


def _copy() -> tir.PrimFunc:
    """A kernel with symbolic shapes: B = A."""
    n = tir.Var("n", INT64)
    a, b = (c.make_buffer(name, (n, c.const(4, INT64))) for name in "AB")
    i, j = tir.Var("i", INT64), tir.Var("j", INT64)
    zero = c.const(0, INT64)
    inner = tir.For(j, zero, c.const(4, INT64), tir.ForKind.SERIAL, (c.store(b, c.load(a, i, j), i, j),))
    body = tir.For(i, zero, n, tir.ForKind.SERIAL, (inner,))
    return tir.PrimFunc((tir.Var("A", HANDLE), tir.Var("B", HANDLE)), (a, b), Attrs({"tir.noalias": True}), (body,))


def weights() -> IRModule:
    """A constant that is too large to be written out."""
    values = np.arange(24, dtype="int16").reshape(2, 12)
    w = relax.Constant(TensorData.of(values, key="w0"), _tensor(2, 12, dtype="int16"))
    x = relax.Var("x", _tensor(2, 12, dtype="int16"))
    y = relax.Var("y", x.struct_info)
    block = relax.BindingBlock((relax.VarBinding(y, _call("add", x, w, info=x.struct_info)),))
    func = relax.Function((x,), relax.SeqExpr((block,), y), x.struct_info, True, NAMED)
    return IRModule({"main": func})


SAMPLES: dict[str, Callable[[], IRModule]] = {
    "matmul": matmul, "buffers": buffers, "statements": statements, "separators": separators, "threads": threads,
    "graph": graph,
    "weights": weights, "empty": IRModule,
}  # fmt: skip
