"""The ablation study: the gain of each optimisation, measured by leaving it out."""
