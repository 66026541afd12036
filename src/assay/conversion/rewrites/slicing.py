"""Slices taken before the work instead of after it."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from assay.conversion.rewrites._graph import (
    VIEWS,
    Builder,
    arguments,
    aten,
    calls,
    clean,
    dim_of,
    replace,
    shape,
    value,
)

_UNARY = frozenset(
    {
        aten.sigmoid.default,
        aten.relu.default,
        aten.gelu.default,
        aten.silu.default,
        aten.tanh.default,
        aten.neg.default,
        aten.exp.default,
        aten.sqrt.default,
    }
)


def slice_early(graph: fx.GraphModule) -> int:
    """A static slice of a result moves up to the inputs of the work, and to weights where it can.

    Exact: only numbers that nobody reads are no longer computed. `stack(heads) @ pixels` followed by `[1:]` (the
    choice of the multi-mask outputs) then never computes the first head; a slice of a projection's outputs
    becomes a projection with fewer rows.

    Args:
        graph: Changed in place.

    Returns:
        How many times a slice moved past an operation.
    """
    done = 0
    moved = True
    while moved:
        moved = False
        for node in calls(graph, aten.select.int):
            moved = _select_of_slice(graph, node) or moved
        for node in calls(graph, aten.slice.Tensor):
            if _move_up(graph, node):
                done, moved = done + 1, True
                break
        clean(graph)
    return done


def _bounds(node: fx.Node) -> tuple[int, int, int]:
    given = arguments(node)
    size = shape(given["self"])[dim_of(node)]
    start = 0 if given["start"] is None else int(given["start"])
    end = size if given["end"] is None else int(given["end"])
    start, end = (edge + size if edge < 0 else edge for edge in (start, end))
    return start, min(end, size), int(given["step"])


def _select_of_slice(graph: fx.GraphModule, node: fx.Node) -> bool:
    """`x[2:6][i]` is `x[2 + i]`."""
    inner: Any = node.args[0]
    if inner.target is not aten.slice.Tensor or dim_of(inner) != dim_of(node):
        return False
    start, end, step = _bounds(inner)
    index: Any = node.args[2]
    position = start + step * (index % ((end - start + step - 1) // step))
    node.args = (inner.args[0], dim_of(node), position)
    return True


def _move_up(graph: fx.GraphModule, node: fx.Node) -> bool:
    producer: Any = node.args[0]
    if producer.op != "call_function" or len(producer.users) != 1:
        return False
    dim = dim_of(node)
    rank = len(shape(producer))
    start, end, step = _bounds(node)
    build = Builder(graph, node)
    args: Any = producer.args

    def cut(source: fx.Node, axis: int) -> fx.Node:
        return build.call(aten.slice.Tensor, source, axis, start, end, step)

    if producer.target in _UNARY:
        new = build.call(producer.target, cut(args[0], dim), *args[1:], **producer.kwargs)
    elif producer.target in VIEWS:
        axis = _same_axis(shape(args[0]), shape(producer), dim)
        if axis is None:
            return False
        new = build.view(cut(args[0], axis), shape(node))
    elif producer.target is aten.permute.default:
        new = build.permute(cut(args[0], args[1][dim] % rank), args[1])
    elif producer.target is aten.transpose.int:
        first, second = (int(axis) % rank for axis in args[1:3])
        axis = {first: second, second: first}.get(dim, dim)
        new = build.call(aten.transpose.int, cut(args[0], axis), first, second)
    elif producer.target is aten.linear.default:
        constants = [value(graph, part) for part in args[1:] if part is not None]
        if dim != rank - 1:
            new = build.call(aten.linear.default, cut(args[0], dim), *args[1:])
        elif any(constant is None for constant in constants):
            return False
        else:
            rows = [build.constant(constant[start:end:step]) for constant in constants if constant is not None]
            new = build.call(aten.linear.default, args[0], *rows)
    elif producer.target is aten.matmul.default:
        side = 0 if dim == rank - 2 else 1
        if dim < rank - 2 or len(shape(args[side])) != rank:
            return False
        sides = [cut(args[i], dim) if i == side else args[i] for i in (0, 1)]
        new = build.call(aten.matmul.default, *sides)
    elif producer.target is aten.stack.default and dim_of(producer) == dim:
        new = build.call(aten.stack.default, args[0][start:end:step], dim)
    else:
        return False
    replace(node, new)
    return True


def _same_axis(source: tuple[int, ...], target: tuple[int, ...], dim: int) -> int | None:
    """The axis of the source that is the target's axis `dim`, if the reshape leaves that axis whole."""
    before = math.prod(target[:dim])
    for axis, size in enumerate(source):
        if size == target[dim] and math.prod(source[:axis]) == before:
            return axis
    return None
