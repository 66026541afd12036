"""Which nodes run where, once it is known which ones the accelerator would take.

The rules were read off the runtime's behaviour and checked against the counts in its log (see
`benchmarks/lint_truth.py`):

- The graph is cut into subsets of one kind (taken or not) by dependencies, not by the order of nodes: a subset
  takes every node of its kind whose inputs are there, whatever stands between them in the file. Kinds alternate,
  beginning with the kind of the first node. So a node's subset is the latest of its producers', or the next one if
  that is of the other kind.
- Nodes with side effects (resources, control flow) keep their order among each other.
- Of the accelerator's subsets only the largest is handed over (ML Drift asks for one; of equals the first). The
  others stay on the CPU although every node in them is supported.
- DEQUANTIZE of a float16 constant is never counted as taken by itself: where everything else is taken it goes
  along, which makes the graph whole; otherwise it stays on the CPU, and nodes on the accelerator read the
  float16 constant directly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.graph import Subgraph

_ORDERED = frozenset({"IF", "WHILE", "CALL_ONCE"})


@dataclass(frozen=True)
class Partition:
    """A run of nodes that one side executes in one go.

    Attributes:
        accelerated: True for the accelerator.
        nodes: Indices of its nodes, in order.
        inputs: Tensors that it reads and does not compute; constants left out.
        outputs: Tensors that it computes and others, or the caller, read.
    """

    accelerated: bool
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def epochs(subgraph: Subgraph, taken: Sequence[bool]) -> list[int]:
    """The subset that each node falls into, as a number in the order of execution.

    Args:
        subgraph: Nodes in an order in which every producer precedes its consumers.
        taken: For each node, whether the accelerator would take it.
    """
    if not subgraph.nodes:
        return []
    first = taken[0]
    at: dict[int, int] = {}
    result: list[int] = []
    last_ordered = 0
    tensors = subgraph.tensors
    for node, mine in zip(subgraph.nodes, taken, strict=True):
        epoch = 0
        for index in node.inputs:
            if index >= 0:
                epoch = max(epoch, at.get(index, 0))
        ordered = node.op in _ORDERED or any(
            index >= 0 and tensors[index].dtype == "resource" for index in (*node.inputs, *node.outputs)
        )
        if ordered:
            epoch = max(epoch, last_ordered)
        if (epoch % 2 == 0) != (mine == first):
            epoch += 1
        if ordered:
            last_ordered = epoch
        for index in node.outputs:
            if index >= 0:
                at[index] = epoch
        result.append(epoch)
    return result


def largest(subgraph: Subgraph, taken: Sequence[bool]) -> list[int]:
    """Indices of the nodes in the accelerator's largest subset, of equals the first."""
    groups: dict[int, list[int]] = {}
    for index, (epoch, mine) in enumerate(zip(epochs(subgraph, taken), taken, strict=True)):
        if mine:
            groups.setdefault(epoch, []).append(index)
    return max(groups.values(), key=len) if groups else []


def delegated(
    subgraph: Subgraph, taken: Sequence[bool], folded: Collection[int], max_partitions: int | None = 1
) -> list[int]:
    """Indices of the nodes that the accelerator gets.

    Args:
        subgraph: The graph.
        taken: For each node, whether the accelerator would take it.
        folded: Indices of DEQUANTIZE nodes of float16 constants; what `taken` says of them does not count.
        max_partitions: How many subsets the delegate asks for; None for all.
    """
    flags = list(taken)
    for index in folded:
        flags[index] = False
    if flags and sum(flags) + len(folded) == len(flags):
        return list(range(len(flags)))
    if max_partitions == 1:
        return largest(subgraph, flags)
    groups: dict[int, list[int]] = {}
    for index, (epoch, mine) in enumerate(zip(epochs(subgraph, flags), flags, strict=True)):
        if mine:
            groups.setdefault(epoch, []).append(index)
    chosen = sorted(groups.values(), key=len, reverse=True)[:max_partitions]
    return sorted(index for group in chosen for index in group)


def partitions(subgraph: Subgraph, on_accelerator: Collection[int]) -> list[Partition]:
    """The parts in which the graph is executed, in order.

    Nodes handed over together may still end up in several parts: what another part needs in between splits them.
    """
    chosen = set(on_accelerator)
    if len(chosen) == len(subgraph.nodes) > 0:
        whole = tuple(range(len(subgraph.nodes)))
        return [Partition(True, whole, tuple(subgraph.inputs), tuple(subgraph.outputs))]
    flags = [index in chosen for index in range(len(subgraph.nodes))]
    groups: dict[int, list[int]] = {}
    for index, epoch in enumerate(epochs(subgraph, flags)):
        groups.setdefault(epoch, []).append(index)
    home = {
        tensor: epoch
        for epoch, nodes in groups.items()
        for node in nodes
        for tensor in subgraph.nodes[node].outputs
    }
    readers: dict[int, set[int]] = {}
    for epoch, nodes in groups.items():
        for node in nodes:
            for tensor in subgraph.nodes[node].inputs:
                readers.setdefault(tensor, set()).add(epoch)
    returned = set(subgraph.outputs)
    parts: list[Partition] = []
    for epoch, nodes in sorted(groups.items()):
        inputs = dict.fromkeys(
            tensor
            for node in nodes
            for tensor in subgraph.nodes[node].inputs
            if tensor >= 0 and home.get(tensor) != epoch and not subgraph.tensors[tensor].is_constant
        )
        outputs = dict.fromkeys(
            tensor
            for node in nodes
            for tensor in subgraph.nodes[node].outputs
            if tensor >= 0 and (tensor in returned or readers.get(tensor, set()) - {epoch})
        )
        parts.append(Partition(flags[nodes[0]], tuple(nodes), tuple(inputs), tuple(outputs)))
    return parts


def crossings(subgraph: Subgraph, parts: Sequence[Partition], halves: Collection[int] = ()) -> list[int]:
    """Tensors that go from one side to the other inside of the graph, once for each accelerator part that reads or
    computes them; what comes from or goes to the caller is not counted.

    Args:
        subgraph: The graph.
        parts: Its parts.
        halves: Tensors that stand for folded float16 constants, which never travel.
    """
    produced = {tensor for part in parts if not part.accelerated for tensor in part.outputs}
    consumed = {tensor for part in parts if not part.accelerated for tensor in part.inputs}
    crossing: list[int] = []
    for part in parts:
        if part.accelerated:
            crossing += [tensor for tensor in part.inputs if tensor in produced and tensor not in halves]
            crossing += [tensor for tensor in part.outputs if tensor in consumed]
    return crossing
