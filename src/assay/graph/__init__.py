"""A `.tflite` as a graph: read, cut, tap, edit, write."""

from typing import TYPE_CHECKING

from assay.graph.build import GraphBuilder
from assay.graph.errors import GraphError
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Metadata, Node, OpCode, Quantization, Signature, SignatureTensor, Tensor
from assay.graph.reader import read
from assay.graph.writer import save, write
from assay.lazy import lazy

if TYPE_CHECKING:
    from assay.graph.bundle import read_all
    from assay.graph.edit import cut, tap
    from assay.graph.facts import summarize
else:
    # Not for type checkers, which would take any misspelt name for one that loads later.
    __getattr__ = lazy(__name__, {"bundle": ("read_all",), "edit": ("cut", "tap"), "facts": ("summarize",)})[0]

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
