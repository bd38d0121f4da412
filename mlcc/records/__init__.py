"""Records of what was measured: the database that `mlcc tune` writes and the pass `apply-tuned` reads."""
