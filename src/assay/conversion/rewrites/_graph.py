"""Editing an exported PyTorch graph: nodes with known shapes, constants, and clean-up.

A rewrite works on the `fx.GraphModule` that `torch.export` gives: core operators (`aten.*`) with static shapes,
known for every node (`shape`). It stays an ordinary module that PyTorch can run, so each rewrite can be
checked against the module it came from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

#: Operators that only look at their input, or copy it: no arithmetic.
VIEWS = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten._unsafe_view.default,
    }
)
COPIES = frozenset(
    {
        aten.clone.default,
        aten.contiguous.default,
        aten.alias.default,
        aten.detach.default,
        aten.detach_.default,
        aten.lift_fresh_copy.default,
    }
)


def export(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The module as a graph of core operators with static shapes, cleaned of what does nothing.

    Args:
        module: In evaluation mode; its `forward` takes the inputs by position and gives tensors.
        inputs: Example inputs; their shapes become the graph's.

    Returns:
        A module with the same parameters (shared) and results, bit for bit.

    Raises:
        Exception: Whatever `torch.export` raises for a module that it cannot trace.
    """
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs), strict=False)
        traced = program.module()
    assert isinstance(traced, fx.GraphModule)
    # The module that `export` gives refuses `train` and `eval`; a plain one shares its parameters.
    graph = fx.GraphModule(traced, traced.graph)
    graph.eval()
    for node in list(graph.graph.nodes):
        if node.op == "call_module" or node.target is aten._assert_tensor_metadata.default:
            graph.graph.erase_node(node)
    clean(graph)
    return graph


def calls(graph: fx.GraphModule, *targets: Any) -> list[fx.Node]:
    """The nodes that call one of the operators, in order of execution."""
    return [node for node in graph.graph.nodes if node.op == "call_function" and node.target in targets]


def shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of the node's value."""
    return tuple(int(size) for size in node.meta["val"].shape)


def value(graph: fx.GraphModule, node: fx.Node) -> torch.Tensor | None:
    """The tensor of a constant or parameter node; None for every other node."""
    if node.op != "get_attr":
        return None
    found: Any = graph
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found.detach() if isinstance(found, torch.Tensor) else None


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by the operator's own names, defaults filled in."""
    target: Any = node.target
    schema = target._schema.arguments
    given = dict(zip((argument.name for argument in schema), node.args, strict=False)) | dict(node.kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def dim_of(node: fx.Node) -> int:
    """The axis argument of a node, counted from the front."""
    dim: Any = arguments(node)["dim"]
    source: Any = node.args[0]
    rank = len(shape(source[0] if isinstance(source, (list, tuple)) else source))
    if node.target in (aten.stack.default, aten.unsqueeze.default):
        rank += 1
    return int(dim) % rank


def order_of(node: fx.Node) -> list[int]:
    """The order of axes that a permute or transpose gives, counted from the front."""
    rank = len(shape(node))
    given: Any = node.args
    if node.target is aten.permute.default:
        return [int(axis) % rank for axis in given[1]]
    order = list(range(rank))
    first, second = (int(axis) % rank for axis in given[1:3])
    order[first], order[second] = order[second], order[first]
    return order


class Builder:
    """Adds nodes in front of one node of a graph, working out each new shape."""

    def __init__(self, graph: fx.GraphModule, before: fx.Node) -> None:
        self.graph = graph
        self.before = before

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """A new call of an operator."""
        with self.graph.graph.inserting_before(self.before):
            node = self.graph.graph.call_function(target, args, kwargs)
        infer(node)
        return node

    def constant(self, tensor: torch.Tensor) -> fx.Node:
        """A new constant; it becomes a buffer of the module."""
        number = sum(1 for _ in self.graph.named_buffers(recurse=False))
        while hasattr(self.graph, name := f"baked_{number}"):
            number += 1
        self.graph.register_buffer(name, tensor.detach().clone().contiguous())
        with self.graph.graph.inserting_before(self.before):
            node = self.graph.graph.get_attr(name)
        node.meta["val"] = _fake_mode(self.graph).from_tensor(getattr(self.graph, name))
        return node

    def view(self, node: fx.Node, size: Sequence[int]) -> fx.Node:
        """The node's values in another shape; the node itself if it has that shape already."""
        return node if shape(node) == tuple(size) else self.call(aten.reshape.default, node, list(size))

    def permute(self, node: fx.Node, order: Sequence[int]) -> fx.Node:
        """The node with its axes in another order; the node itself if that is its own order."""
        if list(order) == list(range(len(order))):
            return node
        return self.call(aten.permute.default, node, list(order))


def replace(old: fx.Node, new: fx.Node) -> None:
    """Let every user of `old` use `new`, and remove `old`."""
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)


def infer(node: fx.Node) -> None:
    """Work out the node's value as a tensor without data: its shape and element type."""

    def fake(argument: fx.Node) -> Any:
        return argument.meta["val"]

    args: Any = map_arg(node.args, fake)
    kwargs: Any = map_arg(node.kwargs, fake)
    mode: Any = next((leaf.fake_mode for leaf in _tensors((args, kwargs))), None)
    assert callable(node.target)
    if mode is None:
        node.meta["val"] = node.target(*args, **kwargs)
        return
    with mode, torch.no_grad():
        node.meta["val"] = node.target(*args, **kwargs)


def infer_from(graph: fx.GraphModule, first: fx.Node) -> None:
    """Work out again the values of all calls from `first` on, after an input of theirs changed its shape."""
    reached = False
    for node in graph.graph.nodes:
        reached = reached or node is first
        if reached and node.op == "call_function":
            infer(node)


def clean(graph: fx.GraphModule) -> None:
    """Remove nodes that change nothing, then nodes that nothing uses, then unused parameters; compile."""
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if source is not None and _is_identity(node, source):
            replace(node, source)
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.delete_all_unused_submodules()
    _delete_unused_tensors(graph)
    graph.recompile()


def _is_identity(node: fx.Node, source: fx.Node) -> bool:
    if node.target in COPIES:
        return True
    if node.target in (aten.dropout.default, aten.dropout_.default):
        return not arguments(node)["train"]
    if not isinstance(source.meta.get("val"), torch.Tensor) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    if shape(node) != shape(source) or node.meta["val"].dtype != source.meta["val"].dtype:
        return False
    if node.target in VIEWS or node.target in (aten.to.dtype, aten.expand.default, aten.repeat.default):
        return True
    if node.target is aten.slice.Tensor:
        return True
    if node.target in (aten.pad.default, aten.constant_pad_nd.default):
        # A pad of 1 and -1 keeps the shape and moves everything by one.
        amounts: Any = node.args[1]
        return not any(amounts)
    if node.target is aten.permute.default:
        order: Any = node.args[1]
        return [axis % len(order) for axis in order] == list(range(len(order)))
    return node.target is aten.repeat_interleave.self_int and arguments(node)["repeats"] == 1


def _delete_unused_tensors(graph: fx.GraphModule) -> None:
    used = {str(node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    for name, _ in [*graph.named_parameters(), *graph.named_buffers()]:
        if name not in used:
            owner: Any = graph
            *parents, leaf = name.split(".")
            for part in parents:
                owner = getattr(owner, part)
            delattr(owner, leaf)


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and hasattr(leaf, "fake_mode"))


def _fake_mode(graph: fx.GraphModule) -> Any:
    for node in graph.graph.nodes:
        for found in _tensors(node.meta.get("val")):
            return found.fake_mode
    raise ValueError("the graph has no shapes: it does not come from `export`")


getitem = operator.getitem
