"""Measurements: `python -m bench [NAME...]`. Everything is a ratio or a median within one interleaved run."""
