"""Channels of rows in any order, from the layer that makes them: no data moves between lanes."""

import numpy as np

from ..graph import operators as ops
from ..rewriting import Site, first_match, op
from .patterns import to_image

LAYER = op(ops.QConv, ..., capture="layer", where=lambda layer: layer.kind == "dense")
BEFORE = op(ops.Reshape, LAYER)


def channels_by_row(places: np.ndarray, rows: int, channels: int) -> np.ndarray | None:
    """Return the channels int64[...] of each row, if all rows have the same in their own.

    Parameters
    ----------
    places : int64[rows, ...]
        The places of elements among rows of `channels`.
    """
    own = channels * np.arange(rows).reshape(-1, *(1,) * (places.ndim - 1))
    apart = places - own
    same = (apart == apart[:1]).all() and apart.min() >= 0 and apart.max() < channels
    return apart[0] if same else None


def choose_channels(site: Site, x: str, at: np.ndarray, zero_point: int, suffix: str) -> str:
    """Emit an image of row channels, from x's layer or from a new one.

    Parameters
    ----------
    at : int64[channels]
        Their places in x, or -1 for one that is always the zero point.
    suffix : str
        Distinguishes the names of the weights.
    """
    channels = site.shape_of(x)[-1]
    match = first_match(LAYER, site.view, x) or first_match(BEFORE, site.view, x)
    layer = None if match is None else match.named["layer"]
    label = site.root.name
    if layer is not None and layer.output.type.shape[-1] == channels:
        source, *names = layer.inputs
        operator, label = layer.attributes, layer.name
        weights, bias, scale = map(site.data, names)
    else:
        source = to_image(site, x)
        weights = np.eye(channels, dtype=np.int8)[None, None]
        bias, scale = np.full(channels, -zero_point, np.int32), np.ones(channels, np.float32)
        operator = ops.QConv(
            *("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, zero_point, zero_point),
        )
    used = at >= 0
    arrays = {
        "weights": np.where(used, weights[..., at], 0).astype(weights.dtype),
        "bias": np.where(used, bias[at], 0).astype(np.int32),
        "scale": np.where(used, scale[at], 1).astype(np.float32),
    }
    constants = site.constants(f"{label}.{suffix}", **arrays)
    quantisation = site.quantisation_of(x)
    return site.emit(operator, source, *constants, label=label, quantisation=quantisation)
