"""A `.tflite` as a graph: read, cut, tap, edit, write."""

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
    from assay.graph.edit import cut, tap


def __getattr__(name: str) -> Any:
    # Editing needs NumPy, which takes longer to import than a model takes to read.
    if name in {"cut", "tap"}:
        from assay.graph import edit

        return getattr(edit, name)
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
    "save",
    "tap",
    "write",
]
