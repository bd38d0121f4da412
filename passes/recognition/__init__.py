"""Operators that graphs write out as several: activations, norms, attention."""
