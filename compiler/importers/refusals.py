"""Rejection of unsupported models, each with the cause that the conformance table counts."""

from ...errors import ImportModelError

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
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class NeedsInputError(RefusedError):
    """The error of a model with shapes or constants that depend on inputs; the user must fix those.

    Attributes
    ----------
    inputs : tuple of str
        Graph inputs to set in `fixed`.
    """

    def __init__(self, message: str, inputs: tuple[str, ...]) -> None:
        super().__init__(message, "values that depend on an input")
        self.inputs = inputs
