"""Exporters: they write graphs to files for other tools."""

from .onnx_qdq import check_exportable, export_onnx

__all__ = ["check_exportable", "export_onnx"]
