"""The schedule: transformations of TensorIR functions that a person, a script or a search asks for, step by step."""
