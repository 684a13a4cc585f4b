"""The accelerator in Amaranth, one unit per file, sized by `isa.configuration`."""
