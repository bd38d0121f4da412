"""The backend suite of ONNX: every case imported and compared with the numbers that come with it."""
