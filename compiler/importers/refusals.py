"""Rejection of unsupported models, each with the cause that the conformance table counts."""

from ...errors import ImportModelError
from ..graph import TensorType
from ..graph.types import FLOATS

CAUSES: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [("", kind) for kind in ("RegexFullMatch", "StringConcat", "StringNormalizer")]
        + [("", "StringSplit"), ("ai.onnx.ml", "LabelEncoder")],
        "strings",
    ),
    **dict.fromkeys(
        [("ai.onnx.preview.training", kind) for kind in ("Adagrad", "Adam", "Gradient")]
        + [("ai.onnx.preview.training", "Momentum")],
        "training",
    ),
    **dict.fromkeys(
        [("", kind) for kind in ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")]
        + [("", kind) for kind in ("RandomNormalLike", "RandomUniformLike")],
        "random numbers",
    ),
    ("", "ImageDecoder"): "image files",
}
"""(domain, operator) -> the reason why it deliberately has no importer."""


class RefusedError(ImportModelError):
    """The error of a valid model that uses an unsupported feature.

    Attributes
    ----------
    cause : str
        Cause in a few words, the same for all models that are rejected for the same reason.
    cut : tuple of str
        Outputs with which the model would be accepted; see `onnx_cut`.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.cut: tuple[str, ...] = ()


class NeedsInputError(RefusedError):
    """The error of a model with shapes or constants that depend on inputs; the user must fix those.

    Attributes
    ----------
    inputs : tuple of str
        Graph inputs to set in `fixed`.
    data : tuple of str
        Those that hold data, such as an image; fixing them makes a constant of the network.
    """

    def __init__(self, message: str, inputs: tuple[str, ...], data: tuple[str, ...] = ()) -> None:
        super().__init__(message, "values that depend on an input")
        self.inputs, self.data = inputs, data


MAX_FLOATS = 16
"""Number of elements up to which an input of floats may hold sizes or factors, not data."""


def is_data(kind: TensorType) -> bool:
    """Tell whether an input holds data, such as an image or a signal, judged by its type.

    Sizes, masks and positions are integers with at most two dimensions.
    """
    large = kind.dtype in FLOATS and kind.elements > MAX_FLOATS
    return large or len(kind.shape) > 2 or (kind.dtype == "uint8" and len(kind.shape) > 1)
