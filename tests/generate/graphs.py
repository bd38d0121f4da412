"""Random modules with relax functions: operators, calls of PrimFuncs and packed functions, tuples, branches, blocks.

`module(seed)` gives one module. Every value is defined for all inputs; calls of packed functions occur on request only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import BOOL, INT64, DType
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace, walk
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import bind_call

Dims = tuple[tir.Expr, ...]
_UNARY = ("exp", "tanh", "sigmoid", "nn.relu", "negative", "abs", "nn.gelu", "nn.silu", "floor")
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


@dataclass(frozen=True)
class Options:
    symbolic: bool = True
    packed: bool = False
    branches: bool = True
    nested: bool = True
    dtypes: tuple[str, ...] = ("float32", "float32", "float64", "float16", "int32", "int64")
    extents: tuple[int, ...] = (1, 2, 3, 4, 5, 8)


def tensor(dims: Dims, dtype: DType) -> relax.TensorStructInfo:
    return relax.TensorStructInfo(relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims))), dtype, len(dims))


def module(seed: int, options: Options | None = None) -> IRModule:
    """The module of that number; its entry is `main`."""
    return _Generator(random.Random(seed), options or Options()).module()


class _Generator:
    def __init__(self, rng: random.Random, options: Options) -> None:
        self.rng = rng
        self.options = options
        self.functions: dict[str, Any] = {}
        self.symbols: list[tir.Var] = []
        self.count = 0

    def module(self) -> IRModule:
        rng = self.rng
        main = self.function("main", rng.randint(2, 8))
        if rng.random() < 0.3:
            helper = replace(self.function("helper", 2), attrs=Attrs({"note": [1, "x"]}))
            self.functions["helper"] = helper
        attrs = {"version": rng.randint(1, 9)} if rng.random() < 0.3 else {}
        made = {**self.functions, "main": main}
        return IRModule(made, attrs, rng.choice(["Module", "Model"]))

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}" if self.rng.random() < 0.8 else hint

    # ------------------------------------------------------------ functions

    def function(self, name: str, size: int) -> relax.Function:
        rng = self.rng
        symbolic = self.options.symbolic and rng.random() < 0.5
        self.symbols = [tir.Var(n, INT64) for n in ("n", "m")[: rng.randint(1, 2)]] if symbolic else []
        dtype = DType.of(rng.choice(self.options.dtypes))
        shapes = [self.shape() for _ in range(rng.randint(1, 2))]
        params = [relax.Var(f"x{i}", tensor(rng.choice(shapes), dtype)) for i in range(rng.randint(1, 3))]
        for symbol in self.symbols:
            if not any(symbol in (p.struct_info.dims or ()) for p in params):  # type: ignore[union-attr]
                params.append(relax.Var(f"x{len(params)}", tensor((symbol,), dtype)))
        blocks, result = self.body(list(params), size)
        info = self.visible(result.struct_info)
        attrs = {"global_symbol": name, **({"num_input": 1} if rng.random() < 0.3 else {})}
        seq = relax.SeqExpr(blocks, result, info)
        return relax.Function(tuple(params), seq, info, True, Attrs(attrs))

    def visible(self, info: relax.StructInfo | None) -> relax.StructInfo | None:
        """What a caller knows of a result: nothing that is in terms of symbols bound inside."""
        if isinstance(info, relax.TupleStructInfo):
            return relax.TupleStructInfo(tuple(self.visible(f) or f for f in info.fields))
        if isinstance(info, relax.TensorStructInfo) and info.dims is not None:
            used = {n for dim in info.dims for n in walk(dim) if isinstance(n, tir.Var)}
            if not used <= set(self.symbols):
                return relax.TensorStructInfo(None, info.dtype, info.ndim)
        return info

    def shape(self) -> Dims:
        rng = self.rng
        dims: list[tir.Expr] = []
        for _ in range(rng.choice([1, 2, 2, 2, 3])):
            if self.symbols and rng.random() < 0.5:
                dims.append(rng.choice(self.symbols))
            else:
                dims.append(c.const(rng.choice(self.options.extents), INT64))
        return tuple(dims)

    def body(self, known: list[relax.Var], size: int) -> tuple[tuple[relax.BindingBlock, ...], relax.Expr]:
        """One dataflow block, perhaps with plain bindings around it, and the result."""
        rng = self.rng
        blocks: list[relax.BindingBlock] = []
        if rng.random() < 0.25:
            blocks.append(relax.BindingBlock(tuple(self.bindings(known, 1, relax.Var))))
        inner = [*known]
        bindings = self.bindings(inner, size, relax.DataflowVar)
        last = self.bind(inner, relax.Var, rng.choice(inner))
        outputs = [last.var]
        bindings.append(last)
        if rng.random() < 0.3:
            extra = self.bind(inner, relax.Var, rng.choice(inner))
            bindings.append(extra)
            outputs.append(extra.var)
        blocks.append(relax.DataflowBlock(tuple(bindings)))
        known += outputs
        after: list[relax.Binding] = []
        if rng.random() < 0.25:
            after += self.bindings(known, 1, relax.Var)
        if self.options.branches and rng.random() < 0.25:
            after.append(self.branch(known))
        if self.options.nested and rng.random() < 0.15:
            after += self.closure(known)
        if after:
            blocks.append(relax.BindingBlock(tuple(after)))
        tensors = known[-2:] if len(known) > 1 and rng.random() < 0.3 else known[-1:]
        if len(tensors) == 1:
            return tuple(blocks), tensors[0]
        infos = tuple(t.struct_info for t in tensors if t.struct_info is not None)
        return tuple(blocks), relax.Tuple(tuple(tensors), relax.TupleStructInfo(infos))

    def bindings(self, known: list[relax.Var], size: int, kind: type[relax.Var]) -> list[relax.Binding]:
        return [self.step(known, kind) for _ in range(size)]

    def bind(self, known: list[relax.Var], kind: type[relax.Var], value: relax.Expr) -> relax.VarBinding:
        var = kind(self.name("lv" if kind is relax.DataflowVar else "gv"), value.struct_info)
        if isinstance(value.struct_info, relax.TensorStructInfo):
            known.append(var)
        return relax.VarBinding(var, value)

    # ------------------------------------------------------------ values

    def step(self, known: list[relax.Var], kind: type[relax.Var]) -> relax.Binding:
        rng = self.rng
        x = rng.choice(known)
        roll = rng.random()
        if roll < 0.1:
            return self.cast_match(known, kind, x)
        if roll < 0.25:
            return self.bind(known, kind, self.call_tir(x))
        if roll < 0.32 and self.options.packed:
            return self.bind(known, kind, self.call_packed(x))
        if roll < 0.38:
            fields = (x, rng.choice(known))
            infos = tuple(f.struct_info for f in fields if f.struct_info is not None)
            return self.bind(known, kind, relax.Tuple(fields, relax.TupleStructInfo(infos)))
        if roll < 0.45:
            return self.bind(known, kind, self.constant())
        return self.bind(known, kind, self.operator(x, known))

    def cast_match(self, known: list[relax.Var], kind: type[relax.Var], x: relax.Var) -> relax.MatchCast:
        dims, dtype = _info(x)
        fresh = tuple(tir.Var("k", INT64) if isinstance(n, tir.Var) and i == 0 else n for i, n in enumerate(dims))
        info = tensor(fresh, dtype)
        var = kind(self.name("mc"), info)
        known.append(var)
        return relax.MatchCast(var, x, info)

    def operator(self, x: relax.Var, known: list[relax.Var]) -> relax.Expr:
        rng = self.rng
        dims, dtype = _info(x)
        floating = dtype.is_float
        options = ["binary", "reshape", "astype", "expand", "scalar"]
        options += ["permute", "reduce", "concat"] if dims else []
        options += ["unary", "softmax"] if floating and dims else []
        options += ["matmul"] if floating and len(dims) >= 2 else []
        kind = rng.choice(options)
        if kind == "unary":
            return self.call(rng.choice(_UNARY), dims, dtype, x)
        if kind == "scalar":
            value = np.array(rng.choice([1, 2, 3]), _numpy(dtype))
            data = TensorData.of(value)
            return self.call(rng.choice(_BINARY), dims, dtype, x, relax.Constant(data, tensor((), dtype)))
        if kind == "binary":
            same = [v for v in known if _same(_info(v), (dims, dtype))]
            return self.call(rng.choice(_BINARY), dims, dtype, x, rng.choice(same))
        if kind == "softmax":
            return self.call("nn.softmax", dims, dtype, x, axis=rng.choice([-1, 0]))
        if kind == "permute":
            axes = [*range(len(dims))]
            rng.shuffle(axes)
            return self.call("permute_dims", tuple(dims[a] for a in axes), dtype, x, axes=axes)
        if kind == "astype":
            other = DType.of(rng.choice(["float32", "float64", "int32"]))
            return self.call("astype", dims, other, x, dtype=str(other))
        if kind == "reduce":
            axis = rng.randrange(len(dims))
            keep = rng.random() < 0.5
            rest = tuple(c.const(1, INT64) if i == axis else n for i, n in enumerate(dims) if keep or i != axis)
            return self.call(rng.choice(["sum", "max", "min"]), rest, dtype, x, axis=[axis], keepdims=keep)
        if kind == "expand":
            at = rng.randint(0, len(dims))
            return self.call("expand_dims", (*dims[:at], c.const(1, INT64), *dims[at:]), dtype, x, axis=[at])
        if kind == "concat":
            first = c.add(dims[0], dims[0])
            if isinstance(dims[0], tir.Var):
                return self.call("negative", dims, dtype, x)
            return self.call("concat", (first, *dims[1:]), dtype, [x, x], axis=0)
        if kind == "matmul":
            width = c.const(rng.choice([1, 3, 4]), INT64)
            if not isinstance(dims[-1], tir.IntImm):
                return self.call("abs", dims, dtype, x)
            weight = self.array((dims[-1].value, width.value), dtype)  # type: ignore[attr-defined]
            return self.call("matmul", (*dims[:-1], width), dtype, x, weight, out_dtype=None)
        if all(isinstance(n, tir.IntImm) for n in dims):
            total = 1
            for n in dims:
                total *= c.tir.const_int(n) or 0
            flat = (c.const(total, INT64),)
            return self.call("reshape", flat, dtype, x, relax.ShapeExpr(flat, relax.ShapeStructInfo(flat, 1)))
        return self.call("negative", dims, dtype, x)

    def call(self, name: str, dims: Dims, dtype: DType, /, *args: Any, **attrs: Any) -> relax.Expr:
        made = bind_call(name, args, attrs)
        return made if made.struct_info is not None else replace(made, struct_info=tensor(dims, dtype))

    def constant(self) -> relax.Constant:
        rng = self.rng
        shape = tuple(rng.choice([1, 2, 3, 5]) for _ in range(rng.randint(0, 2)))
        return self.array(shape, DType.of(rng.choice(["float32", "int64", "float16", "int8"])))

    def array(self, shape: tuple[int, ...], dtype: DType) -> relax.Constant:
        values = np.array([self.rng.randint(-3, 3) / (2 if dtype.is_float else 1) for _ in range(int(np.prod(shape)))])
        data = TensorData.of(values.reshape(shape).astype(_numpy(dtype)), key="w")
        return relax.Constant(data, tensor(tuple(c.const(n, INT64) for n in shape), dtype))

    # ------------------------------------------------------------ other functions

    def call_tir(self, x: relax.Var) -> relax.Call:
        """A call of a PrimFunc made for the shape of `x`: out = x + x."""
        dims, dtype = _info(x)
        name = f"double{len(self.functions)}"
        self.functions[name] = _double(name, dims, dtype, self.rng.random() < 0.5)
        info = tensor(dims, dtype)
        args = relax.Tuple((x,), relax.TupleStructInfo((x.struct_info,) if x.struct_info is not None else ()))
        return relax.Call(tir.Op("relax.call_tir"), (relax.GlobalVar(name), args), sinfo_args=(info,), struct_info=info)

    def call_packed(self, x: relax.Var) -> relax.Call:
        args = relax.Tuple((x,), relax.TupleStructInfo((x.struct_info,) if x.struct_info is not None else ()))
        info = x.struct_info
        assert info is not None
        op = tir.Op("relax.call_dps_packed")
        return relax.Call(op, (relax.ExternFunc("env.copy"), args), sinfo_args=(info,), struct_info=info)

    def branch(self, known: list[relax.Var]) -> relax.VarBinding:
        """Both sides compute something of the same shape from the same value."""
        rng = self.rng
        x = rng.choice(known)
        condition = relax.Constant(TensorData.of(np.array(rng.random() < 0.5)), tensor((), BOOL))
        sides = []
        for _ in range(2):
            made = [self.bind([], relax.Var, self.call(rng.choice(_BINARY), *_info(x), x, x))]
            result = made[-1].var
            sides.append(relax.SeqExpr((relax.BindingBlock(tuple(made)),), result, result.struct_info))
        var = relax.Var(self.name("branch"), x.struct_info)
        known.append(var)
        return relax.VarBinding(var, relax.If(condition, sides[0], sides[1], x.struct_info))

    def closure(self, known: list[relax.Var]) -> list[relax.Binding]:
        """A function inside the function, and its call."""
        x = self.rng.choice(known)
        dims, dtype = _info(x)
        info = tensor(dims, dtype)
        param = relax.Var("y", info)
        value = self.bind([], relax.Var, self.call("add", dims, dtype, param, param))
        body = relax.SeqExpr((relax.BindingBlock((value,)),), value.var, info)
        func = relax.Function((param,), body, info, True, Attrs(), relax.FuncStructInfo((info,), info, True))
        inner = relax.Var(self.name("inner"), func.struct_info)
        call = relax.Call(inner, (x,), struct_info=info)
        return [relax.VarBinding(inner, func), self.bind(known, relax.Var, call)]


def _double(name: str, dims: Dims, dtype: DType, private: bool) -> tir.PrimFunc:
    own = {n: tir.Var(n.name, n.dtype) for n in dims if isinstance(n, tir.Var)}
    shape = tuple(own.get(n, n) for n in dims)  # type: ignore[arg-type]
    a, b = c.make_buffer("A", shape, dtype), c.make_buffer("B", shape, dtype)
    loops = [tir.Var(f"i{i}", INT64) for i in range(len(shape))]
    axes = [tir.Var(f"v{i}", INT64) for i in range(len(shape))]
    one = c.const(1, INT64)
    place = tuple(tir.Range(v, one) for v in axes)
    zero = c.const(0, INT64)
    iters = tuple(tir.IterVar(v, tir.Range(zero, n), tir.IterKind.SPATIAL) for v, n in zip(axes, shape, strict=True))
    value = c.add(c.load(a, *axes), c.load(a, *axes))
    reads, writes = (tir.BufferRegion(a, place),), (tir.BufferRegion(b, place),)
    block = tir.Block("double", iters, reads, writes, (c.store(b, value, *axes),))
    stmt: tir.Stmt = tir.BlockRealize(tuple(loops), tir.TRUE, block)
    for loop, extent in reversed(list(zip(loops, shape, strict=True))):
        stmt = tir.For(loop, zero, extent, tir.ForKind.SERIAL, (stmt,))
    root = tir.BlockRealize((), tir.TRUE, tir.Block("root", (), (), (), (stmt,)))
    handle = DType.of("handle")
    attrs = {"tir.noalias": True, **({} if private else {"global_symbol": name})}
    return tir.PrimFunc((tir.Var("A", handle), tir.Var("B", handle)), (a, b), Attrs(attrs), (root,))


def _info(x: relax.Expr) -> tuple[Dims, DType]:
    info = x.struct_info
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None
    return info.dims, info.dtype


def _same(a: tuple[Dims, DType], b: tuple[Dims, DType]) -> bool:
    if a[1] is not b[1] or len(a[0]) != len(b[0]):
        return False
    sizes = [(x, y, c.tir.const_int(x), c.tir.const_int(y)) for x, y in zip(a[0], b[0], strict=True)]
    return all(x is y or (m is not None and m == n) for x, y, m, n in sizes)


def _numpy(dtype: DType) -> str:
    return str(dtype)
