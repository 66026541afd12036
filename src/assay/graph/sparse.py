"""Sparse constants made dense.

The format is TACO's as the schema describes it: the dimensions (and the dimensions inside of blocks) are walked
in `traversal_order`; each level is either dense, or compressed with segments and indices as in CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.graph.errors import GraphError
from assay.graph.parts import Tensor
from assay.graph.schema import DTYPE_BITS
from assay.graph.values import elements

#: A few stored values may claim a shape that no memory holds.
MAX_DENSE = 1 << 33


def densify(tensor: Tensor, data: memoryview | bytes) -> np.ndarray[Any, Any]:
    """The dense values of a sparse tensor, read-only.

    Raises:
        GraphError: The sparsity parameters do not fit the shape or the buffer.
    """
    label = f"tensor {tensor.index} ({tensor.name!r})"
    if (tensor.nbytes or 0) > MAX_DENSE:
        raise GraphError(f"{label} would have {tensor.nbytes:,} bytes as a dense tensor")
    try:
        coordinates = _coordinates(tensor)
    except (IndexError, ValueError) as error:
        raise GraphError(f"{label} has unsound sparsity: {error}") from None
    count = len(coordinates[0]) if coordinates else 1
    if len(data) < (count * DTYPE_BITS[tensor.dtype] + 7) // 8:
        raise GraphError(f"{label} has {count:,} sparse values and a buffer of {len(data):,} bytes")
    values = elements(data, tensor.dtype, count)
    dense = np.zeros(tensor.shape, values.dtype)
    dense[tuple(coordinates)] = values if coordinates else values[0]
    dense.flags.writeable = False
    return dense


def _coordinates(tensor: Tensor) -> list[np.ndarray[Any, Any]]:
    """For each dimension of the dense tensor, the coordinate of each stored value."""
    sparsity: dict[str, Any] = tensor.sparsity or {}
    order = list(sparsity["traversal_order"] or ())
    block_map = list(sparsity["block_map"] or ())
    levels = sparsity["dim_metadata"] or []
    rank = len(tensor.shape)
    if sorted(order) != list(range(rank + len(block_map))) or len(levels) != len(order):
        raise ValueError("the traversal order does not fit the shape")
    position = np.zeros(1, np.int64)
    walked: dict[int, np.ndarray[Any, Any]] = {}
    sizes: dict[int, int] = {}
    for dimension, level in zip(order, levels, strict=True):
        if level["format"] == "DENSE":
            size = level["dense_size"]
            if size < 0 or len(position) * size > tensor.elements:
                raise ValueError("more values than the shape has")
            parent = np.repeat(np.arange(len(position)), size)
            coordinate = np.tile(np.arange(size), len(position))
            position = position[parent] * size + coordinate
        else:
            segments, indices = _vector(level["array_segments"]), _vector(level["array_indices"])
            rising = len(segments) > 1 and segments[0] >= 0 and bool(np.all(np.diff(segments) >= 0))
            if not rising or segments[-1] > len(indices):
                raise ValueError("the segments do not fit the indices")
            counts = segments[position + 1] - segments[position]
            if int(counts.sum()) > tensor.elements:
                raise ValueError("more values than the shape has")
            parent = np.repeat(np.arange(len(position)), counts)
            before = np.cumsum(counts) - counts
            position = segments[position][parent] + np.arange(len(parent)) - before[parent]
            coordinate = indices[position]
            size = int(coordinate.max(initial=-1)) + 1
            if coordinate.min(initial=0) < 0:
                raise ValueError("a negative index")
        walked = {key: value[parent] for key, value in walked.items()}
        walked[dimension] = coordinate
        sizes[dimension] = size
    result = [walked[dimension] for dimension in range(rank)]
    for block, dimension in enumerate(block_map):
        if not 0 <= dimension < rank:
            raise ValueError("a block of a dimension that is not there")
        result[dimension] = result[dimension] * sizes[rank + block] + walked[rank + block]
    for coordinate, size in zip(result, tensor.shape, strict=True):
        if coordinate.max(initial=-1) >= size:
            raise ValueError("an index past the shape")
    return result


def _vector(table: dict[str, Any] | None) -> np.ndarray[Any, Any]:
    """The numbers of a `SparseIndexVector`, whichever width they are stored in."""
    values = (table or {}).get("values")
    if isinstance(values, (bytes, memoryview)):
        return np.frombuffer(values, np.uint8).astype(np.int64)
    return np.asarray(() if values is None else values, np.int64)
