"""Assay: does a LiteRT model load, run, stay on the accelerator and give the right numbers? Measured."""

__version__ = "0.1.0"
