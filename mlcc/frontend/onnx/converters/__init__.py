"""Converters of ONNX operators to relax, a module per operator family; see `mlcc.frontend.onnx.table`."""
