"""A `.tflite` as a graph: read, cut, tap, edit, write."""

import importlib
from typing import TYPE_CHECKING, Any

from assay.graph.build import GraphBuilder
from assay.graph.errors import GraphError
from assay.graph.model import (
    Buffer,
    Metadata,
    Model,
    Node,
    OpCode,
    Quantization,
    Signature,
    SignatureTensor,
    Subgraph,
    Tensor,
)
from assay.graph.reader import read
from assay.graph.writer import save, write

if TYPE_CHECKING:
    from assay.graph.bundle import read_all
    from assay.graph.edit import cut, tap
    from assay.graph.facts import summarize

#: Names that need NumPy or more: imported when asked for, so that reading starts fast.
_LAZY = {"cut": "edit", "read_all": "bundle", "summarize": "facts", "tap": "edit"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"assay.graph.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Buffer",
    "GraphBuilder",
    "GraphError",
    "Metadata",
    "Model",
    "Node",
    "OpCode",
    "Quantization",
    "Signature",
    "SignatureTensor",
    "Subgraph",
    "Tensor",
    "cut",
    "read",
    "read_all",
    "save",
    "summarize",
    "tap",
    "write",
]
