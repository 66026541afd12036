"""What must hold in a model that decodes: indices in range, sound shapes, no cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from assay.graph.columns import Array, Positions, Ragged, first
from assay.graph.flatbuffer import Corrupt
from assay.graph.model import Model
from assay.graph.outline import Outline

MAX_ELEMENTS_OF_TENSOR = 1 << 48
MAX_SUBGRAPHS = 1 << 14
#: No runtime has a kernel for more dimensions than 8; this leaves room for what a file may still describe.
MAX_RANK = 64
#: Subgraphs that one node may name.
MAX_CALLS = 256

#: Options that name subgraphs which the op runs.
CALLS = frozenset(
    {
        "body_subgraph_index",
        "branch_subgraph_indices",
        "comparator_subgraph_index",
        "cond_subgraph_index",
        "decomposition_subgraph_index",
        "else_subgraph_index",
        "init_subgraph_index",
        "subgraph",
        "then_subgraph_index",
        "update_computation_subgraph_index",
        "called_computations",
    }
)


def check(model: Model) -> None:
    """Check a whole model.

    Raises:
        Corrupt: What is wrong, and where.
    """
    if not model.subgraphs:
        raise Corrupt("it has no subgraph")
    if len(model.subgraphs) > MAX_SUBGRAPHS:
        raise Corrupt(f"it has {len(model.subgraphs):,} subgraphs")
    outlines = [model.outline(subgraph) for subgraph in model.subgraphs]
    for index, outline in enumerate(outlines):
        where = f"subgraph {index}: " if len(outlines) > 1 else ""
        _check_tensors(outline, where)
        for what, indices in (("inputs", outline.inputs), ("outputs", outline.outputs)):
            _check_indices(what, Ragged.of([indices]).flat, len(outline.dtypes), where)
        _check_nodes(outline, where)
    _check_calls(outlines)


def called_subgraphs(options: Mapping[str, Any], label: str = "a node") -> list[int]:
    """Indices of the subgraphs that a node's options name.

    Args:
        options: The options.
        label: The node, for messages.

    Raises:
        Corrupt: It names absurdly many.
    """
    if not options or not CALLS.intersection(options):
        return []
    called: list[int] = []
    for name in sorted(CALLS.intersection(options)):
        value: Any = options[name]
        if isinstance(value, int):
            value = (value,)
        if value is not None and len(value) > MAX_CALLS:
            raise Corrupt(f"{label} runs {len(value):,} subgraphs")
        # -1 (and an absent vector) stands for "none".
        called += value or ()
    return [index for index in called if index != -1]


def _check_tensors(outline: Outline, where: str) -> None:
    shapes, signatures = outline.shapes, outline.signatures
    ranks = shapes.lengths
    for lengths in (ranks, signatures.lengths):
        if (index := first(lengths > MAX_RANK)) is not None:
            raise Corrupt(f"{where}tensor {index} has {lengths[index]:,} dimensions")
    if (place := first(shapes.flat < 0)) is not None:
        index = int(shapes.owners()[place])
        raise Corrupt(f"{where}tensor {index} has the shape {list(outline.shape[index])}")
    # Sums of logarithms cannot overflow; what comes near the limit is counted exactly.
    bits = np.log2(np.maximum(shapes.flat, 1))
    sums = np.concatenate([[0.0], np.cumsum(bits)])[shapes.starts]
    for index in np.flatnonzero(np.diff(sums) > 47).tolist():
        if (count := prod(outline.shape[index])) > MAX_ELEMENTS_OF_TENSOR:
            raise Corrupt(f"{where}tensor {index} claims {count:.1e} elements, {list(outline.shape[index])}")
    there = signatures.lengths > 0
    bad = there & (signatures.lengths != ranks)
    bad[signatures.owners()[signatures.flat < -1]] = True
    if (index := first(bad)) is not None:
        raise Corrupt(
            f"{where}tensor {index} has the shape {list(outline.shape[index])} "
            f"and the shape signature {list(signatures.tuples()[index])}"
        )


def _check_indices(what: str, indices: Array, count: int, where: str) -> None:
    if (place := first((indices < 0) | (indices >= count))) is not None:
        raise Corrupt(f"{where}{what} has tensor {int(indices[place])} of {count}")


def _check_nodes(outline: Outline, where: str) -> None:
    """Indices in range, and every value computed once, before it is read."""
    count = len(outline.dtypes)

    def label(node: int) -> str:
        return f"{where}node {node} ({outline.op[node]})"

    for lists, what in (
        (outline.reads, "reads"),
        (outline.writes, "writes"),
        (outline.intermediates, "intermediates has"),
    ):
        if (place := first((lists.flat < -1) | (lists.flat >= count))) is not None:
            raise Corrupt(f"{label(int(lists.owners()[place]))} {what} tensor {int(lists.flat[place])} of {count}")
    written, writers = outline.writes.flat, outline.writes.owners()
    writers, written = writers[written >= 0], written[written >= 0]
    if (place := first(outline.constant[written])) is not None:
        raise Corrupt(f"{label(int(writers[place]))} writes tensor {int(written[place])}, which is a constant")
    given = np.zeros(count, bool)
    given[outline.inputs] = True
    if (place := first(given[written])) is not None:
        raise Corrupt(f"{where}tensor {int(written[place])} is an input of the graph and is computed by a node")
    # The node that computes a tensor first: assigned last, since the first assignment counts.
    producer: Positions = np.full(count, -1, np.int64)
    producer[written[::-1]] = writers[::-1]
    times = np.bincount(written, minlength=count)
    again = (times[written] > 1) & ~outline.variable[written]
    if again.any():
        seen: set[int] = set()
        for tensor, node in zip(written[again].tolist(), writers[again].tolist(), strict=True):
            if tensor in seen:
                raise Corrupt(f"{label(node)} writes tensor {tensor} a second time")
            seen.add(tensor)
    reads, readers = outline.reads.flat, outline.reads.owners()
    readers, reads = readers[reads >= 0], reads[reads >= 0]
    early = (producer[reads] >= readers) & ~outline.variable[reads]
    if (place := first(early)) is not None:
        raise Corrupt(f"{label(int(readers[place]))} reads tensor {int(reads[place])} before it is computed")


def _check_calls(outlines: Sequence[Outline]) -> None:
    """Subgraphs that nodes run exist and do not run themselves, however indirectly."""
    count = len(outlines)
    calls: list[list[int]] = []
    for outline in outlines:
        called: set[int] = set()
        calling = {position for position, options in enumerate(outline.options) if CALLS.intersection(options)}
        for node, position in enumerate(outline.option_ids if calling else ()):
            if position not in calling:
                continue
            # Of the nodes with equal options the first speaks for all.
            calling.discard(position)
            options = outline.options[position]
            label = f"node {node} ({outline.op[node]})"
            for index in called_subgraphs(options, label):
                if not 0 <= index < count:
                    raise Corrupt(f"{label} runs subgraph {index} of {count}")
                called.add(index)
        calls.append(sorted(called))
    # Depth first with our own stack: a hostile chain of calls may be longer than Python's.
    state = bytearray(count)
    for start in range(count):
        stack = [(start, iter(calls[start]))] if not state[start] else []
        state[start] = state[start] or 1
        while stack:
            index, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[index] = 2
                stack.pop()
            elif state[following] == 1:
                raise Corrupt(f"subgraph {following} runs itself")
            elif state[following] == 0:
                state[following] = 1
                stack.append((following, iter(calls[following])))
