"""Where the nodes of a graph go in a picture: layers from top to bottom, few crossings, straight chains.

The method is Sugiyama's in short: layers by longest path, helper points for edges that pass layers, an order in
each layer by the mean position of the neighbours, then positions that keep the order.
K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Helper points in all. Beyond, edges that pass layers are drawn straight: it costs beauty, not time.
MAX_HELPERS = 40_000
GAP_X = 26.0
LAYER_HEIGHT = 64.0
_SWEEPS = 6
_HELPER_WIDTH = 8.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Positions in pixels, y downwards.

    Attributes:
        centers: The center of each node's box, by the node's position in the list of widths.
        paths: For each edge, in order, the points that it runs through.
        width: Of the whole picture.
        height: Of the whole picture.
    """

    centers: list[Point]
    paths: list[list[Point]]
    width: float
    height: float


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Place boxes of the given widths.

    Args:
        widths: One box a node, in an order in which every edge goes forwards.
        edges: Pairs of positions in `widths`, the first before the second.

    Returns:
        The layout.
    """
    layers_of = _layers(len(widths), edges)
    all_widths = list(widths)
    all_layers = list(layers_of)
    hops: list[tuple[int, int]] = []
    chains: list[list[int]] = []
    for source, target in edges:
        chain = [source]
        for layer in range(layers_of[source] + 1, layers_of[target]):
            if len(all_widths) - len(widths) >= MAX_HELPERS:
                break
            chain.append(len(all_widths))
            all_widths.append(_HELPER_WIDTH)
            all_layers.append(layer)
        chain.append(target)
        chains.append(chain)
        hops += pairwise(chain)
    rows: list[list[int]] = [[] for _ in range(max(all_layers, default=-1) + 1)]
    for index, layer in enumerate(all_layers):
        rows[layer].append(index)
    x = _place(rows, all_widths, hops)
    left = min((x[i] - all_widths[i] / 2 for i in range(len(x))), default=0.0)
    right = max((x[i] + all_widths[i] / 2 for i in range(len(x))), default=0.0)
    points = [(x[i] - left, (all_layers[i] + 0.5) * LAYER_HEIGHT) for i in range(len(x))]
    return GraphLayout(
        centers=points[: len(widths)],
        paths=[[points[index] for index in chain] for chain in chains],
        width=right - left,
        height=len(rows) * LAYER_HEIGHT,
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    layers = [0] * count
    leading = [False] * count
    for index in range(count):
        layers[index] = max((layers[source] + 1 for source in before[index]), default=0)
        leading[index] = len(after[index]) == 1 and all(leading[source] for source in before[index])
    # A chain that begins at no input goes right above what reads it, not to the top.
    for index in reversed(range(count)):
        if leading[index]:
            layers[index] = layers[after[index][0]] - 1
    return layers


def _place(rows: list[list[int]], widths: list[float], hops: list[tuple[int, int]]) -> list[float]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in hops:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    x = [0.0] * len(widths)
    for row in rows:
        _spread(row, [0.0] * len(row), widths, x)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            wanted = {index: _mean(neighbours, index, x) for index in row}
            # The order settles in the first sweeps; the last ones only straighten.
            if sweep < _SWEEPS - 2:
                row.sort(key=wanted.__getitem__)
            _spread(row, [wanted[index] for index in row], widths, x)
    return x


def _mean(neighbours: Mapping[int, Sequence[int]], index: int, x: Sequence[float]) -> float:
    near = neighbours.get(index)
    return sum(x[other] for other in near) / len(near) if near else x[index]


def _spread(row: Sequence[int], wanted: Sequence[float], widths: Sequence[float], x: list[float]) -> None:
    """Put a row as near to the wanted positions as its order and the boxes' widths allow.

    With each box's least distance from the row's first one taken off, positions must not fall: least squares
    under that is isotonic regression, done by pooling neighbours.
    """
    least = [0.0]
    for left, right in pairwise(row):
        least.append(least[-1] + (widths[left] + widths[right]) / 2 + GAP_X)
    pools: list[tuple[float, int]] = []
    for want, distance in zip(wanted, least, strict=False):
        total, count = want - distance, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    for index, level, distance in zip(row, levels, least, strict=False):
        x[index] = level + distance
