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
    from assay.graph.outline import Outline

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


def epochs(outline: Outline, taken: Sequence[bool]) -> list[int]:
    """The subset that each node falls into, as a number in the order of execution.

    Args:
        outline: A subgraph, its nodes in an order in which every producer precedes its consumers.
        taken: For each node, whether the accelerator would take it.
    """
    if not taken:
        return []
    first = taken[0]
    # The last place is for -1, an absent tensor.
    at = [0] * (len(outline.dtypes) + 1)
    result: list[int] = []
    last_ordered = 0
    ordered = _ordered(outline)
    for index, (reads, writes, mine) in enumerate(zip(outline.read, outline.written, taken, strict=True)):
        epoch = max([at[tensor] for tensor in reads], default=0)
        if index in ordered:
            epoch = max(epoch, last_ordered)
        if (epoch % 2 == 0) != (mine == first):
            epoch += 1
        if index in ordered:
            last_ordered = epoch
        for tensor in writes:
            if tensor >= 0:
                at[tensor] = epoch
        result.append(epoch)
    return result


def _ordered(outline: Outline) -> set[int]:
    """Nodes with side effects."""
    handles = {index for index, dtype in enumerate(outline.dtypes) if dtype == "resource"}
    found = set(outline.nodes_of(*_ORDERED))
    if handles:
        found.update(
            index
            for index, (reads, writes) in enumerate(zip(outline.read, outline.written, strict=True))
            if not handles.isdisjoint(reads) or not handles.isdisjoint(writes)
        )
    return found


def largest(outline: Outline, taken: Sequence[bool]) -> list[int]:
    """Indices of the nodes in the accelerator's largest subset, of equals the first."""
    groups: dict[int, list[int]] = {}
    for index, (epoch, mine) in enumerate(zip(epochs(outline, taken), taken, strict=True)):
        if mine:
            groups.setdefault(epoch, []).append(index)
    return max(groups.values(), key=len) if groups else []


def delegated(
    outline: Outline, taken: Sequence[bool], folded: Collection[int], max_partitions: int | None = 1
) -> list[int]:
    """Indices of the nodes that the accelerator gets.

    Args:
        outline: The graph.
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
        return largest(outline, flags)
    groups: dict[int, list[int]] = {}
    for index, (epoch, mine) in enumerate(zip(epochs(outline, flags), flags, strict=True)):
        if mine:
            groups.setdefault(epoch, []).append(index)
    chosen = sorted(groups.values(), key=len, reverse=True)[:max_partitions]
    return sorted(index for group in chosen for index in group)


def partitions(outline: Outline, on_accelerator: Collection[int]) -> list[Partition]:
    """The parts in which the graph is executed, in order.

    Nodes handed over together may still end up in several parts: what another part needs in between splits them.
    """
    chosen = set(on_accelerator)
    total = len(outline.codes)
    if len(chosen) == total > 0:
        return [Partition(True, tuple(range(total)), tuple(outline.inputs), tuple(outline.outputs))]
    flags = [index in chosen for index in range(total)]
    at = epochs(outline, flags)
    groups: dict[int, list[int]] = {}
    home: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    for node, epoch in enumerate(at):
        groups.setdefault(epoch, []).append(node)
        for tensor in outline.written[node]:
            home[tensor] = epoch
        for tensor in outline.read[node]:
            readers.setdefault(tensor, set()).add(epoch)
    returned, constant = set(outline.outputs), outline.is_constant
    parts: list[Partition] = []
    for epoch, nodes in sorted(groups.items()):
        inputs = dict.fromkeys(
            tensor
            for node in nodes
            for tensor in outline.read[node]
            if tensor >= 0 and home.get(tensor) != epoch and not constant[tensor]
        )
        outputs = dict.fromkeys(
            tensor
            for node in nodes
            for tensor in outline.written[node]
            if tensor >= 0 and (tensor in returned or readers.get(tensor, set()) - {epoch})
        )
        parts.append(Partition(flags[nodes[0]], tuple(nodes), tuple(inputs), tuple(outputs)))
    return parts


def crossings(parts: Sequence[Partition], halves: Collection[int] = ()) -> list[int]:
    """Tensors that go from one side to the other inside of the graph, once for each accelerator part that reads or
    computes them; what comes from or goes to the caller is not counted.

    Args:
        parts: The graph's parts.
        halves: Tensors that stand for folded float16 constants, which never travel.
    """
    if all(part.accelerated for part in parts):
        return []
    produced = {tensor for part in parts if not part.accelerated for tensor in part.outputs}
    consumed = {tensor for part in parts if not part.accelerated for tensor in part.inputs}
    crossing: list[int] = []
    for part in parts:
        if part.accelerated:
            crossing += [tensor for tensor in part.inputs if tensor in produced and tensor not in halves]
            crossing += [tensor for tensor in part.outputs if tensor in consumed]
    return crossing
