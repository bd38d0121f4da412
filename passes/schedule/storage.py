"""Storage scopes: where memory lives."""

from __future__ import annotations

import re

from mlcc.errors import did_you_mean
from mlcc.passes.schedule.refusal import Refusal

SCOPES = (
    "global", "shared", "warp", "warpgroup", "local", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator",
    "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC", "metal.simdgroup", "trn.sbuf", "trn.psum", "amx.tmm",
    "texture",
)  # fmt: skip
_KNOWN = re.compile(rf"(?:{'|'.join(re.escape(s) for s in SCOPES)})(?:[.:-].*)?$")


def check_scope(scope: str) -> None:
    """Refuse (E0641) an unknown storage scope.

    A known one may go on with a tag (`global.vtcm`, `shared.dyn`); an empty one means `global`.
    """
    if scope and not _KNOWN.fullmatch(scope):
        help = did_you_mean(scope, SCOPES) or f"the scopes are {', '.join(SCOPES)}, perhaps with a tag: `shared.dyn`"
        raise Refusal("E0641", f"{quoted(scope)} is not a storage scope", help=help)


def quoted(text: str) -> str:
    """A caller's text in a message, cut to a size."""
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:57] + "..."
