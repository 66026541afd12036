"""LayerNorm that does not overflow in half precision."""

from __future__ import annotations

import math

from torch import fx

from assay.conversion.rewrites._graph import Builder, arguments, aten, calls, clean, replace, shape


def layer_norm_prescaled(graph: fx.GraphModule) -> int:
    """Scale the centred values by a power of two before they are squared.

    With `c = 2**-round(log2(sqrt(n)))` over `n` channels, `y = (d c) / sqrt(mean((d c)**2) + eps c**2)` for
    `d = x - mean(x)`: the same number, since a power of two scales without rounding. The sum of squares is then
    about the variance, so half precision holds up to a standard deviation of about 255 instead of
    `255 / sqrt(n)`. In half precision `eps c**2` may become 0; a row of equal values then divides by zero.

    Args:
        graph: Changed in place; norms over more than the last axis are left as they are.

    Returns:
        How many were rewritten.
    """
    done = 0
    for node in calls(graph, aten.layer_norm.default):
        given = arguments(node)
        if len(given["normalized_shape"]) != 1:
            continue
        source: fx.Node = given["input"]
        scale = 2.0 ** -round(math.log2(math.sqrt(shape(source)[-1])))
        build = Builder(graph, node)
        centred = build.call(aten.sub.Tensor, source, build.call(aten.mean.dim, source, [-1], True))
        small = build.call(aten.mul.Tensor, centred, scale)
        variance = build.call(aten.mean.dim, build.call(aten.mul.Tensor, small, small), [-1], True)
        root = build.call(aten.rsqrt.default, build.call(aten.add.Tensor, variance, given["eps"] * scale**2))
        normed = build.call(aten.mul.Tensor, small, root)
        if given["weight"] is not None:
            normed = build.call(aten.mul.Tensor, normed, given["weight"])
        if given["bias"] is not None:
            normed = build.call(aten.add.Tensor, normed, given["bias"])
        replace(node, normed)
        done += 1
    clean(graph)
    return done
