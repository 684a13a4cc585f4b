"""Importers: they read model files of other tools into the graph IR."""

from .onnx_model import NOTHING, import_onnx
from .refusals import NeedsInputError, RefusedError

__all__ = ["NOTHING", "NeedsInputError", "RefusedError", "import_onnx"]
