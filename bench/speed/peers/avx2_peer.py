"""mlcc for CPUs with AVX2, which have no products of bytes."""

from __future__ import annotations

from bench.speed.peers.base import Peer
from bench.speed.peers.mlcc_peer import Mlcc


def make(threads: int) -> Peer:
    return Mlcc(threads, "llvm{cpu=x86-64-v3}")
