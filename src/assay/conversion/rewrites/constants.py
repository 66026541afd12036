"""What depends on weights alone is computed once, at conversion."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from assay.conversion.rewrites._graph import VIEWS, Builder, aten, clean, replace, value

_FACTORIES = frozenset(
    {
        aten.ones.default,
        aten.zeros.default,
        aten.full.default,
        aten.arange.default,
        aten.arange.start,
        aten.arange.start_step,
        aten.linspace.default,
        aten.scalar_tensor.default,
        aten.eye.default,
    }
)


def constants_baked(graph: fx.GraphModule) -> int:
    """Every computation without an input of the model becomes a constant: positional embeddings, masks, grids.

    Exact: PyTorch computes the constant with the same operators. An expanded value is kept at its small size
    where its users broadcast by themselves (a no-mask dense prompt stays `[1, C, 1, 1]`).

    Args:
        graph: Changed in place.

    Returns:
        How many constants were made.
    """
    constant: dict[fx.Node, torch.Tensor] = {}
    with torch.no_grad():
        for node in graph.graph.nodes:
            tensor = _computed(graph, node, constant)
            if tensor is not None:
                constant[node] = tensor
    # Only the last node of each chain is needed: the ones that something non-constant uses.
    ends = [n for n in constant if n.op == "call_function" and any(user not in constant for user in n.users)]
    for node in ends:
        tensor = constant[node]
        replace(node, Builder(graph, node).constant(_shrunk(node, tensor)))
    clean(graph)
    return len(ends)


def _computed(graph: fx.GraphModule, node: fx.Node, known: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    if node.op == "get_attr":
        return value(graph, node)
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    sources = node.all_input_nodes
    if any(source not in known for source in sources) or (not sources and node.target not in _FACTORIES):
        return None

    def lookup(argument: fx.Node) -> Any:
        return known[argument]

    assert callable(node.target)
    args: Any = map_arg(node.args, lookup)
    kwargs: Any = map_arg(node.kwargs, lookup)
    return node.target(*args, **kwargs)


def _shrunk(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without repeated values along axes that every user broadcasts anyway."""
    elementwise = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
    if node.target in VIEWS or not all(user.target in elementwise for user in node.users):
        return tensor
    others = [other for user in node.users for other in user.all_input_nodes if other is not node]
    if any(tuple(other.meta["val"].shape) != tuple(tensor.shape) for other in others) or not others:
        return tensor
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
