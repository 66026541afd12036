"""Tensors of more than four axes, which GPU delegates refuse, as chains of at most four."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from torch import fx

from assay.conversion.rewrites._graph import (
    COPIES,
    VIEWS,
    Builder,
    aten,
    calls,
    clean,
    dim_of,
    getitem,
    infer_from,
    order_of,
    replace,
    shape,
    value,
)


def views_rank4(graph: fx.GraphModule) -> int:
    """A reshape to more than 4 axes, a transpose and a reshape back become transposes of rank 4 at most.

    Exact: no arithmetic. Window partition `[B, H/w, w, W/w, w, C]` and its inverse need one transpose each; a
    general order of axes needs one for every axis that moves.

    Args:
        graph: Changed in place.

    Returns:
        How many chains were rewritten.
    """
    done = 0
    for node in calls(graph, aten.permute.default, aten.transpose.int):
        high: Any = node.args[0]
        if len(shape(high)) <= 4 or high.op != "call_function" or high.target not in VIEWS:
            continue
        ends = list(_ends_of_copies(node))
        if any(end.target not in VIEWS or len(shape(end)) > 4 for end in ends):
            continue
        source: Any = high.args[0]
        build = Builder(graph, node)
        moved = _permute_in_steps(build, source, shape(high), order_of(node))
        for end in ends:
            replace(end, Builder(graph, end).view(moved, shape(end)))
        done += 1
    clean(graph)
    return done


def qkv_split(graph: fx.GraphModule) -> int:
    """A fused projection that is cut along a fifth axis becomes one projection for each part.

    Exact: each output number is the same dot product. `linear -> [B, N, 3, heads, d] -> unbind` becomes three
    projections with a third of the weights each; where the source is no projection with constant weights, slices
    of the source.

    Args:
        graph: Changed in place.

    Returns:
        How many fused projections were rewritten.
    """
    done = 0
    for node in calls(graph, aten.unbind.int):
        high: Any = node.args[0]
        dim = dim_of(node)
        if len(shape(high)) <= 4 or high.op != "call_function" or high.target not in VIEWS:
            continue
        source: fx.Node = high.args[0]
        inner = math.prod(shape(high)[dim:])
        if shape(source)[-1] != inner:
            continue
        parts = shape(high)[dim]
        rest = (*shape(high)[:dim], *shape(high)[dim + 1 :])
        build = Builder(graph, node)
        pieces = [build.view(piece, rest) for piece in _split(build, graph, source, parts)]
        for user in list(node.users):
            assert user.target is getitem
            index: Any = user.args[1]
            replace(user, pieces[index])
        done += 1
    clean(graph)
    return done


def unit_axes_dropped(graph: fx.GraphModule) -> int:
    """An axis of size 1 that only makes a tensor's rank exceed 4 is left out until it is needed.

    Exact: no arithmetic. Follows the axis from the reshape that makes it through slices and elementwise ops to
    where it goes away again; chains in which it does not go away are left as they are.

    Args:
        graph: Changed in place.

    Returns:
        How many chains were rewritten.
    """
    done = 0
    for node in calls(graph, *VIEWS):
        source: Any = node.args[0]
        if len(shape(node)) <= 4 or len(shape(source)) > 4 or 1 not in shape(node):
            continue
        axis = next((a for a, size in enumerate(shape(node)) if size == 1 and _can_drop(node, a)), None)
        if axis is not None:
            target = [size for i, size in enumerate(shape(node)) if i != axis]
            node.target, node.args = aten.reshape.default, (source, target)
            _drop_downwards(node, axis)
            infer_from(graph, node)
            done += 1
    clean(graph)
    return done


def _ends_of_copies(node: fx.Node) -> Sequence[fx.Node]:
    """The users of a node, looking through copies."""
    ends: list[fx.Node] = []
    for user in node.users:
        ends.extend(_ends_of_copies(user) if user.target in COPIES else [user])
    return ends


def _permute_in_steps(build: Builder, source: fx.Node, sizes: Sequence[int], order: Sequence[int]) -> fx.Node:
    """The source, seen as `sizes`, with its axes in `order`, in steps of rank 4 at most."""
    # Axes that stay neighbours move as one; axes of size 1 do not move at all.
    wanted = _merge([axis for axis in order if sizes[axis] != 1], [a for a in range(len(sizes)) if sizes[a] != 1])
    current = sorted(wanted)

    def size(groups: Sequence[tuple[int, ...]]) -> int:
        return math.prod(sizes[axis] for group in groups for axis in group)

    result = source
    if len(current) <= 4:
        result = build.view(result, [size([group]) for group in current])
        return build.permute(result, [current.index(group) for group in wanted])
    for place, group in enumerate(wanted):
        at = current.index(group)
        if at == place:
            continue
        done, passed, rest = current[:place], current[place:at], current[at + 1 :]
        result = build.view(result, [size(done), size(passed), size([group]), size(rest)])
        result = build.permute(result, (0, 2, 1, 3))
        current = [*done, group, *passed, *rest]
    return result


def _merge(order: list[int], axes: list[int]) -> list[tuple[int, ...]]:
    following = dict(itertools.pairwise(axes))
    groups: list[tuple[int, ...]] = []
    for axis in order:
        if groups and following.get(groups[-1][-1]) == axis:
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return groups


def _split(build: Builder, graph: fx.GraphModule, source: fx.Node, parts: int) -> list[fx.Node]:
    width = shape(source)[-1] // parts
    if source.target is aten.linear.default and len(source.users) == 1:
        given: Any = source.args
        weight = value(graph, given[1])
        bias = value(graph, given[2]) if len(given) > 2 and given[2] is not None else None
        if weight is not None:
            pieces: list[fx.Node] = []
            for part in range(parts):
                rows = slice(part * width, (part + 1) * width)
                constants = [build.constant(weight[rows])]
                constants += [build.constant(bias[rows])] if bias is not None else []
                pieces.append(build.call(aten.linear.default, given[0], *constants))
            return pieces
    last = len(shape(source)) - 1
    return [build.call(aten.slice.Tensor, source, last, i * width, (i + 1) * width) for i in range(parts)]


_ELEMENTWISE = frozenset(
    {
        aten.relu.default,
        aten.sigmoid.default,
        aten.gelu.default,
        aten.silu.default,
        aten.tanh.default,
        aten.neg.default,
        aten.clone.default,
        aten.contiguous.default,
    }
)


def _can_drop(node: fx.Node, axis: int) -> bool:
    for user in node.users:
        if user.target in VIEWS:
            continue
        if user.target is aten.select.int:
            if dim_of(user) == axis:
                continue
            if not _can_drop(user, axis - (dim_of(user) < axis)):
                return False
        elif user.target is aten.slice.Tensor:
            if dim_of(user) == axis or not _can_drop(user, axis):
                return False
        elif user.target not in _ELEMENTWISE or not _can_drop(user, axis):
            return False
    return True


def _drop_downwards(node: fx.Node, axis: int) -> None:
    for user in list(node.users):
        if user.target in VIEWS:
            # Written out as the shape that it gives: it is the same whatever comes in.
            user.target, user.args, user.kwargs = aten.reshape.default, (node, list(shape(user))), {}
        elif user.target is aten.select.int and dim_of(user) == axis:
            replace(user, node)
        elif user.target in (aten.select.int, aten.slice.Tensor):
            dim = dim_of(user)
            inner = axis - (dim < axis) if user.target is aten.select.int else axis
            user.args = (node, dim - (dim > axis), *user.args[2:])
            _drop_downwards(user, inner)
        else:
            _drop_downwards(user, axis)
