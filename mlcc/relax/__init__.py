"""relax from Python."""
