"""Judges what lanes returned for one signature: reference, expected errors, consistency, source.

The expected errors cost inferences on the CPU, so they are learnt only when a lane's outputs differ from the
reference's, and for the lane's own precision only when fp32 rounding does not explain the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.graph import Model, Signature
from assay.numerics.consistency import CONSISTENT, Consistency, check_consistency
from assay.numerics.envelope import DRAWS, Arrays, Envelope, learn
from assay.numerics.inputs import KINDS, make_inputs
from assay.numerics.noise import natural_scales
from assay.numerics.tasks import guess_task, task_metrics
from assay.numerics.user_inputs import InputSet
from assay.numerics.verdict import MATCH, WRONG, Verdict, judge, judge_uncalibrated

_MIN_DRAWS = 3
_LEARNING_MS = 60_000.0
"""Time that one envelope may take; a slow model gets fewer draws."""
_NOISE_COST = 5.0
"""A noisy model takes about this many times as long as the model itself."""

NumbersRunner = Callable[[str, Path, list[Arrays]], list[Arrays]]
"""Runs a model file on a lane for its numbers only, one loaded model for all sets.

It takes the lane's name, the file and the sets of inputs, and raises AssayError where the lane fails."""


def seeded_sets(
    model: Model | None,
    signature: Signature,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    kinds: Sequence[str] = KINDS,
) -> list[InputSet]:
    """Seeded inputs of each kind; kinds that come out the same as an earlier one are left out.

    A model of only index inputs, say, has the same `zeros` and `small` sets where its table is short.
    """
    sets: list[InputSet] = []
    seen: set[tuple[bytes, ...]] = set()
    for kind in kinds:
        arrays = make_inputs(model, signature, shapes, kind, seed)
        content = tuple(array.tobytes() for array in arrays)
        if content not in seen:
            seen.add(content)
            sets.append(InputSet(kind, arrays))
    return sets


@dataclass(frozen=True)
class Judged:
    """What is said of one lane's outputs.

    Attributes:
        reference: The lane it was compared with; None for the reference itself.
        verdict: On the numbers; None for the reference itself.
        consistency: On repeated inferences; None if the lane gave too few.
        source: How the file's reference outputs stand to the source's; None without a source.
        tasks: What the differences mean for the task, the worst over all sets: output -> figure -> value.
        envelopes: The expected errors that were used, by precision.
    """

    reference: str | None
    verdict: Verdict | None
    consistency: Consistency | None
    source: Verdict | None = None
    tasks: dict[str, dict[str, float | None]] = field(default_factory=dict[str, dict[str, float | None]])
    envelopes: tuple[dict[str, Any], ...] = ()

    @property
    def output_match(self) -> bool | None:
        """False where the numbers are wrong, True where they are right or noise, None where not measured."""
        if self.source is not None and self.source.label == WRONG:
            return False
        return None if self.verdict is None else self.verdict.output_match

    def to_dict(self) -> dict[str, Any] | None:
        """For the record's `verdict`; None if nothing was judged."""
        if self.verdict is None and self.consistency is None and self.source is None:
            return None
        return {
            **({} if self.verdict is None else self.verdict.to_dict()),
            "compared_with": self.reference,
            "consistency": None if self.consistency is None else self.consistency.to_dict(),
            "source": None if self.source is None else self.source.to_dict(),
            "tasks": self.tasks,
            "envelopes": list(self.envelopes),
        }

    def metrics(self) -> dict[str, float | int | str | bool | None]:
        """Flat scalars for the run."""
        figures: dict[str, float | int | str | bool | None] = {}
        if self.verdict is not None:
            figures |= {"compared_with": self.reference, **self.verdict.metrics()}
        if self.consistency is not None:
            figures["consistency"] = self.consistency.label
        if self.source is not None:
            figures |= {"source_verdict": self.source.label, "source_verdict_sentence": self.source.sentence}
        for name, value in self._worst_task_figures().items():
            figures[name] = value
        return figures

    def _worst_task_figures(self) -> dict[str, float]:
        worst: dict[str, float] = {}
        for figures in self.tasks.values():
            for name, value in figures.items():
                if value is not None:
                    pick = max if "error" in name else min
                    worst[name] = pick(worst.get(name, value), value)
        return worst


class Judge:
    """Judges all lanes that ran one signature of one model on the same sets of inputs.

    Args:
        model: The model's graph, `path` set; None where there is none, and no error to expect can be learnt.
        signature: The signature that is run.
        sets: The sets of inputs, in the order that a job's `sequence` counts them.
        run_numbers: See `NumbersRunner`.
        calibration: The lane on which the model with noise in it is run; None takes the reference's.
        folder: Where files may be written.
        seed: Of the noise.
        resized: True if input shapes are not those in the file.
        source: The source's outputs for each set, if there is a source.
    """

    def __init__(
        self,
        model: Model | None,
        signature: Signature,
        sets: Sequence[InputSet],
        run_numbers: NumbersRunner,
        folder: Path,
        *,
        calibration: str | None = None,
        seed: int = 0,
        resized: bool = False,
        source: list[Arrays] | None = None,
    ) -> None:
        self.model, self.signature, self.sets = model, signature, list(sets)
        self.run_numbers, self.folder, self.calibration = run_numbers, folder, calibration
        self.seed, self.resized, self.source = seed, resized, source
        self.names = [entry.name for entry in signature.outputs]
        self.set_names = [one.name for one in sets]
        self.reference: tuple[str, list[Arrays]] | None = None
        self.inference_ms: float | None = None
        self._envelopes: dict[str, Envelope | str] = {}
        self._base: tuple[str, list[Arrays]] | None = None
        self._source_verdict: Verdict | None = None

    def set_reference(
        self, lane: str, sequence: Sequence[int], outputs: Sequence[Arrays], inference_ms: float | None
    ) -> None:
        """Take a lane's outputs as what the others are compared with.

        Args:
            lane: Its name.
            sequence: Index of the set at each position.
            outputs: By position in the sequence.
            inference_ms: How long an inference took, which decides how many draws are made.
        """
        first = self._occurrences(sequence, outputs, last=False)
        if first is not None:
            self.reference = lane, first
            self.inference_ms = inference_ms

    def judge(
        self,
        lane: str,
        precision: str,
        sequence: Sequence[int],
        outputs: Sequence[Arrays],
        *,
        elsewhere: bool = False,
    ) -> Judged:
        """Judge one lane.

        Args:
            lane: Its name.
            elsewhere: Whether it ran on another device than the reference, so that it is compared with the lane of
                the same name too.
            precision: `Lane.precision`: the arithmetic it may use for a float32 model.
            sequence: Index of the set at each position.
            outputs: By position, as far as the lane came.
        """
        consistency = check_consistency(sequence, outputs, self.names)
        source = self._judge_source()
        if self.reference is None or (self.reference[0] == lane and not elsewhere):
            return Judged(None, None, consistency, source)
        reference_lane, reference = self.reference
        first = self._occurrences(sequence, outputs, last=False)
        if first is None:
            return Judged(reference_lane, None, consistency, source)
        verdict, used = self._verdict(reference, first, precision)
        deciding = first
        if consistency.label != CONSISTENT:
            # Right at first and wrong later is wrong: the later answers are what a user gets.
            last = self._occurrences(sequence, outputs, last=True)
            later, used_later = self._verdict(reference, last or first, precision)
            if _rank(later) > _rank(verdict):
                verdict, used, deciding = later, used_later, last or first
            verdict = _with_consistency(verdict, consistency)
        return Judged(
            reference=reference_lane,
            verdict=verdict,
            consistency=consistency,
            source=source,
            tasks=self._tasks(reference, deciding),
            envelopes=tuple(self._described(envelope) for envelope in used),
        )

    def _occurrences(
        self, sequence: Sequence[int], outputs: Sequence[Arrays], *, last: bool
    ) -> list[Arrays] | None:
        """The outputs of each set, the first or the last time it was run; None if one was not run."""
        found: dict[int, Arrays] = {}
        for index, arrays in zip(sequence, outputs, strict=False):
            if last or index not in found:
                found[index] = arrays
        if set(found) != set(range(len(self.sets))):
            return None
        return [found[index] for index in range(len(self.sets))]

    def _verdict(
        self, reference: list[Arrays], outputs: list[Arrays], precision: str
    ) -> tuple[Verdict, list[Envelope]]:
        if self.model is None:
            reason = "the model's format has no graph to learn the expected error from"
            return judge_uncalibrated(reference, outputs, self.names, reason, set_names=self.set_names), []
        scales = natural_scales(self.model, self.signature)
        levels: list[Envelope] = []
        verdict: Verdict | None = None
        for level in dict.fromkeys(("fp32", precision)):
            envelope = self._envelope(level)
            if isinstance(envelope, str):
                break
            levels.append(envelope)
            verdict = judge(reference, outputs, self.names, levels, set_names=self.set_names, scales=scales)
            if verdict.label == MATCH:
                break
        if verdict is None:
            reason = str(self._envelopes["fp32"])
            return judge_uncalibrated(reference, outputs, self.names, reason, set_names=self.set_names), []
        return verdict, levels

    def _envelope(self, precision: str) -> Envelope | str:
        """The expected errors at a precision, or why they could not be learnt."""
        if precision not in self._envelopes:
            try:
                self._envelopes[precision] = self._learn(precision)
            except AssayError as error:
                self._envelopes[precision] = str(error)
        return self._envelopes[precision]

    def _learn(self, precision: str) -> Envelope:
        assert self.model is not None
        lane, base = self._calibration()
        return learn(
            self.model,
            lambda path, sets: self.run_numbers(lane, path, sets),
            [one.arrays for one in self.sets],
            base,
            self.folder,
            precision=precision,
            draws=self._draws(),
            seed=self.seed,
            resized=self.resized,
        )

    def _calibration(self) -> tuple[str, list[Arrays]]:
        """The lane that the noise runs on, and what it gives without noise."""
        if self._base is None:
            assert self.reference is not None and self.model is not None and self.model.path is not None
            self._base = self.reference
            if self.calibration not in (None, self.reference[0]):
                try:
                    arrays = [one.arrays for one in self.sets]
                    self._base = self.calibration, self.run_numbers(self.calibration, self.model.path, arrays)
                except AssayError:
                    pass  # The reference lane itself then carries the noise, slower.
        return self._base

    def _draws(self) -> int:
        if not self.inference_ms:
            return DRAWS
        affordable = _LEARNING_MS / (self.inference_ms * _NOISE_COST * max(len(self.sets), 1))
        return int(min(DRAWS, max(_MIN_DRAWS, affordable)))

    def _judge_source(self) -> Verdict | None:
        """The reference lane's outputs beside the source's: is the file what it was converted from?"""
        if self.source is None or self.reference is None:
            return None
        if self._source_verdict is None:
            self._source_verdict, _ = self._verdict(self.source, self.reference[1], self._stored_precision())
        return self._source_verdict

    def _stored_precision(self) -> str:
        """The precision that the file's weights were rounded to."""
        if self.model is None:
            return "fp32"
        tensors = [tensor for subgraph in self.model.subgraphs for tensor in subgraph.tensors]
        dtypes = {tensor.dtype for tensor in tensors if tensor.is_constant}
        if dtypes & {"int8", "uint8", "int4"}:
            return "int8"
        return "fp16" if "float16" in dtypes else "fp32"

    def _tasks(self, reference: list[Arrays], outputs: list[Arrays]) -> dict[str, dict[str, float | None]]:
        found: dict[str, dict[str, float | None]] = {}
        for o, name in enumerate(self.names):
            task = guess_task(name, reference[0][o].shape)
            worst: dict[str, float | None] = {}
            for right, given in zip(reference, outputs, strict=True):
                if task is None or right[o].shape != given[o].shape:
                    continue
                for figure, value in task_metrics(right[o], given[o], task).items():
                    worst[figure] = _worse(figure, worst.get(figure), value)
            if worst:
                found[name] = worst
        return found

    def _described(self, envelope: Envelope) -> dict[str, Any]:
        """An envelope's figures for the record, without the elements."""
        return {
            "precision": envelope.precision,
            "draws": envelope.draws,
            "lane": self._base[0] if self._base is not None else None,
            "expected": {
                name: {
                    inputs: {
                        "rms": _finite(row[o].rms),
                        "max_abs": _finite(row[o].max_abs),
                        "lost_share": row[o].lost,
                    }
                    for inputs, row in zip(self.set_names, envelope.noise, strict=True)
                }
                for o, name in enumerate(self.names)
            },
        }


def _rank(verdict: Verdict) -> int:
    return (MATCH, "precision_noise", "not_measured", WRONG).index(verdict.label)


def _with_consistency(verdict: Verdict, consistency: Consistency) -> Verdict:
    return replace(verdict, sentence=f"{verdict.sentence}; {consistency.sentence}")


def _worse(figure: str, known: float | None, value: float | None) -> float | None:
    if value is None or known is None:
        return known if value is None else value
    return max(known, value) if "error" in figure else min(known, value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
