"""The operator library: per relax operator its signature, struct-info inference, NumPy reference and lowering."""

from mlcc.ops.bind import print_call_args
from mlcc.ops.infer import infer_operator, infer_struct_info
from mlcc.ops.registry import (
    FusionKind,
    Impl,
    OpDef,
    Param,
    bind_call,
    commutative_names,
    get,
    is_operator,
    names,
    register,
    unregister,
)
from mlcc.ops.signature import short_name

__all__ = [
    "FusionKind", "Impl", "OpDef", "Param", "bind_call", "commutative_names", "get", "infer_operator",
    "infer_struct_info", "is_operator", "names", "print_call_args", "register", "short_name", "unregister",
]  # fmt: skip
