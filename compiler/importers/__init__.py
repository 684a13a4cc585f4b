"""Importers: files of other tools -> graph IR."""

from .onnx_model import import_onnx

__all__ = ["import_onnx"]
