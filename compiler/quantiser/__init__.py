"""Post-training quantisation of float networks to int8, from a few calibration samples."""

from .batches import Batches, doubts, make_batches
from .budget import EFFORTS
from .macs import accelerated_share
from .measure import LayerQuality, NetworkQuality
from .options import AUTO, QuantiserOptions
from .prepare import prepare
from .quantise import QuantisedNetwork, evaluate_quality, quantise
from .ranges import METHODS

__all__ = [
    "AUTO", "EFFORTS", "METHODS", "Batches", "LayerQuality", "NetworkQuality", "QuantisedNetwork",
    "QuantiserOptions", "accelerated_share", "doubts", "evaluate_quality", "make_batches",
    "prepare", "quantise",
]  # fmt: skip
