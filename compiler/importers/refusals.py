"""Refusals of whole models: each with the cause that the conformance table counts it under."""

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
"""(domain, operator) -> why it has no importer, where that is for a reason."""


class RefusedError(ImportModelError):
    """A model uses what is not supported.

    Attributes
    ----------
    cause : str
        In a few words, the same for all models that are refused for the same reason.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class NeedsInputError(RefusedError):
    """What a shape or another constant depends on is a graph input: it must be fixed.

    Attributes
    ----------
    inputs : tuple of str
        Graph inputs to give in `fixed`.
    """

    def __init__(self, message: str, inputs: tuple[str, ...]) -> None:
        super().__init__(message, "values that depend on an input")
        self.inputs = inputs
