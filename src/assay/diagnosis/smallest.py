"""The smallest file that still shows a fault: the region alone, with its dimensions made small."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from assay import graph
from assay.diagnosis.axes import Axes, Axis
from assay.diagnosis.launch import Launcher, Trial, TrialResult
from assay.diagnosis.pieces import Piece, specs
from assay.diagnosis.session import SEQUENCE, Session, judge
from assay.graph import Buffer, Model, Subgraph, Tensor
from assay.lanes.base import LaneFacts

Array = np.ndarray[Any, np.dtype[Any]]

TARGETS = (1, 2, 3, 4, 8, 16)
"""Sizes to which free dimensions are cut, all tried in one round."""
LIGHT = 10_000
"""Bytes of a file that need not be made smaller."""
ROUNDS = 4
"""How often dimensions are cut one by one where cutting them all together hides the fault."""


@dataclass(frozen=True)
class Smallest:
    """A file that shows the fault, with what goes in, what should come out, and what does.

    Attributes:
        data: The `.tflite` file.
        model: The same as a graph.
        inputs: For each of the two input sets, the arrays by input position.
        expected: The reference's outputs for each set, by output position.
        actual: The lane's outputs for each inference of the sequence; empty where it failed.
        max_abs_diff: Largest absolute difference; None if it is not finite, or the lane failed.
        worst: Largest difference over its limit; None as above.
        failure: Failure class, if the fault is that the lane fails.
        error: One sentence for it.
        facts: What the lane's log shows.
        shrunk: True if dimensions were made smaller than in the whole model.
        sizes: The size of every axis of the region.
    """

    data: bytes
    model: Model
    inputs: list[list[Array]]
    expected: list[list[Array]]
    actual: list[list[Array]]
    max_abs_diff: float | None
    worst: float | None
    failure: str | None
    error: str | None
    facts: LaneFacts
    shrunk: bool
    sizes: dict[Axis, int]


@dataclass(frozen=True)
class _Small:
    model: Model
    data: bytes
    sets: list[list[Array]]
    shrunk: bool
    sizes: dict[Axis, int]


def smallest(
    session: Session, reference: Launcher, piece: Piece, shows: Callable[[TrialResult, float], bool]
) -> Smallest | None:
    """Make the file of a region small, as long as the lane shows the fault on it.

    Args:
        session: Where the region was found.
        reference: Launcher of the reference lane, which says what is right for the smaller file.
        piece: The region.
        shows: Whether a result with this largest ratio to its limit is the fault.

    Returns:
        The smallest candidate that shows the fault, or None if none does, the region in full size included.
    """
    axes = Axes(piece.model, piece.model.subgraphs[0])
    cut = partial(_cut, session, piece, axes)
    tried = partial(_tried, session, reference, piece, shows)
    full = cut({})
    candidates = {full.data: full}
    for target in TARGETS:
        candidate = cut(target)
        candidates.setdefault(candidate.data, candidate)
    best = min(tried(list(candidates.values())), key=_weight, default=None)
    if best is not None and len(best.data) > LIGHT:
        best = _refined(axes.free(), best, cut, tried)
    return best


def _refined(
    groups: Sequence[Axis],
    best: Smallest,
    cut: Callable[[Mapping[Axis, int]], _Small],
    tried: Callable[[Sequence[_Small]], list[Smallest]],
) -> Smallest:
    """Cut dimensions one by one: a fault that needs one of them large lets the others be small."""
    current = {group: best.sizes[group] for group in groups}
    for _ in range(ROUNDS):
        singles = tried([cut(current | {group: size}) for group in groups for size in _smaller(current[group])])
        if not singles:
            break
        together = tried([cut({group: min(each.sizes[group] for each in singles) for group in groups})])
        better = min(*singles, *together, best, key=_weight)
        if better is best:
            break
        best, current = better, {group: better.sizes[group] for group in groups}
    return best


def _smaller(size: int) -> list[int]:
    """Sizes to try instead of one: the smallest, and three between."""
    return sorted({target for target in (*TARGETS, size // 2, size * 3 // 4, size * 7 // 8) if 0 < target < size})


def _tried(
    session: Session,
    reference: Launcher,
    piece: Piece,
    shows: Callable[[TrialResult, float], bool],
    candidates: Sequence[_Small],
) -> list[Smallest]:
    """Those of some candidates that show the fault."""
    right = reference.run([_trial(candidate, {}) for candidate in candidates])
    usable = [
        (candidate, [result.outputs(0), result.outputs(1)])
        for candidate, result in zip(candidates, right, strict=True)
        if result.failure is None
    ]
    results = session.launcher.run([_trial(candidate, session.options) for candidate, _ in usable])
    found: list[Smallest] = []
    for (candidate, expected), result in zip(usable, results, strict=True):
        ratio, difference = _apart(session, piece, expected, result)
        if not shows(result, ratio):
            continue
        found.append(
            Smallest(
                data=candidate.data,
                model=candidate.model,
                inputs=candidate.sets,
                expected=expected,
                actual=[result.outputs(i) for i in range(len(result.files))] if result.failure is None else [],
                max_abs_diff=difference,
                worst=ratio if np.isfinite(ratio) and result.failure is None else None,
                failure=result.failure.value if result.failure else None,
                error=result.error,
                facts=result.facts,
                shrunk=candidate.shrunk,
                sizes=candidate.sizes,
            )
        )
    return found


def _weight(each: Smallest) -> tuple[int, int]:
    """Bytes of the file first, then of its inputs: a smaller image does not make the file smaller."""
    return len(each.data) // 256, sum(array.nbytes for array in each.inputs[0])


def _apart(
    session: Session, piece: Piece, expected: list[list[Array]], result: TrialResult
) -> tuple[float, float | None]:
    if result.failure is not None:
        return 0.0, None
    judged = [
        judge(
            result.outputs(position),
            piece.outputs,
            dict(zip(piece.outputs, expected[index], strict=True)),
            session.limits,
        )
        for position, index in enumerate(SEQUENCE)
    ]
    worst = max(judged, key=lambda each: each.worst)
    return worst.worst, worst.max_abs_diff


def _trial(small: _Small, options: Mapping[str, Any]) -> Trial:
    inputs, outputs = specs(small.model)
    return Trial("a smaller file", small.data, inputs, outputs, small.sets, SEQUENCE, options=dict(options))


def _cut(session: Session, piece: Piece, axes: Axes, target: int | Mapping[Axis, int]) -> _Small:
    """The region with its free dimensions cut."""
    sizes = axes.sizes(target)
    model = resized(piece.model, sizes)
    entries = model.subgraphs[0]
    sets = [
        [
            _head(values[tensor], entries.tensors[index].shape)
            for tensor, index in zip(piece.inputs, entries.inputs, strict=True)
        ]
        for values in session.values
    ]
    return _Small(model, graph.write(model), sets, shrunk=target != {}, sizes=sizes)


def _head(array: Array, shape: Sequence[int]) -> Array:
    """The leading part of an array."""
    return np.ascontiguousarray(array[tuple(slice(size) for size in shape)])


def resized(model: Model, sizes: Mapping[Axis, int]) -> Model:
    """A copy of a model with smaller dimensions; of constants the leading part is kept.

    Args:
        model: One subgraph, no control flow.
        sizes: For each axis its size, from `Axes.sizes`; an axis that is missing keeps its own.
    """
    from assay.graph.values import encode

    small = model.copy()
    subgraph = small.subgraphs[0]
    for tensor in subgraph.tensors:
        shape = tuple(sizes.get((tensor.index, axis), size) for axis, size in enumerate(tensor.shape))
        if shape == tensor.shape:
            continue
        if tensor.is_constant:
            small.buffers.append(Buffer(encode(_head(model.data(tensor), shape), tensor.dtype)))
            tensor.buffer = len(small.buffers) - 1
        tensor.quantization = _cut_scales(tensor, shape)
        tensor.shape = shape
    _respell(small, subgraph)
    return _tidy(small)


def _cut_scales(tensor: Tensor, shape: tuple[int, ...]) -> graph.Quantization | None:
    quantization = tensor.quantization
    if quantization is None or len(quantization.scales) < 2:
        return quantization
    count = shape[quantization.axis]
    return dataclasses.replace(
        quantization,
        scales=list(quantization.scales)[:count],
        zero_points=list(quantization.zero_points)[:count],
        min=(),
        max=(),
    )


def _respell(model: Model, subgraph: Subgraph) -> None:
    """Shapes that are written down as values: of RESHAPE, and of a transposed convolution's result."""
    for node in subgraph.nodes:
        position = {"RESHAPE": 1, "TRANSPOSE_CONV": 0}.get(node.op)
        if position is None:
            continue
        shape = subgraph.tensors[node.outputs[0]].shape
        if node.options.get("new_shape"):
            node.options["new_shape"] = list(shape)
        if position < len(node.inputs) and subgraph.tensors[node.inputs[position]].is_constant:
            spelled = subgraph.tensors[node.inputs[position]]
            model.buffers.append(Buffer(np.array(shape, np.int32).tobytes()))
            fresh = dataclasses.replace(
                spelled,
                index=len(subgraph.tensors),
                name=f"{spelled.name}/{node.index}",
                buffer=len(model.buffers) - 1,
            )
            subgraph.tensors.append(fresh)
            node.inputs[position] = fresh.index


def _tidy(model: Model) -> Model:
    """Drop buffers and tensors that nothing uses."""
    nodes = range(len(model.subgraphs[0].nodes))
    names = [model.subgraphs[0].tensors[i].name for i in (*model.subgraphs[0].inputs, *model.subgraphs[0].outputs)]
    tidy = graph.cut(model, nodes)
    subgraph = tidy.subgraphs[0]
    by_name = {tensor.name: tensor.index for tensor in subgraph.tensors}
    count = len(model.subgraphs[0].inputs)
    subgraph.inputs = [by_name[name] for name in names[:count]]
    subgraph.outputs = [by_name[name] for name in names[count:]]
    tidy.signatures = []
    return graph.GraphBuilder(tidy).finish()
