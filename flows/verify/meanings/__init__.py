"""Agreement of the integer meanings with ONNX Runtime's QDQ graphs."""
