"""The accelerator target: kernels as tensor expressions in, checked programs out."""
