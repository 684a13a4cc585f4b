"""ONNX's own operator tests, run and classified."""
