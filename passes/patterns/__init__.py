"""Patterns in relax functions, and rewriting by example."""
