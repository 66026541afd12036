"""Attention with a leading batch axis all the way through, and its known-bad twin without one.

Both replace scaled dot-product attention and batched matrix products. On some phone GPUs the form without the
batch axis (rank 3) gives wrong numbers although every op of it is right by itself; the rank-4 form does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from assay.conversion.rewrites._graph import VIEWS, Builder, arguments, aten, calls, clean, replace, shape
from assay.conversion.rewrites._graph import value as constant_of

_MOVES = VIEWS | {aten.permute.default, aten.transpose.int}

#: (builder, left [..., m, k], right transposed [..., n, k]) -> [..., m, n]
_Product = Callable[[Builder, fx.Node, fx.Node], fx.Node]


def attention_rank4(graph: fx.GraphModule) -> int:
    """Matrix products of rank 4 stay of rank 4: one BATCH_MATMUL each, `[batch, heads, rows, columns]`.

    Products of two computed tensors of rank 3, `[heads, rows, columns]`, get a batch axis of 1, and softmax and
    scale between them with it. Exact up to rounding: the softmax scale goes onto the query, into its projection's
    weights where there is one.

    Args:
        graph: Changed in place.

    Returns:
        How many products and attentions were rewritten.
    """
    return _rewrite(graph, _product_rank4)


def attention_rank3(graph: fx.GraphModule) -> int:
    """Matrix products lose their batch axis: `[heads, rows, columns]`. Only for batch 1.

    The known-bad twin of `attention_rank4`, kept to show what a device does with it.

    Args:
        graph: Changed in place.

    Returns:
        How many products and attentions were rewritten.
    """
    return _rewrite(graph, _product_rank3)


def _rewrite(graph: fx.GraphModule, product: _Product) -> int:
    done = 0
    for node in calls(graph, aten.scaled_dot_product_attention.default, aten.matmul.default, aten.bmm.default):
        is_attention = node.target is aten.scaled_dot_product_attention.default
        if (_attention if is_attention else _matmul)(graph, node, product):
            done += 1
    clean(graph)
    return done


def _matmul(graph: fx.GraphModule, node: fx.Node, product: _Product) -> bool:
    left: Any = node.args[0]
    right: Any = node.args[1]
    if product is _product_rank4 and len(shape(left)) == len(shape(right)) == 3:
        return _lift(graph, node, left, right)
    if len(shape(left)) != 4 or len(shape(right)) != 4 or shape(left)[:2] != shape(right)[:2]:
        return False
    if product is _product_rank3 and shape(left)[0] != 1:
        return False
    build = Builder(graph, node)
    replace(node, product(build, left, build.permute(right, (0, 1, 3, 2))))
    return True


def _lift(graph: fx.GraphModule, node: fx.Node, left: fx.Node, right: fx.Node) -> bool:
    """Give a product of rank 3 a batch axis of 1, and keep it through what follows elementwise."""
    if "get_attr" in (left.op, right.op) or shape(left)[0] != shape(right)[0]:
        return False
    build = Builder(graph, node)
    sides = [build.view(side, (1, *shape(side))) for side in (left, build.permute(right, (0, 2, 1)))]
    result = _product_rank4(build, sides[0], sides[1])
    last = node
    while len(last.users) == 1 and _keeps_rows(user := next(iter(last.users)), last):
        others = [-1] if user.target is aten.softmax.int else list(user.args[1:])
        result = Builder(graph, user).call(user.target, result, *others)  # type: ignore[arg-type]
        last = user
    replace(last, Builder(graph, last).view(result, shape(last)))
    return True


def _keeps_rows(user: fx.Node, source: fx.Node) -> bool:
    """True for a softmax over the last axis, and for a scale by a number."""
    if user.op != "call_function" or not user.args or user.args[0] is not source or user.kwargs:
        return False
    if user.target is aten.softmax.int:
        return len(user.args) == 2 and user.args[1] in (-1, len(shape(source)) - 1)
    return user.target in (aten.mul.Tensor, aten.div.Tensor) and isinstance(user.args[1], int | float)


def _attention(graph: fx.GraphModule, node: fx.Node, product: _Product) -> bool:
    given = arguments(node)
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if len(shape(query)) != 4 or shape(query)[:2] != shape(key)[:2] or given["is_causal"] or given["enable_gqa"]:
        return False
    if mask is not None and (mask.meta["val"].dtype != query.meta["val"].dtype or len(shape(mask)) != 4):
        return False
    if product is _product_rank3 and (shape(query)[0] != 1 or mask is not None):
        return False
    scale: Any = given["scale"]
    build = Builder(graph, node)
    factor = 1 / math.sqrt(shape(query)[-1]) if scale is None else float(scale)
    scaled = query if _scale_projection(graph, query, factor) else build.call(aten.mul.Tensor, query, factor)
    if product is _product_rank3:
        # Softmax too runs on [heads, rows, columns]: nothing between the products has a batch axis.
        flat = [build.view(part, shape(part)[1:]) for part in (scaled, key, value)]
        weights = build.call(
            aten.softmax.int, build.call(aten.matmul.default, flat[0], build.permute(flat[1], (0, 2, 1))), -1
        )
        replace(node, build.view(build.call(aten.matmul.default, weights, flat[2]), shape(node)))
        return True
    scores = product(build, scaled, key)
    if mask is not None:
        scores = build.call(aten.add.Tensor, scores, mask)
    weights = build.call(aten.softmax.int, scores, -1)
    replace(node, product(build, weights, build.permute(value, (0, 1, 3, 2))))
    return True


def _scale_projection(graph: fx.GraphModule, query: fx.Node, factor: float) -> bool:
    """Put the softmax scale into the weights of the projection that makes the query, if it makes nothing else."""
    node: Any = query
    while node.op == "call_function" and len(node.users) == 1 and node.target in _MOVES:
        node = node.args[0]
    if node.target is not aten.linear.default or len(node.users) != 1:
        return False
    source, *parts = node.args
    constants = [constant_of(graph, part) for part in parts if part is not None]
    if any(constant is None for constant in constants):
        return False
    build = Builder(graph, node)
    node.args = (source, *(build.constant(constant * factor) for constant in constants if constant is not None))
    return True


def _product_rank4(build: Builder, left: fx.Node, right: fx.Node) -> fx.Node:
    # Importing it registers the operator and its lowering to one rank-4 BATCH_MATMUL.
    import litert_torch.generative.custom_ops.bmm_4d  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return build.call(torch.ops.litert_torch.bmm_4d.default, left, right)


def _product_rank3(build: Builder, left: fx.Node, right: fx.Node) -> fx.Node:
    flat = build.view(left, shape(left)[1:])
    other = build.permute(build.view(right, shape(right)[1:]), (0, 2, 1))
    return build.view(build.call(aten.matmul.default, flat, other), (*shape(left)[:-1], shape(right)[-2]))
