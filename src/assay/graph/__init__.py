"""A `.tflite` as a graph: read, cut, tap, edit, write."""

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

__all__ = [
    "Buffer",
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
    "read",
]
