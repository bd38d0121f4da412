"""ONNX files and models as relax modules."""
