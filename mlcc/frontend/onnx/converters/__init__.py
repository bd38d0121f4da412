"""How each ONNX operator is said in relax, a module per family; see `mlcc.frontend.onnx.table`."""
