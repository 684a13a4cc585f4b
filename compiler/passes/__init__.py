"""Passes over the graph IR, one per file, each `Graph -> Graph`; the recipe is `..frontend`."""

from .absorb_flatten import absorb_flatten
from .absorb_heads import absorb_heads
from .absorb_padding import absorb_padding
from .annotate_quantisation import annotate_quantisation
from .arrange_layout import arrange_layout
from .channels_last import channels_last
from .clean_activations import clean_activations
from .eliminate_dead_code import eliminate_dead_code
from .expand_recurrent_layers import expand_recurrent_layers
from .expand_transposed_convolutions import expand_transposed_convolutions
from .expand_volumes import expand_volumes
from .fold_batch_normalisation import fold_batch_normalisation, fold_into_convolutions
from .fold_constants import fold_constants, fold_dequantize
from .fold_scales import fold_scales
from .fold_tables import fold_tables
from .lift_sequences import lift_sequences
from .merge_duplicates import merge_duplicates
from .moves_as_convolutions import moves_as_convolutions
from .plain_attention import plain_attention, plain_attention_to_quantise
from .read_states import read_states
from .recognise_adds import recognise_adds
from .recognise_biases import recognise_biases
from .recognise_concats import recognise_concats
from .recognise_convolutions import recognise_convolutions
from .recognise_interleaving import recognise_interleaving
from .recognise_matmuls import recognise_matmuls
from .recognise_muls import recognise_muls
from .recognise_own_kernels import recognise_own_kernels
from .recognise_pools import recognise_pools
from .recognise_products import recognise_products
from .recognise_resizes import recognise_resizes
from .recognise_slices import recognise_slices
from .recognise_states import recognise_states
from .recognise_tables import recognise_tables
from .reductions_as_layers import recognise_reductions, reductions_as_layers
from .shift_rows import recognise_shifts
from .shift_unsigned import shift_unsigned
from .sink_dequantize import sink_dequantize
from .split_batched_weights import split_batched_weights
from .split_gates import split_gates
from .split_products import split_products
from .trim_windows import trim_windows
from .widen_floats import widen_floats

__all__ = [
    "absorb_flatten", "absorb_heads", "absorb_padding", "annotate_quantisation", "arrange_layout",
    "channels_last", "clean_activations", "eliminate_dead_code", "expand_recurrent_layers",
    "expand_transposed_convolutions", "expand_volumes", "fold_batch_normalisation",
    "fold_constants", "fold_dequantize", "fold_into_convolutions", "fold_scales", "fold_tables",
    "lift_sequences", "merge_duplicates", "moves_as_convolutions", "plain_attention",
    "plain_attention_to_quantise", "read_states", "recognise_adds", "recognise_biases",
    "recognise_concats", "recognise_convolutions", "recognise_interleaving", "recognise_matmuls",
    "recognise_muls", "recognise_own_kernels", "recognise_pools", "recognise_products",
    "recognise_reductions", "recognise_resizes", "recognise_shifts", "recognise_slices",
    "recognise_states", "recognise_tables", "reductions_as_layers", "shift_unsigned",
    "sink_dequantize", "split_batched_weights", "split_gates", "split_products", "trim_windows",
    "widen_floats",
]  # fmt: skip
