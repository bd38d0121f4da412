"""Benchmarks: `python -m bench [NAME...]`. Every result is a ratio or a median within one interleaved run."""
