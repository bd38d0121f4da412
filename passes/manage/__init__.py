"""The pass manager: pipelines, the lists of each level, and observers of a run."""
