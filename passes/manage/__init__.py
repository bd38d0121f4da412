"""The pass manager: pipelines, the lists of each level, and what looks on while they run."""
