"""Probe: measure what a lane does with one-op models, and write the support matrix that lint reads."""

from assay.probe.probing import ProbeResult, probe

__all__ = ["ProbeResult", "probe"]
