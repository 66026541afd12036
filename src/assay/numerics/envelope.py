"""The expected error of each output, learnt from the model itself.

The reference lane runs the model with the rounding noise of a precision built in (`assay.numerics.noise`),
several draws on each set of inputs. How far the outputs then move is what a correct lane of that precision may
move them, element by element. Nothing is assumed of the model: a mask's edge moves much and its inside little,
a logit's error grows with the depth before it, and both are seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.graph import Model, save
from assay.numerics.noise import PRECISIONS, Precision, noisy

Arrays = list[NDArray[Any]]

Runner = Callable[[Path, list[Arrays]], list[Arrays]]
"""Runs a model file on sets of inputs, in this order and on one loaded model; gives the outputs of each."""

DRAWS = 8
"""Draws for each set of inputs: a deviation from 8 draws is good to a factor of 1.6 either way, 19 times of 20."""

_BATCH_BYTES = 256 * 2**20
"""Outputs that one call of the runner may return; more draws go into further calls."""


@dataclass(frozen=True)
class OutputNoise:
    """What a precision does to one output on one set of inputs.

    Attributes:
        square: Mean square deviation of each element over the draws, float32, the output's shape. Labels
            (integers that are not quantized values, and booleans) count 1 where they changed.
        rms: Root mean square deviation over all elements and draws.
        max_abs: Largest deviation of an element, mean over the draws.
        lost: Share of elements, over all draws, that became NaN or infinite though the reference is finite.
    """

    square: NDArray[np.float32]
    rms: float
    max_abs: float
    lost: float


@dataclass(frozen=True)
class Envelope:
    """The expected errors at one precision.

    Attributes:
        precision: Name of the precision, a key of `noise.PRECISIONS`.
        draws: Draws for each set.
        noise: By set, then by output.
    """

    precision: str
    draws: int
    noise: list[list[OutputNoise]]

    def expected_max_abs(self, output: int) -> float:
        """The largest error to be expected of an output, over all sets; 0.0 for an empty output."""
        return max((row[output].max_abs for row in self.noise), default=0.0)

    def scaled(self, precision: Precision) -> Envelope:
        """This envelope for another unit roundoff: to first order, errors are proportional to it."""
        factor = precision.sums / PRECISIONS[self.precision].sums
        return Envelope(
            precision.name,
            self.draws,
            [[_scaled(noise, factor) for noise in row] for row in self.noise],
        )


def learn(
    model: Model,
    runner: Runner,
    input_sets: Sequence[Arrays],
    reference: Sequence[Arrays],
    folder: Path,
    *,
    precision: str = "fp32",
    draws: int = DRAWS,
    seed: int = 0,
    resized: bool = False,
) -> Envelope:
    """Learn the expected error of each output, element by element.

    Args:
        model: The model's graph.
        runner: Runs a model file on the reference lane; called once or a few times.
        input_sets: The sets of inputs.
        reference: The reference lane's outputs for each set, of the model as it is.
        folder: Where the noisy models are written; they are removed again.
        precision: A key of `noise.PRECISIONS`.
        draws: Draws for each set, at least 2.
        seed: The same seed gives the same noise.
        resized: True if shapes are not those in the file.

    Returns:
        The envelope.

    Raises:
        AssayError: An unknown precision, or the noisy model cannot be written or run (an op the reference lane
            does not have, too little memory): then nothing is known of the expected error.
    """
    if precision not in PRECISIONS:
        raise AssayError(f"there is no precision {precision!r}", fix=f"choose from {', '.join(PRECISIONS)}")
    sums = [[_Sums(output) for output in outputs] for outputs in reference]
    bytes_per_draw = sum(output.nbytes for outputs in reference for output in outputs)
    at_once = max(1, min(draws, _BATCH_BYTES // max(1, bytes_per_draw)))
    if PRECISIONS[precision].weights == "int8":
        at_once = 1  # Weights are drawn anew with each file.
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        path = folder / f"noisy_{precision}_{start}.tflite"
        try:
            save(noisy(model, PRECISIONS[precision], seed + start, resized=resized), path)
            results = runner(path, list(input_sets) * count)
        finally:
            path.unlink(missing_ok=True)
        if len(results) != len(input_sets) * count:
            raise AssayError(f"the reference lane gave {len(results)} results for {len(input_sets) * count} runs")
        for number, outputs in enumerate(results):
            for total, output in zip(sums[number % len(input_sets)], outputs, strict=True):
                total.add(output)
    return Envelope(precision, draws, [[total.result() for total in row] for row in sums])


def deviation(reference: NDArray[Any], output: NDArray[Any]) -> NDArray[np.float64]:
    """How far each element is off: a difference for values, 0 or 1 for labels.

    Integers of 8 and 16 bits stand for quantized values; wider integers and booleans are labels, of which the
    size of a difference says nothing. Elements where both are NaN, or the same infinity, are 0.
    """
    if is_label(reference):
        return np.asarray(reference != output, dtype=np.float64)
    wide_reference, wide_output = reference.astype(np.float64), output.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = wide_output - wide_reference
    same = (wide_reference == wide_output) | (np.isnan(wide_reference) & np.isnan(wide_output))
    return np.where(same, 0.0, difference)


def is_label(values: NDArray[Any]) -> bool:
    """True for integers of 32 bits and more, and for booleans."""
    return values.dtype.kind == "b" or (values.dtype.kind in "iu" and values.dtype.itemsize >= 4)


class _Sums:
    """Squared deviations of one output on one set, summed over draws."""

    def __init__(self, reference: NDArray[Any]) -> None:
        if reference.dtype.kind == "c":
            raise AssayError("the expected error of complex outputs cannot be learnt")
        self.reference = reference
        self.square = np.zeros(reference.shape, np.float64)
        self.counts = np.zeros(reference.shape, np.int32)
        self.draws = 0
        self.max_sum = 0.0
        self.lost = 0

    def add(self, output: NDArray[Any]) -> None:
        if output.shape != self.reference.shape:
            raise AssayError(
                f"an output changed its shape from {self.reference.shape} to {output.shape} under noise"
            )
        moved = deviation(self.reference, output)
        finite = np.isfinite(moved)
        moved = np.where(finite, moved, 0.0)
        self.draws += 1
        self.lost += int(moved.size - np.count_nonzero(finite))
        self.counts += finite
        self.square += np.square(moved)
        self.max_sum += float(np.abs(moved).max(initial=0.0))

    def result(self) -> OutputNoise:
        square = self.square / np.maximum(self.counts, 1)
        size = self.reference.size
        return OutputNoise(
            square=square.astype(np.float32),
            rms=math.sqrt(float(square.mean())) if size else 0.0,
            max_abs=self.max_sum / max(self.draws, 1),
            lost=self.lost / (size * self.draws) if size and self.draws else 0.0,
        )


def _scaled(noise: OutputNoise, factor: float) -> OutputNoise:
    return OutputNoise(
        square=(noise.square * np.float32(factor**2)),
        rms=noise.rms * factor,
        max_abs=noise.max_abs * factor,
        lost=0.0,
    )
