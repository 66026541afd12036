"""Judgements in words: what is said of each output, and the verdict on a lane that sums them up.

The rule that makes them is in `assay.numerics.verdict`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from assay.numerics.compare import Comparison
from assay.numerics.excess import Excess

MATCH, PRECISION_NOISE, WRONG, NOT_MEASURED = "match", "precision_noise", "wrong", "not_measured"

TOO_LITTLE = "too little precision"
"""How the reason begins where a lane's own precision cannot hold a model."""


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

    @classmethod
    def of(cls, label: str, sentence: str, outputs: list[OutputJudgement]) -> Verdict:
        """A verdict with the largest differences of its outputs."""
        # A set beyond what the model is made for counts where it decided: "wrong" by a tiny figure explains
        # nothing.
        counted = [j for j in outputs if not j.stress or j.label == WRONG] or outputs
        figures = [judgement.comparison for judgement in counted]
        return cls(
            label,
            sentence,
            max_abs_diff=_largest([c.max_abs_diff for c in figures]),
            max_rel_diff=_largest([c.max_rel_diff for c in figures]),
            min_correlation=_smallest([c.correlation for c in figures]),
            outputs=outputs,
        )

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


def sum_up(judgements: list[OutputJudgement], blind: list[str]) -> Verdict:
    """The verdict on a lane from those on its outputs.

    Args:
        judgements: Every output on every set of inputs.
        blind: Names of outputs on which even all zeros would pass.
    """
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
    return replace(
        Verdict.of(label, sentence, judgements),
        times_expected=None if deciding is None or deciding.excess is None else _finite(deciding.excess.overall),
        precision=None if deciding is None else deciding.precision,
        notes=notes,
    )


def _severity(judgement: OutputJudgement) -> tuple[bool, float]:
    if judgement.excess is None or judgement.comparison.nonfinite_mismatch:
        return True, math.inf
    return False, judgement.excess.score


def _wrong_sentence(worst: OutputJudgement, wrong: list[OutputJudgement], all_: list[OutputJudgement]) -> str:
    sets, bad = {j.inputs for j in all_}, {j.inputs for j in wrong}
    where = "on every set of inputs" if bad == sets else f"on the set {worst.inputs!r}"
    if len(bad) > 1 and bad != sets:
        where = f"on {len(bad)} of {len(sets)} sets of inputs"
    if worst.excess is None or worst.comparison.nonfinite_mismatch or worst.reason.startswith(TOO_LITTLE):
        return f"wrong: output {worst.name!r} {where}: {worst.reason}"
    times, place = worst.excess.deciding
    return (
        f"wrong: output {worst.name!r} is {_spelled(times)} times further from the reference than "
        f"{worst.precision} arithmetic explains{place}, {where} ({_difference(worst.comparison)})"
    )


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
