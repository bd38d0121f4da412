"""The pass manager: pipelines, optimization levels, and observers of a run."""
