"""Cases made from a model's own nodes, for signatures that the grid has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.linting.signature import NodeSignatures, folded_halves
from assay.probe.cases import Case, Operand, Result

if TYPE_CHECKING:
    from assay.graph import Model, Tensor
    from assay.linting.matrix import Matrix

#: Constants of whole numbers up to this many elements are parameters of the op (axes, sizes, indices): kept as
#: they are. Others are weights, whose values do not matter to whether a node is taken.
_PARAMETER = 4096
_MAX_ELEMENTS = 1 << 22


def cases_of(model: Model, matrix: Matrix | None = None) -> Iterator[Case]:
    """One case for each distinct node of a model.

    Args:
        model: The model.
        matrix: Only nodes that this one does not know are tried; None for all.
    """
    seen: set[str] = set()
    for subgraph in model.subgraphs:
        outline = model.outline(subgraph)
        halves = folded_halves(outline)
        signatures = NodeSignatures(outline, halves)
        for node in subgraph.nodes:
            if any(name.endswith("_subgraph_index") for name in node.options):
                continue
            if node.op == "DEQUANTIZE" and node.outputs[0] in halves:
                continue
            signature = signatures.of(node.index)
            key = f"{signature.op} {signature}"
            if key in seen or (matrix is not None and matrix.answer(signature).status != "unknown"):
                continue
            seen.add(key)
            tensors = subgraph.tensors
            if any(
                tensors[index].elements > _MAX_ELEMENTS for index in (*node.inputs, *node.outputs) if index >= 0
            ):
                continue
            inputs = tuple(_operand(model, tensors, index, halves) for index in node.inputs)
            outputs = tuple(_result(tensors[index]) for index in node.outputs)
            custom = bytes(node.custom_options).hex() if node.is_custom else None
            options: dict[str, Any] = {name: value for name, value in node.options.items() if _plain(value)}
            yield Case(node.op, inputs, outputs, options, node.version, custom)


def _plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    )


def _kind(tensor: Tensor) -> tuple[str, int]:
    if tensor.quantization is None or not len(tensor.quantization.scales):
        return "", 0
    return ("c", tensor.quantization.axis) if len(tensor.quantization.scales) > 1 else ("t", 0)


def _operand(model: Model, tensors: list[Tensor], index: int, halves: dict[int, int]) -> Operand:
    if index < 0:
        return Operand((), absent=True)
    tensor = tensors[index]
    kind, axis = _kind(tensor)
    if index in halves:
        return Operand(tensor.shape, half=True)
    constant: Any = None if tensor.elements else []
    if tensor.is_constant:
        constant = True
        if tensor.dtype.startswith(("int", "uint")) and not kind and tensor.elements <= _PARAMETER:
            constant = model.data(tensor).tolist()
    return Operand(tensor.shape, tensor.dtype, kind, axis, constant)


def _result(tensor: Tensor) -> Result:
    return Result(tensor.dtype, _kind(tensor)[0], tensor.shape)
