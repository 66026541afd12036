"""What follows from sizes, which no signature holds: windows larger than the input, weights too large to keep."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from assay.graph.outline import Outline

_POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
#: For up to so many positions of the output the weights of a convolution or a fully connected layer are in a
#: buffer, which has no such limit.
_IN_A_BUFFER = 8
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def window_too_large(outline: Outline, node: int) -> bool:
    """True for a window without padding over a smaller input: no kernel of the runtime can prepare such a node."""
    options, op = outline.options[outline.option_ids[node]], outline.op[node]
    if options.get("padding") != "VALID" or op not in (*_CONVOLUTIONS, *_POOLS):
        return False
    reads = outline.read[node]
    if len(reads) < (1 if op in _POOLS else 2) or min(reads[:2]) < 0:
        return False
    source = outline.shape[reads[0]]
    if op in _POOLS:
        window = (options.get("filter_height", 1), options.get("filter_width", 1))
    else:
        shape = outline.shape[reads[1]]
        steps = [options.get(f"dilation_{side}_factor", 1) for side in "hw"]
        if len(shape) != 4:
            return False
        window = tuple((size - 1) * step + 1 for size, step in zip(shape[1:3], steps, strict=True))
    return len(source) == 4 and any(size > room for size, room in zip(window, source[1:3], strict=True))


def weights_texture(outline: Outline, node: int, halves: Collection[int] = ()) -> tuple[int, int] | None:
    """Width and height in texels of the texture that ML Drift keeps a layer's constant weights in.

    A texel holds four channels. The rules were read off the engine's validation messages for layers of many sizes.

    Args:
        outline: The subgraph.
        node: The node.
        halves: Tensors that stand for folded float16 constants.

    Returns:
        The size; None for a node whose weights are in no texture.
    """
    op, reads, writes = outline.op[node], outline.read[node], outline.written[node]
    if op not in (*_CONVOLUTIONS, "FULLY_CONNECTED", "BATCH_MATMUL") or len(reads) < 2 or not writes:
        return None
    if min(*reads[:2], writes[0]) < 0:
        return None
    if not (outline.is_constant[reads[1]] or reads[1] in halves):
        return None
    weights, positions = outline.shape[reads[1]], prod(outline.shape[writes[0]][:-1])
    if op == "DEPTHWISE_CONV_2D" and len(weights) == 4:
        return weights[1] * weights[2], _texels(weights[3])
    if op == "BATCH_MATMUL" and len(weights) >= 2 and prod(weights[:-2]) == 1:
        # Stored transposed or not, one side is the inputs and the other the outputs.
        return _columns(weights[-1]), _texels(weights[-2])
    if positions <= _IN_A_BUFFER:
        return None
    if op == "CONV_2D" and len(weights) == 4:
        outputs, height, width, inputs = weights
        return _columns(outputs), _texels(inputs) * height * width
    if op == "FULLY_CONNECTED" and len(weights) == 2:
        return _columns(weights[0]), _texels(weights[1])
    return None


def _texels(channels: int) -> int:
    return -(-channels // 4)


def _columns(outputs: int) -> int:
    """Outputs are computed in groups of eight."""
    return 2 * -(-outputs // 8)
