"""Schedules: step-by-step transformations of TensorIR functions, requested by a user, a script or a search."""
