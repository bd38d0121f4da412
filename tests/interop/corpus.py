"""Modules that TVM makes: operators of its TE library, and models before and after its passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, topi
from tvm.relax import op as R

Shape = tuple[int, ...]


# ---------------------------------------------------------------- TE functions


def _te(make: Callable[..., Any], *shapes: Shape, dtype: str = "float32") -> tvm.IRModule:
    inputs = [te.placeholder(s, dtype, name=f"X{i}") for i, s in enumerate(shapes)]
    made = make(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    return tvm.IRModule({"main": te.create_prim_func([*inputs, *outputs]).with_attr("global_symbol", "main")})


_UNARY = [
    "exp", "tanh", "sigmoid", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan",
    "floor", "ceil", "round", "trunc", "abs", "sign", "negative", "isnan", "erf", "identity", "log2", "log10", "asinh",
    "acosh", "atanh",
]  # fmt: skip
_BINARY = [
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "floor_divide", "floor_mod", "mod", "less",
    "greater", "equal", "not_equal",
]  # fmt: skip

TOPI: dict[str, Callable[[], tvm.IRModule]] = {
    **{f"topi.{n}": lambda n=n: _te(getattr(topi, n), (4, 6)) for n in _UNARY if hasattr(topi, n)},  # type: ignore[misc]
    **{f"topi.{n}": lambda n=n: _te(getattr(topi, n), (4, 1), (1, 6)) for n in _BINARY},  # type: ignore[misc]
    **{
        f"topi.{n}.int": lambda n=n: _te(getattr(topi, n), (4, 6), (6,), dtype="int32")  # type: ignore[misc]
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "floor_divide", "mod")
    },
    "topi.matmul": lambda: _te(topi.matmul, (8, 4), (4, 6)),
    "topi.batch_matmul": lambda: _te(lambda a, b: topi.nn.batch_matmul(a, b), (2, 8, 4), (2, 6, 4)),
    "topi.dense": lambda: _te(topi.nn.dense, (8, 4), (6, 4)),
    "topi.softmax": lambda: _te(topi.nn.softmax, (4, 10)),
    "topi.log_softmax": lambda: _te(topi.nn.log_softmax, (4, 10)),
    "topi.fast_softmax": lambda: _te(topi.nn.fast_softmax, (4, 10)),
    "topi.layer_norm": lambda: _te(lambda x, g, b: topi.nn.layer_norm(x, g, b, [1], 1e-5), (4, 10), (10,), (10,)),
    "topi.rms_norm": lambda: _te(lambda x, w: topi.nn.rms_norm(x, w, [1]), (4, 10), (10,)),
    "topi.relu": lambda: _te(topi.nn.relu, (4, 10)),
    "topi.leaky_relu": lambda: _te(lambda x: topi.nn.leaky_relu(x, 0.1), (4, 10)),
    "topi.conv2d": lambda: _te(lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1), (1, 3, 8, 8), (4, 3, 3, 3)),
    "topi.conv2d_stride": lambda: _te(lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 0, 1), (1, 3, 9, 9), (4, 3, 3, 3)),
    "topi.conv1d": lambda: _te(lambda x, w: topi.nn.conv1d_ncw(x, w, 1, 1, 1), (1, 3, 8), (4, 3, 3)),
    "topi.depthwise": lambda: _te(
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), (1, 3, 8, 8), (3, 1, 3, 3)
    ),
    "topi.conv2d_transpose": lambda: _te(
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (1, 1), (0, 0), "float32", (0, 0)), (1, 3, 5, 5), (3, 4, 3, 3)
    ),
    "topi.max_pool": lambda: _te(
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), (1, 3, 8, 8)
    ),
    "topi.avg_pool": lambda: _te(
        lambda x: topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "avg"), (1, 3, 8, 8)
    ),
    "topi.adaptive_pool": lambda: _te(lambda x: topi.nn.adaptive_pool(x, (2, 2), "avg"), (1, 3, 7, 7)),
    "topi.sum": lambda: _te(lambda x: topi.sum(x, axis=1), (4, 6, 2)),
    "topi.sum_all": lambda: _te(lambda x: topi.sum(x), (4, 6)),
    "topi.max": lambda: _te(lambda x: topi.max(x, axis=[0, 2], keepdims=True), (4, 6, 2)),
    "topi.min.int8": lambda: _te(lambda x: topi.min(x, axis=0), (4, 6), dtype="int8"),
    "topi.prod": lambda: _te(lambda x: topi.prod(x, axis=0), (4, 6)),
    "topi.argmax": lambda: _te(lambda x: topi.argmax(x, axis=1), (4, 6)),
    "topi.argmin": lambda: _te(lambda x: topi.argmin(x, axis=0), (4, 6)),
    "topi.all": lambda: _te(lambda x: topi.all(x, axis=0), (4, 6), dtype="bool"),
    "topi.transpose": lambda: _te(lambda x: topi.transpose(x, (1, 0, 2)), (4, 6, 2)),
    "topi.reshape": lambda: _te(lambda x: topi.reshape(x, (6, 8)), (4, 6, 2)),
    "topi.expand_dims": lambda: _te(lambda x: topi.expand_dims(x, 1), (4, 6)),
    "topi.squeeze": lambda: _te(lambda x: topi.squeeze(x, 1), (4, 1, 6)),
    "topi.concatenate": lambda: _te(lambda a, b: topi.concatenate([a, b], 1), (4, 6), (4, 3)),
    "topi.split": lambda: _te(lambda x: topi.split(x, 2, 1), (4, 6)),
    "topi.stack": lambda: _te(lambda a, b: topi.stack([a, b], 0), (4, 6), (4, 6)),
    "topi.strided_slice": lambda: _te(lambda x: topi.strided_slice(x, [1, 0], [4, 6], [2, 1]), (5, 6)),
    "topi.flip": lambda: _te(lambda x: topi.flip(x, 0), (5, 6)),
    "topi.repeat": lambda: _te(lambda x: topi.repeat(x, 2, 0), (5, 6)),
    "topi.tile": lambda: _te(lambda x: topi.tile(x, (2, 3)), (5, 6)),
    "topi.where": lambda: _te(lambda x: topi.where(topi.greater(x, topi.full_like(x, 0.0)), x, x), (5, 6)),
    "topi.take": lambda: _te(lambda x: topi.take(x, te.compute((3,), lambda i: i + 1, name="idx"), 0), (5, 6)),
    "topi.one_hot": lambda: _te(
        lambda x: topi.one_hot(x, tvm.tirx.const(1.0, "float32"), tvm.tirx.const(0.0, "float32"), 4, -1, "float32"),
        (5,), dtype="int32",
    ),
    "topi.pad": lambda: _te(lambda x: topi.nn.pad(x, (1, 0), (1, 2), 0.5), (5, 6)),
    "topi.mirror_pad": lambda: _te(lambda x: topi.nn.mirror_pad(x, (1, 1), (1, 1)), (5, 6)),
    "topi.upsampling": lambda: _te(lambda x: topi.nn.upsampling(x, 2, 2), (1, 2, 3, 3)),
    "topi.resize2d": lambda: _te(
        lambda x: topi.image.resize2d(x, [0.0] * 4, (6, 6), method="linear"), (1, 2, 3, 3)
    ),
    "topi.broadcast_to": lambda: _te(lambda x: topi.broadcast_to(x, (4, 5, 6)), (5, 1)),
    "topi.cast": lambda: _te(lambda x: topi.cast(x, "int8"), (5, 6)),
    "topi.cast.bf16": lambda: _te(lambda x: topi.cast(x, "bfloat16"), (5, 6)),
    "topi.clip": lambda: _te(lambda x: topi.clip(x, 0.0, 6.0), (5, 6)),
    "topi.arange": lambda: _te(lambda x: topi.add(x, topi.arange(0, 6, 1, "float32")), (5, 6)),
    "topi.trilu": lambda: _te(lambda x: topi.trilu(x, tvm.tirx.const(0, "int32"), True), (5, 6)),
    "topi.gather": lambda: _te(
        lambda x: topi.gather(x, 0, te.compute((2, 6), lambda i, j: (i + j) % 5, name="idx")), (5, 6)
    ),
    "topi.sparse_reshape": lambda: _te(lambda x: topi.reverse_sequence(x, te.compute((6,), lambda i: i), 0, 1), (6, 6)),
    "topi.space_to_depth": lambda: _te(lambda x: topi.nn.space_to_depth(x, 2), (1, 2, 4, 4)),
    "topi.lrn": lambda: _te(lambda x: topi.nn.lrn(x, 3, 1, 0.1, 0.5, 1.0), (1, 4, 3, 3)),
    "topi.prelu": lambda: _te(lambda x, s: topi.nn.prelu(x, s, 1), (1, 4, 3), (4,)),
    "topi.matmul.f16": lambda: _te(topi.matmul, (8, 4), (4, 6), dtype="float16"),
}  # fmt: skip


# ---------------------------------------------------------------- relax models


def _info(*shape: Any, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def _model(build: Callable[..., relax.Expr], *infos: relax.TensorType, flow: bool = True) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", s) for i, s in enumerate(infos)]
    with builder.function("main", params):
        if flow:
            with builder.dataflow():
                out = builder.emit_output(build(builder, *params))
        else:
            out = builder.emit(build(builder, *params))
        builder.emit_func_output(out)
    return builder.finalize()


def _mlp(builder: Any, x: Any, w0: Any, b0: Any, w1: Any, b1: Any) -> Any:
    hidden = builder.emit(R.matmul(x, R.permute_dims(w0)))
    hidden = builder.emit(R.nn.relu(builder.emit(R.add(hidden, b0))))
    out = builder.emit(R.matmul(hidden, builder.emit(R.permute_dims(w1))))
    return R.add(out, b1)


def _attention(builder: Any, q: Any, k: Any, v: Any) -> Any:
    scores = builder.emit(R.matmul(q, builder.emit(R.permute_dims(k, [0, 2, 1]))))
    scores = builder.emit(R.multiply(scores, relax.const(0.25, "float32")))
    return R.matmul(builder.emit(R.nn.softmax(scores, axis=-1)), v)


def _conv_net(builder: Any, x: Any, w: Any, b: Any) -> Any:
    made = builder.emit(R.nn.conv2d(x, w, strides=1, padding=1))
    made = builder.emit(R.nn.relu(builder.emit(R.add(made, builder.emit(R.reshape(b, (1, 4, 1, 1)))))))
    made = builder.emit(R.nn.max_pool2d(made, (2, 2), strides=(2, 2)))
    return R.mean(made, axis=[2, 3])


def _norms(builder: Any, x: Any, g: Any, b: Any) -> Any:
    made = builder.emit(R.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-5))
    made = builder.emit(R.nn.gelu(made))
    return R.nn.rms_norm(made, g, axes=[-1], epsilon=1e-6)


def _shapes(builder: Any, x: Any) -> Any:
    a = builder.emit(R.expand_dims(x, 0))
    b = builder.emit(R.concat([a, a], axis=0))
    c = builder.emit(R.split(b, 2, axis=1))
    d = builder.emit(relax.TupleGetItem(c, 0))
    e = builder.emit(R.strided_slice(d, [0], [0], [1]))
    f = builder.emit(R.squeeze(builder.emit(R.broadcast_to(e, (1, 2, 6)))))
    return R.take(f, relax.const([0, 1], "int64"), axis=1)


def _many(builder: Any, x: Any) -> Any:
    for name in ("exp", "sqrt", "tanh", "sigmoid", "floor", "ceil", "abs", "negative", "sin", "cos", "erf", "log"):
        x = builder.emit(getattr(R, name)(x))
    x = builder.emit(R.clip(x, 0, 6))
    x = builder.emit(R.where(builder.emit(R.greater(x, relax.const(1.0, "float32"))), x, x))
    x = builder.emit(R.astype(x, "float16"))
    x = builder.emit(R.astype(x, "float32"))
    y = builder.emit(R.sum(x, axis=[0], keepdims=True))
    return builder.emit(R.max(y, axis=1))


def _constants(builder: Any, x: Any) -> Any:
    made = builder.emit(R.add(x, relax.const(np.arange(4, dtype="float32").reshape(1, 4))))
    return R.add(made, relax.const(2.5, "float32"))


def _branch() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    c = relax.Var("c", _info(dtype="bool"))
    x = relax.Var("x", _info(4))
    with builder.function("main", [c, x]):
        seq = [
            relax.SeqExpr([relax.BindingBlock([relax.VarBinding(v, R.add(x, x))])], v)
            for v in (relax.Var("a", _info(4)), relax.Var("b", _info(4)))
        ]
        builder.emit_func_output(builder.emit(relax.If(c, seq[0], seq[1])))
    return builder.finalize()


def _symbolic(build: Callable[..., Any], *dims: Any) -> tvm.IRModule:
    n = tvm.tirx.Var("n", "int64")
    return _model(build, _info(*(n if d == "n" else d for d in dims)))


RELAX: dict[str, Callable[[], tvm.IRModule]] = {
    "mlp": lambda: _model(_mlp, _info(2, 8), _info(16, 8), _info(16), _info(4, 16), _info(4)),
    "mlp.symbolic": lambda: _mlp_symbolic(),
    "attention": lambda: _model(_attention, _info(2, 5, 4), _info(2, 7, 4), _info(2, 7, 4)),
    "convnet": lambda: _model(_conv_net, _info(1, 3, 8, 8), _info(4, 3, 3, 3), _info(4)),
    "norms": lambda: _model(_norms, _info(2, 8), _info(8), _info(8)),
    "shapes": lambda: _model(_shapes, _info(4, 6)),
    "many": lambda: _model(_many, _info(4, 6)),
    "constants": lambda: _model(_constants, _info(3, 4)),
    "branch": _branch,
    "symbolic.add": lambda: _symbolic(lambda b, x: R.add(x, x), "n", 4),
    "symbolic.reshape": lambda: _symbolic(lambda b, x: R.flatten(x), "n", 4),
    "symbolic.concat": lambda: _symbolic(lambda b, x: R.concat([x, x], axis=0), "n", 4),
    "impure": lambda: _model(lambda b, x: R.exp(x), _info(2, 2), flow=False),
}


def _mlp_symbolic() -> tvm.IRModule:
    n = tvm.tirx.Var("n", "int64")
    return _model(_mlp, _info(n, 8), _info(16, 8), _info(16), _info(4, 16), _info(4))


def after_passes(mod: tvm.IRModule) -> Iterator[tuple[str, tvm.IRModule]]:
    """The module after each step of lowering and fusion."""
    from tvm.relax import transform

    steps = [
        ("legalize", transform.LegalizeOps()),
        ("annotate", transform.AnnotateTIROpPattern()),
        ("fuse", transform.FuseOps()),
        ("fuse-tir", transform.FuseTIR()),
        ("dead", transform.DeadCodeElimination()),
    ]
    for name, step in steps:
        mod = step(mod)
        yield name, mod


def modules() -> dict[str, Callable[[], tvm.IRModule]]:
    """All of them by name, each made on demand."""
    made = dict(TOPI)
    for name, build in RELAX.items():
        made[f"relax.{name}"] = build
        for step in ("legalize", "annotate", "fuse", "fuse-tir", "dead"):
            made[f"relax.{name}.{step}"] = lambda build=build, step=step: dict(after_passes(build()))[step]  # type: ignore[misc]
    return made
