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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.numerics.compare import Comparison, compare
from assay.numerics.envelope import Arrays, Envelope, OutputNoise, deviation
from assay.numerics.excess import K_ELEMENT, K_OVERALL, K_SLICE, Excess, expected_square, mean_square, measure
from assay.numerics.noise import PRECISIONS, Precision

MATCH, PRECISION_NOISE, WRONG, NOT_MEASURED = "match", "precision_noise", "wrong", "not_measured"

USABLE_ERROR = 0.25
"""An error above this share of what the output varies by (correlation below about 0.97) is never called noise."""

INVISIBLE_ERROR = 0.01
"""An error above this share of what the output varies by (40 dB) is never called a match."""

NOTABLE_ERROR = 0.1
"""Noise above this share (20 dB) is pointed out."""

_SMALL_OUTPUT = 16
"""Outputs with fewer elements get their expected error steadied by that on the other sets."""


@dataclass(frozen=True)
class OutputJudgement:
    """One output on one set of inputs.

    Attributes:
        name: The output's name.
        inputs: Name of the set of inputs.
        label: `match`, `precision_noise`, `wrong` or `not_measured`.
        reason: Why, in a few words; empty for a match.
        precision: The precision whose envelope decided.
        excess: The error in units of the expected one; None if it could not be measured.
        comparison: All figures.
        stress: True for a set beyond what the model is made for.
    """

    name: str
    inputs: str
    label: str
    reason: str
    precision: str
    excess: Excess | None
    comparison: Comparison
    stress: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The short figures, as JSON-ready values."""
        excess, figures = self.excess, self.comparison
        return {
            "label": self.label,
            "reason": self.reason,
            "precision": self.precision,
            "times_expected": None if excess is None else _finite(excess.overall),
            "times_expected_worst_slice": None if excess is None else _finite(excess.slice),
            "worst_slice": None if excess is None or excess.slice_at is None else list(excess.slice_at),
            "times_expected_worst_element": None if excess is None else _finite(excess.element),
            "max_abs_diff": figures.max_abs_diff,
            "max_rel_diff": figures.max_rel_diff,
            "correlation": figures.correlation,
            "nonfinite_mismatch": figures.nonfinite_mismatch,
        }


@dataclass(frozen=True)
class Verdict:
    """What the outputs of one lane say.

    Attributes:
        label: `match`, `precision_noise`, `wrong` or `not_measured`.
        sentence: The verdict in one plain sentence.
        times_expected: Root mean square error in units of the expected one, of the output that decided.
        precision: The precision of that expectation.
        max_abs_diff: Largest absolute difference over all outputs and sets; sets beyond what the model is made
            for count, here and below, only where they are wrong.
        max_rel_diff: Largest of the outputs' max |o - r| / max |r|.
        min_correlation: Lowest Pearson correlation of any output.
        outputs: Every output on every set.
        notes: What else a reader must know, a sentence each.
    """

    label: str
    sentence: str
    times_expected: float | None = None
    precision: str | None = None
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    min_correlation: float | None = None
    outputs: list[OutputJudgement] = field(default_factory=list[OutputJudgement])
    notes: list[str] = field(default_factory=list[str])

    @property
    def output_match(self) -> bool | None:
        """For records: False for wrong, True for match and precision noise, None for not measured."""
        return None if self.label == NOT_MEASURED else self.label != WRONG

    def to_dict(self) -> dict[str, Any]:
        """The whole verdict as JSON-ready values, for a record."""
        return {
            "label": self.label,
            "sentence": self.sentence,
            "times_expected": self.times_expected,
            "precision": self.precision,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "min_correlation": self.min_correlation,
            "outputs": self._by_output(),
            "notes": list(self.notes),
        }

    def _by_output(self) -> list[dict[str, Any]]:
        """Short figures of each output on every set, and all figures of its worst one."""
        result: list[dict[str, Any]] = []
        for name in dict.fromkeys(judgement.name for judgement in self.outputs):
            own = [judgement for judgement in self.outputs if judgement.name == name]
            worst = max(own, key=lambda j: (j.label == WRONG, j.label == PRECISION_NOISE, *_severity(j)))
            result.append(
                {
                    "name": name,
                    "label": worst.label,
                    "worst_inputs": worst.inputs,
                    "worst": worst.comparison.to_dict(),
                    "by_inputs": {judgement.inputs: judgement.to_dict() for judgement in own},
                }
            )
        return result

    def metrics(self) -> dict[str, float | str | None]:
        """The key scalars, flat, for a run's `metrics`."""
        return {
            "verdict": self.label,
            "verdict_sentence": self.sentence,
            "verdict_times_expected": self.times_expected,
            "verdict_precision": self.precision,
            "correlation": self.min_correlation,
        }


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
    return _with_figures(Verdict(label, sentences[label], outputs=judgements))


def _with_figures(verdict: Verdict) -> Verdict:
    # A set beyond what the model is made for counts where it decided: "wrong" by a tiny figure explains nothing.
    counted = [j for j in verdict.outputs if not j.stress or j.label == WRONG] or verdict.outputs
    figures = [judgement.comparison for judgement in counted]
    return replace(
        verdict,
        max_abs_diff=_largest([c.max_abs_diff for c in figures]),
        max_rel_diff=_largest([c.max_rel_diff for c in figures]),
        min_correlation=_smallest([c.correlation for c in figures]),
    )


def not_measured(sentence: str) -> Verdict:
    """A verdict for a lane whose outputs cannot be judged, and why."""
    return Verdict(NOT_MEASURED, sentence)


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
            if lost_to_stress(judgement, set_names[s] in stress):
                judgement = replace(
                    judgement, label=NOT_MEASURED, reason=f"beyond the range of {judgement.precision}"
                )
            judgements.append(replace(judgement, stress=set_names[s] in stress))
    blind = _blind_outputs(reference, names, levels, set_names, stress)
    return _summed_up(judgements, blind)


def lost_to_stress(judgement: OutputJudgement, stress: bool) -> bool:
    """True if a stress set is wrong only because the precision cannot hold it, as the envelope foresaw."""
    return stress and judgement.label == WRONG and judgement.reason.startswith(_TOO_LITTLE)


_TOO_LITTLE = "too little precision"


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
            return result(WRONG, f"{_TOO_LITTLE}: {precision.name} is not enough here", precision.name, excess)
    if comparison.nonfinite_mismatch:
        count = comparison.nonfinite_mismatch
        reason = f"{count} of {comparison.elements} elements are NaN or infinite and the reference's are not"
        if lost:
            reason = f"{_TOO_LITTLE}: {lowest} overflows here ({reason})"
        return result(WRONG, reason, lowest, excess)
    if lost:
        return result(WRONG, f"{_TOO_LITTLE}: {lowest} overflows here", lowest, excess)
    return result(WRONG, _where(excess), lowest, excess)


def _where(excess: Excess | None) -> str:
    """Which of the three measures is exceeded most, for the reader who looks for the fault."""
    if excess is None:
        return "not comparable"
    if excess.overall > K_OVERALL:
        return "beyond the expected error"
    if excess.slice_at is not None and excess.slice / K_SLICE >= excess.element / K_ELEMENT:
        axis, index = excess.slice_at
        return f"beyond the expected error in slice {index} of axis {axis}"
    return f"beyond the expected error at element {list(excess.element_at or ())}"


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


def _summed_up(judgements: list[OutputJudgement], blind: list[str]) -> Verdict:
    notes = [f"output {name!r} says nothing: all zeros would pass on these inputs" for name in blind]
    beyond = dict.fromkeys((j.inputs, j.reason) for j in judgements if j.label == NOT_MEASURED)
    notes += [f"the set {name!r} is not judged: {reason}" for name, reason in beyond]
    notes += [
        f"output {j.name!r} on the set {j.inputs!r}: {j.reason}"
        for j in judgements
        if j.label == PRECISION_NOISE and "varies" in j.reason
    ]
    wrong = [j for j in judgements if j.label == WRONG]
    seen = [j for j in judgements if j.label in (MATCH, PRECISION_NOISE) and j.name not in blind]
    noise = [j for j in seen if j.label == PRECISION_NOISE]
    if wrong:
        deciding = max(wrong, key=_severity)
        label, sentence = WRONG, _wrong_sentence(deciding, wrong, judgements)
    elif not seen:
        deciding, label = None, NOT_MEASURED
        sentence = "not measured: these inputs do not tell right from wrong; give real ones"
    elif noise:
        deciding = max(noise, key=_severity)
        label, sentence = PRECISION_NOISE, _noise_sentence(deciding)
    else:
        deciding = max(seen, key=_severity)
        label, sentence = MATCH, _match_sentence(deciding, len({j.name for j in judgements}))
    verdict = Verdict(
        label=label,
        sentence=sentence,
        times_expected=None if deciding is None or deciding.excess is None else _finite(deciding.excess.overall),
        precision=None if deciding is None else deciding.precision,
        outputs=judgements,
        notes=notes,
    )
    return _with_figures(verdict)


def _severity(judgement: OutputJudgement) -> tuple[bool, float]:
    if judgement.excess is None or judgement.comparison.nonfinite_mismatch:
        return True, math.inf
    return False, judgement.excess.score


def _wrong_sentence(worst: OutputJudgement, wrong: list[OutputJudgement], all_: list[OutputJudgement]) -> str:
    sets, bad = {j.inputs for j in all_}, {j.inputs for j in wrong}
    where = "on every set of inputs" if bad == sets else f"on the set {worst.inputs!r}"
    if len(bad) > 1 and bad != sets:
        where = f"on {len(bad)} of {len(sets)} sets of inputs"
    if worst.excess is None or worst.comparison.nonfinite_mismatch or worst.reason.startswith(_TOO_LITTLE):
        return f"wrong: output {worst.name!r} {where}: {worst.reason}"
    times, place = _worst_times(worst.excess)
    return (
        f"wrong: output {worst.name!r} is {_spelled(times)} times further from the reference than "
        f"{worst.precision} arithmetic explains{place}, {where} ({_difference(worst.comparison)})"
    )


def _worst_times(excess: Excess) -> tuple[float, str]:
    if excess.overall > K_OVERALL:
        return excess.overall, ""
    if excess.slice_at is not None and excess.slice / K_SLICE >= excess.element / K_ELEMENT:
        return excess.slice, f" in slice {excess.slice_at[1]} of axis {excess.slice_at[0]}"
    return excess.element, f" at element {list(excess.element_at or ())}"


def _noise_sentence(worst: OutputJudgement) -> str:
    assert worst.excess is not None
    return (
        f"precision noise: {_spelled(worst.excess.overall)} times the error expected of {worst.precision} "
        f"arithmetic in output {worst.name!r} ({_difference(worst.comparison)})"
    )


def _match_sentence(worst: OutputJudgement, count: int) -> str:
    which = "the output agrees" if count == 1 else f"all {count} outputs agree"
    if worst.comparison.identical:
        return f"match: {which} with the reference to the last bit"
    assert worst.excess is not None
    return (
        f"match: {which} with the reference to fp32 rounding, {_spelled(worst.excess.overall)} times the "
        f"expected error at most ({_difference(worst.comparison)})"
    )


def _difference(comparison: Comparison) -> str:
    largest, size = comparison.max_abs_diff, comparison.reference_max_abs
    if largest is None or size is None:
        return "no finite element"
    return f"largest difference {largest:.3g}, values up to {size:.3g}"


def _spelled(times: float) -> str:
    return "infinitely many" if math.isinf(times) else f"{times:.2g}" if times < 10 else f"{times:,.0f}"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _largest(values: list[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _smallest(values: list[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)
