"""Means over many values, one axis at a time."""

from __future__ import annotations

from typing import Any

from torch import fx

from assay.conversion.rewrites._graph import Builder, arguments, aten, calls, clean, replace, shape


def mean_cascade(graph: fx.GraphModule) -> int:
    """A mean over several axes becomes a mean over each axis in turn.

    Exact up to the order of summation. Each step adds up only one axis, so that in half precision the running
    sum stays small, and no accelerator has to know a mean over several axes.

    Args:
        graph: Changed in place.

    Returns:
        How many means were rewritten.
    """
    done = 0
    for node in calls(graph, aten.mean.dim, aten.mean.default, aten.adaptive_avg_pool2d.default):
        source: Any = node.args[0]
        rank = len(shape(source))
        if node.target is aten.adaptive_avg_pool2d.default:
            if set(arguments(node)["output_size"]) != {1}:
                continue
            axes, keep = [rank - 2, rank - 1], True
        elif node.target is aten.mean.default:
            axes, keep = list(range(rank)), False
        else:
            given: Any = node.args[1]
            axes = sorted(axis % rank for axis in given or range(rank))
            keep = bool(arguments(node)["keepdim"])
        if len(axes) < 2 or arguments(node).get("dtype") is not None:
            continue
        build = Builder(graph, node)
        result = source
        for axis in reversed(axes):
            result = build.call(aten.mean.dim, result, [axis], True)
        replace(node, result if keep else build.view(result, shape(node)))
        done += 1
    clean(graph)
    return done
