"""Importers: files of other tools -> graph IR."""

from .onnx_model import NOTHING, import_onnx
from .refusals import NeedsInputError, RefusedError

__all__ = ["NOTHING", "NeedsInputError", "RefusedError", "import_onnx"]
