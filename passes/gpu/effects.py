"""What memory a piece of loop code reads and writes; see `mlcc.passes.lowering.effects`."""

from mlcc.passes.lowering.effects import Touch, touches

__all__ = ["Touch", "touches"]
