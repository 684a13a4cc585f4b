"""Exporters: graphs -> files for other tools."""

from .onnx_qdq import export_onnx

__all__ = ["export_onnx"]
