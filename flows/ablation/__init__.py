"""The ablation study: what each optimisation brings, measured by leaving it out."""
