"""The verdict on what a lane returned: match, precision noise, or wrong.

The rule, for each output on each set of inputs:

1. Another shape, or NaN or infinity where the reference has none: **wrong**.
2. Inside the envelope of fp32 arithmetic, and less than a hundredth of what the output varies by: **match**.
3. Inside the envelope of fp32 or of the lane's own precision (fp16, bf16, int8), and less than a quarter of what
   the output varies by: **precision noise**. The quarter is there because a precision can itself be too little
   for a model: that the error was to be expected does not make the answer usable.
4. More than that, inside the envelope of fp32: **not measured** on this set, since right lanes differ as much.
5. Else: **wrong**.

"Inside" means at most 5 times the expected error overall, 8 times in every slice, 12 times at every element
(`assay.numerics.excess`). The verdict on the lane is its worst output's. An output on which even all zeros would
pass says nothing; if all are such, the lane is **not measured**.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.numerics.compare import Comparison, compare
from assay.numerics.envelope import Arrays, Envelope, OutputNoise, deviation
from assay.numerics.excess import K_OVERALL, Excess, expected_square, mean_square, measure
from assay.numerics.judgement import (
    MATCH,
    NOT_MEASURED,
    PRECISION_NOISE,
    TOO_LITTLE,
    WRONG,
    OutputJudgement,
    Verdict,
    sum_up,
)
from assay.numerics.noise import PRECISIONS, Precision

__all__ = [
    "MATCH",
    "NOT_MEASURED",
    "PRECISION_NOISE",
    "WRONG",
    "OutputJudgement",
    "Verdict",
    "judge",
    "judge_uncalibrated",
]

USABLE_ERROR = 0.25
"""An error above this share of what the output varies by (correlation below about 0.97) is never called noise."""

INVISIBLE_ERROR = 0.01
"""An error above this share of what the output varies by (40 dB) is never called a match."""

NOTABLE_ERROR = 0.1
"""Noise above this share (20 dB) is pointed out."""

_SMALL_OUTPUT = 16
"""Outputs with fewer elements get their expected error steadied by that on the other sets."""


def judge_uncalibrated(
    reference: Sequence[Arrays],
    outputs: Sequence[Arrays],
    names: Sequence[str],
    reason: str,
    *,
    set_names: Sequence[str],
) -> Verdict:
    """A verdict where no envelope could be learnt: only the certain cases are called.

    Identical outputs are a match; another shape, a lost number, or an error of more than a quarter of what the
    output varies by is wrong; all between is not measured.

    Args:
        reference: By set, then by output.
        outputs: The lane's, in the same order.
        names: The outputs' names.
        reason: Why there is no envelope.
        set_names: The sets' names.
    """
    varies = [_variation([row[o] for row in reference]) for o in range(len(names))]
    judgements: list[OutputJudgement] = []
    for right, given, inputs in zip(reference, outputs, set_names, strict=True):
        for o, comparison in enumerate(compare(right, given, names)):
            if comparison.problem is not None or comparison.nonfinite_mismatch:
                label, why = WRONG, comparison.problem or f"{comparison.nonfinite_mismatch} elements are lost"
            elif comparison.identical:
                label, why = MATCH, ""
            elif (comparison.rms_diff or 0.0) > USABLE_ERROR * varies[o]:
                label, why = WRONG, f"the error is above {USABLE_ERROR:.0%} of what the output varies by"
            else:
                label, why = NOT_MEASURED, f"no expected error: {reason}"
            judgements.append(OutputJudgement(comparison.name, inputs, label, why, "fp32", None, comparison))
    order = (WRONG, NOT_MEASURED, MATCH)
    label = next((one for one in order if any(j.label == one for j in judgements)), NOT_MEASURED)
    sentences = {
        WRONG: next((f"wrong: output {j.name!r}: {j.reason}" for j in judgements if j.label == WRONG), ""),
        NOT_MEASURED: f"not measured: the outputs differ, and the expected error could not be learnt: {reason}",
        MATCH: "match: the outputs agree with the reference to the last bit",
    }
    return Verdict.of(label, sentences[label], judgements)


def judge(
    reference: Sequence[Arrays],
    outputs: Sequence[Arrays],
    names: Sequence[str],
    envelopes: Sequence[Envelope],
    *,
    set_names: Sequence[str],
    stress: Collection[str] = ("large",),
    scales: Sequence[float | None] = (),
) -> Verdict:
    """Judge a lane's outputs.

    Args:
        reference: By set, then by output: the right values.
        outputs: The lane's, in the same order.
        names: The outputs' names.
        envelopes: What is expected at fp32, and after it at the lane's own precision if that is another one.
        set_names: The sets' names.
        stress: Sets beyond what the model is made for: that the lane's precision cannot hold them is noted,
            and does not make the lane wrong.
        scales: The outputs' natural scales, from `natural_scales`; empty if not known.

    Raises:
        AssayError: The lengths do not agree.
    """
    if not len(reference) == len(outputs) == len(set_names) or not envelopes:
        raise AssayError("the verdict needs outputs and a reference for each set, and one envelope or more")
    levels = _levels(envelopes, reference)
    varies = [
        max(_variation([row[o] for row in reference]), 0.25 * ((scales[o] if scales else None) or 0.0))
        for o in range(len(names))
    ]
    judgements: list[OutputJudgement] = []
    for s, (right, given) in enumerate(zip(reference, outputs, strict=True)):
        for o, comparison in enumerate(compare(right, given, names)):
            noises = [(PRECISIONS[level.precision], level.draws, level.noise[s][o]) for level in levels]
            lost = envelopes[-1].noise[s][o].lost > 0
            judgement = _judge_one(right[o], given[o], noises, varies[o], set_names[s], comparison, lost)
            if _lost_to_stress(judgement, set_names[s] in stress):
                judgement = replace(
                    judgement, label=NOT_MEASURED, reason=f"beyond the range of {judgement.precision}"
                )
            judgements.append(replace(judgement, stress=set_names[s] in stress))
    blind = _blind_outputs(reference, names, levels, set_names, stress)
    return sum_up(judgements, blind)


def _lost_to_stress(judgement: OutputJudgement, stress: bool) -> bool:
    """True if a stress set is wrong only because the precision cannot hold it, as the envelope foresaw."""
    return stress and judgement.label == WRONG and judgement.reason.startswith(TOO_LITTLE)


def _judge_one(
    reference: NDArray[Any],
    output: NDArray[Any],
    noises: list[tuple[Precision, int, OutputNoise]],
    varies: float,
    inputs: str,
    comparison: Comparison,
    lost: bool,
) -> OutputJudgement:
    lowest = noises[-1][0].name

    def result(label: str, reason: str, precision: str, excess: Excess | None) -> OutputJudgement:
        return OutputJudgement(comparison.name, inputs, label, reason, precision, excess, comparison)

    if comparison.problem is not None:
        return result(WRONG, comparison.problem, lowest, None)
    excess = None
    for precision, draws, noise in noises:
        excess = measure(reference, output, noise, precision, draws)
        if comparison.nonfinite_mismatch:
            continue
        if excess.score <= 1.0:
            share = (comparison.rms_diff or 0.0) / varies if varies > 0 else 0.0
            if precision.name == "fp32" and share <= INVISIBLE_ERROR:
                return result(MATCH, "", precision.name, excess)
            if share <= USABLE_ERROR:
                reason = f"rounding of {precision.name}"
                if share > NOTABLE_ERROR:
                    reason += f", {share:.0%} of what the output varies by"
                return result(PRECISION_NOISE, reason, precision.name, excess)
            if precision.name == "fp32":
                # Two right kernels may differ as much here: nobody can say which of the two is right.
                return result(NOT_MEASURED, "fp32 rounding alone may change it beyond use", "fp32", excess)
            return result(WRONG, f"{TOO_LITTLE}: {precision.name} is not enough here", precision.name, excess)
    if comparison.nonfinite_mismatch:
        count = comparison.nonfinite_mismatch
        reason = f"{count} of {comparison.elements} elements are NaN or infinite and the reference's are not"
        if lost:
            reason = f"{TOO_LITTLE}: {lowest} overflows here ({reason})"
        return result(WRONG, reason, lowest, excess)
    if lost:
        return result(WRONG, f"{TOO_LITTLE}: {lowest} overflows here", lowest, excess)
    assert excess is not None
    return result(WRONG, f"beyond the expected error{excess.deciding[1]}", lowest, excess)


def _levels(envelopes: Sequence[Envelope], reference: Sequence[Arrays]) -> list[Envelope]:
    """The envelopes, with small outputs steadied across sets, and overflowing ones replaced.

    Where the coarser arithmetic overflowed, its draws say nothing of an arithmetic that does not; what fp32
    leaves there, in proportion, does.
    """
    first = envelopes[0]
    levels: list[Envelope] = []
    for envelope in envelopes:
        in_proportion = first.scaled(PRECISIONS[envelope.precision])
        rows = [
            [other if noise.lost else noise for noise, other in zip(row, others, strict=True)]
            for row, others in zip(envelope.noise, in_proportion.noise, strict=True)
        ]
        for o in range(len(rows[0]) if rows else 0):
            if 0 < reference[0][o].size < _SMALL_OUTPUT:
                _steady(rows, o, envelope.draws)
        levels.append(replace(envelope, noise=rows))
    return levels


def _steady(rows: list[list[OutputNoise]], output: int, draws: int) -> None:
    squares = [row[output].square.astype(np.float64) for row in rows]
    if len({square.shape for square in squares}) != 1:
        return
    pooled = np.mean(squares, axis=0)
    for row, square in zip(rows, squares, strict=True):
        steadied = (draws * square + 0.5 * draws * pooled) / (1.5 * draws)
        row[output] = replace(row[output], square=steadied.astype(np.float32))


def _variation(values: list[NDArray[Any]]) -> float:
    """What an output varies by, over its elements and over the sets: the largest of the sets' own.

    Measured from the mean of all; an output that hardly varies at all counts by a tenth of its size.
    """
    wide = [np.where(np.isfinite(v), v, 0.0).astype(np.float64) for v in values if v.size]
    if not wide:
        return 0.0
    middle = float(np.mean([v.mean() for v in wide]))
    spread = max(math.sqrt(float(np.square(v - middle).mean())) for v in wide)
    size = max(math.sqrt(mean_square(v)) for v in wide)
    return max(spread, 0.1 * size)


def _blind_outputs(
    reference: Sequence[Arrays],
    names: Sequence[str],
    levels: Sequence[Envelope],
    set_names: Sequence[str],
    stress: Collection[str],
) -> list[str]:
    """Outputs on which all zeros would be inside the envelope, on every set."""
    level = levels[-1]
    precision = PRECISIONS[level.precision]
    blind: list[str] = []
    for o, name in enumerate(names):
        seen = False
        for s, row in enumerate(reference):
            if set_names[s] in stress or not row[o].size:
                continue
            zeros = deviation(row[o], np.zeros_like(row[o]))
            error = float(np.square(np.where(np.isfinite(zeros), zeros, 0.0)).mean())
            expected = float(expected_square(row[o], level.noise[s][o], precision, level.draws).mean())
            seen = seen or error > K_OVERALL**2 * expected
        if not seen:
            blind.append(name)
    return blind
