"""Models made by hand, and nodes added to models that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.graph.check import check
from assay.graph.errors import GraphError
from assay.graph.flatbuffer import Corrupt
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Node, Quantization, Signature, SignatureTensor, Tensor
from assay.graph.reader import default_signature
from assay.graph.schema import options_type

if TYPE_CHECKING:
    import numpy as np


class GraphBuilder:
    """Adds tensors and nodes to a subgraph, of a new model or of one that there is.

    Shapes and types of outputs are given, not inferred: a file says them, and what it says may be a test.

    Args:
        model: The model to add to, changed in place (see `Model.copy`); None starts a new one.
        subgraph: Which of its subgraphs to add to.

    Example:
        >>> g = GraphBuilder()
        >>> x = g.input("x", (1, 4))
        >>> y = g.op("ADD", [x, g.constant(np.ones(1, np.float32))], (1, 4), name="y")
        >>> model = g.finish([y])
    """

    def __init__(self, model: Model | None = None, subgraph: int = 0):
        self.model = model or Model(description="assay", buffers=[Buffer()], nbytes=None)
        if not self.model.subgraphs:
            self.model.subgraphs.append(Subgraph(0, "main", [], [], [], []))
        self.subgraph = self.model.subgraphs[subgraph]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        shape_signature: Sequence[int] | None = None,
        quantization: Quantization | None = None,
        is_variable: bool = False,
    ) -> Tensor:
        """Add a tensor that a node will compute. Shape and dtype as in `Tensor`."""
        tensor = Tensor(
            index=len(self.subgraph.tensors),
            name=name or f"t{len(self.subgraph.tensors)}",
            dtype=dtype,
            shape=tuple(shape),
            shape_signature=None if shape_signature is None else tuple(shape_signature),
            quantization=quantization,
            is_variable=is_variable,
        )
        self.subgraph.tensors.append(tensor)
        return tensor

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        shape_signature: Sequence[int] | None = None,
        quantization: Quantization | None = None,
    ) -> Tensor:
        """Add an input of the graph."""
        tensor = self.tensor(name, shape, dtype, shape_signature=shape_signature, quantization=quantization)
        self.subgraph.inputs.append(tensor.index)
        return tensor

    def constant(
        self,
        values: np.ndarray[Any, Any],
        name: str = "",
        dtype: str | None = None,
        *,
        quantization: Quantization | None = None,
        external: bool = False,
    ) -> Tensor:
        """Add a constant.

        Args:
            values: The values; the shape is theirs.
            name: The tensor's name.
            dtype: The type in the file, the array's own by default. `bfloat16`, `int4`, `int2`, `uint4` and
                `string` (bytes or text) are packed from what `Model.data` gives for them.
            quantization: What the integers stand for.
            external: Keep the bytes outside of the flatbuffer.

        Raises:
            GraphError: Values of the type cannot be written.
        """
        from assay.graph.values import encode

        own: str = "string" if values.dtype.kind in "OSU" else values.dtype.name
        data = encode(values, dtype or own)
        tensor = self.tensor(name, values.shape, dtype or own, quantization=quantization)
        # No bytes, no constant: that is how the runtime tells them apart.
        if data:
            if not self.model.buffers:
                self.model.buffers.append(Buffer())
            tensor.buffer = len(self.model.buffers)
            tensor.is_constant = True
            self.model.buffers.append(Buffer(data, external))
        return tensor

    def node(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        options: Mapping[str, Any] | None = None,
        *,
        version: int = 1,
        custom_options: bytes | None = None,
        position: int | None = None,
    ) -> Node:
        """Add a node.

        Args:
            op: A builtin op's name, or any name together with `custom_options` for a custom op.
            inputs: The tensors that it reads; None for an optional one that is absent.
            outputs: The tensors that it computes.
            options: Options by name; those left out have the schema's default.
            version: The op's version.
            custom_options: The bytes for a custom op (`b""` for one without options).
            position: Where in the order of execution; last by default.

        Raises:
            GraphError: The op is not known, or the op has no such option.
        """
        from assay.graph.schema import ENUM_NAMES, TABLES, op_number

        is_custom = custom_options is not None
        table = None if is_custom else options_type(op)
        if not is_custom and op_number(op) is None:
            raise GraphError(f"there is no builtin op {op!r}", fix="Give custom_options for a custom op")
        filled: dict[str, Any] = {}
        for name, _, default, enum in TABLES[table] if table else ():
            names = ENUM_NAMES.get(enum or "", {})
            filled |= {name: names.get(default, default) if isinstance(default, int) else default} if name else {}
        if wrong := set(options or {}) - set(filled):
            raise GraphError(
                f"{op} has no option {sorted(wrong)[0]!r}", fix=f"It has: {', '.join(filled) or 'none'}"
            )
        node = Node(
            index=0,
            op=op,
            version=version,
            inputs=[-1 if tensor is None else tensor.index for tensor in inputs],
            outputs=[tensor.index for tensor in outputs],
            options=filled | dict(options or {}),
            options_type=table,
            is_custom=is_custom,
            custom_options=custom_options or b"",
        )
        nodes = self.subgraph.nodes
        nodes.insert(len(nodes) if position is None else position, node)
        for index, each in enumerate(nodes):
            each.index = index
        return node

    def op(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int],
        dtype: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        version: int = 1,
        custom_options: bytes | None = None,
        shape_signature: Sequence[int] | None = None,
        quantization: Quantization | None = None,
    ) -> Tensor:
        """Add a node with one output, and the output: of this shape, and of the first input's dtype by default.

        Raises:
            GraphError: As in `node`.
        """
        first = next((tensor.dtype for tensor in inputs if tensor is not None), "float32")
        output = self.tensor(
            name, shape, dtype or first, shape_signature=shape_signature, quantization=quantization
        )
        self.node(op, inputs, [output], options, version=version, custom_options=custom_options)
        return output

    def add_subgraph(self, name: str) -> GraphBuilder:
        """A builder for a further subgraph of the same model (the body of a WHILE, for example)."""
        index = len(self.model.subgraphs)
        self.model.subgraphs.append(Subgraph(index, name, [], [], [], []))
        return GraphBuilder(self.model, index)

    def signature(
        self, key: str, inputs: Mapping[str, Tensor] | None = None, outputs: Mapping[str, Tensor] | None = None
    ) -> None:
        """Add a signature over this subgraph; names are the tensors' own by default. Call it last."""
        default = default_signature(self.subgraph)
        self.model.signatures = [one for one in self.model.signatures if one.key is not None]
        self.model.signatures.append(
            Signature(
                key,
                self.subgraph.index,
                default.inputs if inputs is None else [SignatureTensor(*item) for item in inputs.items()],
                default.outputs if outputs is None else [SignatureTensor(*item) for item in outputs.items()],
            )
        )

    def finish(self, outputs: Sequence[Tensor] | None = None) -> Model:
        """The model, checked.

        Args:
            outputs: The subgraph's outputs; None leaves those that it has.

        Raises:
            GraphError: The graph is not sound; the message says where.
        """
        if outputs is not None:
            self.subgraph.outputs = [tensor.index for tensor in outputs]
        if all(signature.key is None for signature in self.model.signatures):
            self.model.signatures = [default_signature(self.model.subgraphs[0])]
        try:
            check(self.model)
        except Corrupt as error:
            raise GraphError(f"the graph is not sound: {error}") from None
        return self.model
