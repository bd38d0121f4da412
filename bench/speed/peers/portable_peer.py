"""mlcc for any CPU of the kind, as `mlcc compile` without a target does it."""

from __future__ import annotations

from bench.speed.peers.base import Peer
from bench.speed.peers.mlcc_peer import Mlcc


def make(threads: int) -> Peer:
    return Mlcc(threads, "llvm")
