"""Assay: does a LiteRT model load, run, stay on the accelerator and give the right numbers? Measured."""

from assay.version import __version__

__all__ = ["__version__"]
