"""Axis orders that fit the channels-last layout of the runtime."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from assay.conversion.rewrites._graph import VIEWS, Builder, aten, calls, clean, order_of, replace, shape


def channels_last(graph: fx.GraphModule) -> int:
    """Pixels are merged after a transpose, and split before one, never the other way round.

    Exact: no arithmetic. `[B, C, H, W] -> [B, C, HW] -> [B, HW, C]` becomes a transpose to `[B, H, W, C]`, the
    layout that a convolution has anyway, and a reshape that moves nothing. The converter then cancels the
    transpose against its own.

    Args:
        graph: Changed in place.

    Returns:
        How many pairs changed places.
    """
    done = 0
    for node in calls(graph, aten.permute.default, aten.transpose.int):
        done += _merge_after(graph, node)
    for node in calls(graph, *VIEWS):
        done += _split_before(graph, node)
    clean(graph)
    return done


def _merge_after(graph: fx.GraphModule, node: fx.Node) -> bool:
    view: Any = node.args[0]
    if view.op != "call_function" or view.target not in VIEWS:
        return False
    source: fx.Node = view.args[0]
    groups = groups_of(shape(view), shape(source))
    if groups is None or len(shape(source)) > 4 or max(len(group) for group in groups) < 2:
        return False
    order = [axis for target in order_of(node) for axis in groups[target]]
    order = _with_unit_axes(order, len(shape(source)))
    build = Builder(graph, node)
    replace(node, build.view(build.permute(source, order), shape(node)))
    return True


def _split_before(graph: fx.GraphModule, node: fx.Node) -> bool:
    permute: Any = node.args[0]
    if permute.op != "call_function" or permute.target not in (aten.permute.default, aten.transpose.int):
        return False
    if len(permute.users) != 1 or len(shape(node)) > 4:
        return False
    groups = groups_of(shape(permute), shape(node))
    if groups is None or max(len(group) for group in groups) < 2:
        return False
    order = order_of(permute)
    # Axes of the source, in the source's order, each split as the view splits it.
    split = [axis for source_axis in range(len(order)) for axis in groups[order.index(source_axis)]]
    split = _with_unit_axes(split, len(shape(node)))
    build = Builder(graph, node)
    sizes = [shape(node)[axis] for axis in split]
    result = build.view(permute.args[0], sizes)
    replace(node, build.permute(result, [split.index(axis) for axis in range(len(split))]))
    return True


def groups_of(merged: tuple[int, ...], split: tuple[int, ...]) -> list[list[int]] | None:
    """For each axis of `merged`, the axes of `split` that it is the product of; None if there is no such way.

    Axes of size 1 belong to no group.
    """
    groups: list[list[int]] = []
    rest = [axis for axis, size in enumerate(split) if size != 1]
    for size in merged:
        group: list[int] = []
        while math.prod(split[axis] for axis in group) < size and rest:
            group.append(rest.pop(0))
        if math.prod(split[axis] for axis in group) != size:
            return None
        groups.append(group)
    return None if rest else groups


def _with_unit_axes(order: list[int], rank: int) -> list[int]:
    """The order, with the axes that it lacks (all of size 1) put in: leading ones stay in front."""
    rest = [axis for axis in range(rank) if axis not in order]
    leading = [axis for place, axis in enumerate(rest) if axis == place]
    return [*leading, *order, *rest[len(leading) :]]
