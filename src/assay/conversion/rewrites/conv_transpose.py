"""Transposed convolution without the op of that name: over an input spread out with zeros, or by sub-pixels."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from assay.conversion.rewrites._graph import Builder, arguments, aten, calls, clean, replace, shape, value


def conv_transpose_zero_stuffed(graph: fx.GraphModule) -> int:
    """Every 2-D transposed convolution with constant weights becomes RESIZE_NEAREST, MUL, PAD and CONV_2D.

    Exact up to the order of summation. Nearest-neighbour upsampling times a constant 0/1 mask puts `stride - 1`
    zeros between the pixels; the convolution then uses the kernel turned by 180 degrees. The mask has the full
    size, since a tiled one would cost a BROADCAST_TO.

    Args:
        graph: Changed in place. Grouped, dilated and output-padded ones are left as they are.

    Returns:
        How many were rewritten.
    """
    done = 0
    for node in calls(graph, aten.conv_transpose2d.input):
        given = arguments(node)
        weight = value(graph, given["weight"])
        if weight is None or not _is_plain(given):
            continue
        _zero_stuff(graph, node, given, weight)
        done += 1
    clean(graph)
    return done


def conv_transpose_subpixel(graph: fx.GraphModule) -> int:
    """A 2-D transposed convolution whose kernel is its stride becomes a projection and one transpose of rank 4.

    Exact up to the order of summation. Kernels do not overlap there, so every input pixel makes its own block of
    output pixels: a FULLY_CONNECTED gives all of a block's numbers, and a transpose sorts the rows of blocks into
    rows of pixels. A quarter of the multiplications of `conv_transpose_zero_stuffed` at stride 2, but its tensors
    have rows of the image on the batch axis.

    Args:
        graph: Changed in place; others than described are left as they are.

    Returns:
        How many were rewritten.
    """
    done = 0
    for node in calls(graph, aten.conv_transpose2d.input):
        given = arguments(node)
        weight = value(graph, given["weight"])
        bias = value(graph, given["bias"]) if given["bias"] is not None else None
        if weight is None or (bias is None and given["bias"] is not None):
            continue
        if not _is_plain(given) or any(_pair(given["padding"])):
            continue
        stride = _pair(given["stride"])
        if tuple(weight.shape[2:]) != stride:
            continue
        batch, _, height, width = shape(given["input"])
        channels = weight.shape[1]
        build = Builder(graph, node)
        pixels = build.permute(given["input"], (0, 2, 3, 1))
        # One row of the matrix for each (row in block, column in block, channel).
        matrix = build.constant(weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0]))
        biases = [] if bias is None else [build.constant(bias.repeat(stride[0] * stride[1]))]
        blocks = build.call(aten.linear.default, pixels, matrix, *biases)
        blocks = build.view(blocks, (batch * height, width, stride[0], stride[1] * channels))
        rows = build.permute(blocks, (0, 2, 1, 3))
        image = build.view(rows, (batch, height * stride[0], width * stride[1], channels))
        replace(node, build.permute(image, (0, 3, 1, 2)))
        done += 1
    clean(graph)
    return done


def _is_plain(given: dict[str, Any]) -> bool:
    return (
        given["groups"] == 1 and set(_pair(given["dilation"])) == {1} and not any(_pair(given["output_padding"]))
    )


def _zero_stuff(graph: fx.GraphModule, node: fx.Node, given: dict[str, Any], weight: torch.Tensor) -> None:
    rows, columns = _pair(given["stride"])
    pads = _pair(given["padding"])
    kernel = tuple(weight.shape[2:])
    height, width = shape(given["input"])[2:]
    build = Builder(graph, node)
    stuffed: fx.Node = given["input"]
    # Zeros after the last pixel are left over by the upsampling: they take part of the padding's place.
    spare = (rows - 1, columns - 1)
    if (rows, columns) != (1, 1):
        size = [height * rows, width * columns]
        mask = torch.zeros(1, 1, *size, dtype=weight.dtype)
        mask[:, :, ::rows, ::columns] = 1
        stuffed = build.call(aten.upsample_nearest2d.vec, stuffed, size, None)
        stuffed = build.call(aten.mul.Tensor, stuffed, build.constant(mask))
    before = [kernel[axis] - 1 - pads[axis] for axis in (0, 1)]
    after = [before[axis] - spare[axis] for axis in (0, 1)]
    padding = [before[1], after[1], before[0], after[0]]
    if any(padding):
        stuffed = build.call(aten.constant_pad_nd.default, stuffed, padding, 0.0)
    turned = build.constant(weight.flip(2, 3).transpose(0, 1))
    replace(node, build.call(aten.conv2d.default, stuffed, turned, given["bias"]))


def _pair(number: Any) -> tuple[int, int]:
    numbers = [number] if isinstance(number, int) else list(number)
    return (numbers[0], numbers[-1])
