"""Pattern matching in relax functions, and rewriting by example."""
