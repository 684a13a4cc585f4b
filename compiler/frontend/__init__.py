"""The front end: from a model, in a file or in PyTorch, to a graph with exact integer layers."""

from .recipe import RECIPE, import_model, recognise_layers

__all__ = ["RECIPE", "import_model", "recognise_layers"]
