"""Lint: what an accelerator will refuse of a model, from measurements, without running it."""

from assay.linting.check import lint
from assay.linting.matrix import Answer, Matrix, for_lane, load, shipped
from assay.linting.report import Finding, LintReport, NodeReport, SubgraphReport
from assay.linting.signature import NodeSignature, signature_of

__all__ = [
    "Answer",
    "Finding",
    "LintReport",
    "Matrix",
    "NodeReport",
    "NodeSignature",
    "SubgraphReport",
    "for_lane",
    "lint",
    "load",
    "shipped",
    "signature_of",
]
