"""Interpolation as two products with constant matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from assay.conversion.rewrites._graph import Builder, aten, calls, clean, replace, shape

_RESIZES = (
    aten.upsample_bicubic2d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_nearest2d.vec,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bicubic2d_aa.vec,
)


def interpolate_matmul(graph: fx.GraphModule) -> int:
    """Resizing of `[batch, channels, height, width]` becomes one product along each of height and width.

    Exact up to the order of summation: all these filters are linear and separable, so each axis has one constant
    matrix, found by resizing the unit vectors of that axis. Nearest-neighbour by a whole factor is left alone: it
    is one op (RESIZE_NEAREST_NEIGHBOR) that accelerators have.

    Args:
        graph: Changed in place.

    Returns:
        How many resizes were rewritten.
    """
    done = 0
    for node in calls(graph, *_RESIZES):
        source: Any = node.args[0]
        before, after = shape(source)[2:], shape(node)[2:]
        whole = all(new % old == 0 for old, new in zip(before, after, strict=True))
        if node.target is aten.upsample_nearest2d.vec and whole:
            continue
        build = Builder(graph, node)
        result = source
        for axis in (1, 0):
            if before[axis] != after[axis] or node.target not in _RESIZES[:3]:
                matrix = _axis_matrix(node, axis, before, after)
                result = build.call(aten.linear.default, result, build.constant(matrix))
            # Turn height to the end for its own product, then back.
            result = build.permute(result, (0, 1, 3, 2))
        replace(node, result)
        done += 1
    clean(graph)
    return done


def _axis_matrix(node: fx.Node, axis: int, before: tuple[int, ...], after: tuple[int, ...]) -> torch.Tensor:
    """The `[after, before]` matrix of one axis (0 height, 1 width): the other axis is held constant."""
    size = before[axis]
    units = torch.eye(size)
    # The other axis is all ones and keeps its length: its own filter gives ones again, as its weights sum to 1.
    lengths = list(before)
    planes = units[:, :, None] if axis == 0 else units[:, None, :]
    planes = planes.expand(size, *[size if a == axis else lengths[a] for a in (0, 1)])[None]
    arguments = list(node.args)
    arguments[0] = planes
    assert callable(node.target)
    with torch.no_grad():
        resized = node.target(*arguments, **node.kwargs)[0]
    column = resized[:, :, 0] if axis == 0 else resized[:, 0, :]
    assert column.shape == (size, after[axis])
    return column.T.contiguous()
