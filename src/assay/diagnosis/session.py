"""Runs pieces of one subject on one lane, judges them, and remembers what was judged before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay import graph
from assay.diagnosis.journal import Journal, Step, digest
from assay.diagnosis.launch import Launcher, Trial, TrialResult
from assay.diagnosis.pieces import Piece, carve
from assay.diagnosis.subject import Reference, Subject
from assay.errors import AssayError
from assay.lanes.job import Json
from assay.records.privacy import scrub

Array = np.ndarray[Any, np.dtype[Any]]

SEQUENCE = (0, 1, 0)
"""The set that shows the fault, another one, the first again: what stays from a run before shows."""


@dataclass(frozen=True)
class Limits:
    """How far each tensor of a lane may be from the reference's value.

    Attributes:
        expected: Tensor index -> the largest difference that the lane's arithmetic explains there.
        margin: How many times that is let pass.
    """

    expected: Mapping[int, float]
    margin: float = 8.0

    def of(self, tensor: int, right: Array) -> float:
        """The largest absolute difference that counts as equal, in the tensor's own unit."""
        if right.dtype.kind in "iu":
            floor = 1.0 if right.dtype.itemsize == 1 else 0.0
        elif right.dtype.kind == "f":
            largest = np.abs(right, dtype=np.float64)[np.isfinite(right)].max(initial=0.0)
            floor = float(largest) * 1e-6
        else:
            floor = 0.0
        return max(self.margin * self.expected.get(tensor, 0.0), floor)


@dataclass(frozen=True)
class Judged:
    """How far the outputs of one inference are from what is right.

    Attributes:
        worst: Largest difference over its limit; above 1 is wrong. Infinite for NaN and the like.
        tensor: Index of the output that is worst, in the whole graph; None if there was none to compare.
        max_abs_diff: Its largest absolute difference; None if it is not finite.
    """

    worst: float
    tensor: int | None
    max_abs_diff: float | None


def judge(outputs: Sequence[Array], tensors: Sequence[int], right: Mapping[int, Array], limits: Limits) -> Judged:
    """Compare outputs with the reference's values of the same tensors."""
    worst = Judged(0.0, None, None)
    for tensor, output in zip(tensors, outputs, strict=True):
        if tensor not in right:
            continue
        expected = right[tensor]
        difference = difference_of(expected, output)
        limit = limits.of(tensor, expected)
        ratio = difference / limit if limit > 0 else (np.inf if difference > 0 else 0.0)
        if worst.tensor is None or ratio > worst.worst:
            worst = Judged(float(ratio), tensor, float(difference) if np.isfinite(difference) else None)
    return worst


def difference_of(right: Array, wrong: Array) -> float:
    """Largest absolute difference; infinite where shapes differ, or one is NaN or infinite and the other not."""
    if right.shape != wrong.shape:
        return np.inf
    if right.size == 0:
        return 0.0
    if right.dtype.kind not in "fiu" or wrong.dtype.kind not in "fiu":
        return float(not np.array_equal(right, wrong))
    left, other = right.astype(np.float64), wrong.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(left - other)
    same = (left == other) | (np.isnan(left) & np.isnan(other))
    gap[same] = 0.0
    return float(np.inf) if np.isnan(gap).any() else float(gap.max())


@dataclass(frozen=True)
class Candidate:
    """A piece to be run.

    Attributes:
        what: What it is for, in words.
        piece: The piece.
        options: Lane options beside the session's.
        right: The right values by set, where they are not those of the session's reference.
    """

    what: str
    piece: Piece
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])
    right: Sequence[Mapping[int, Array]] | None = None


@dataclass
class Session:
    """One subject on one lane, with the two input sets that the pieces are run on.

    Attributes:
        subject: The subject.
        reference: The reference's values.
        launcher: Of the lane.
        journal: Steps that were done.
        limits: How far tensors may be off.
        sets: Positions of the two input sets: the one that shows the fault, and another.
        options: Lane options.
        environment: What the verdicts depend on beside the pieces: lane, adapter, versions.
        on_step: Called after every round.
    """

    subject: Subject
    reference: Reference
    launcher: Launcher
    journal: Journal
    limits: Limits
    sets: tuple[int, int]
    options: dict[str, Json]
    environment: str
    on_step: Callable[[list[Step]], None] = lambda steps: None

    @property
    def values(self) -> list[Mapping[int, Array]]:
        """The reference's values for the two sets."""
        return [self.reference.values[index] for index in self.sets]

    def carve(self, nodes: Sequence[int]) -> Piece:
        """Cut nodes out, fed with the reference's values of the set that shows the fault."""
        return carve(self.subject.model, self.subject.anatomy, nodes, self.values[0])

    def nodes(self, what: str, candidates: Sequence[Sequence[int]]) -> list[Step]:
        """Run sets of nodes as pieces, in one round; a set that cannot be cut is skipped."""
        steps: list[Step | None] = []
        made: list[Candidate] = []
        for nodes in candidates:
            try:
                made.append(Candidate(what, self.carve(nodes)))
                steps.append(None)
            except AssayError as error:
                steps.append(Step("", what, tuple(nodes), "skipped", error=scrub(str(error))))
        done = iter(self.run(made))
        return [next(done) if step is None else step for step in steps]

    def run(self, candidates: Sequence[Candidate]) -> list[Step]:
        """Run pieces in one round and judge them; those that the journal knows are not run again."""
        prepared = [self._prepare(candidate) for candidate in candidates]
        steps: dict[str, Step] = {}
        waiting: dict[str, tuple[Candidate, Trial]] = {}
        for candidate, (key, trial) in zip(candidates, prepared, strict=True):
            known = self.journal.find(key)
            if known is not None:
                steps[key] = known
            elif key not in waiting:
                waiting[key] = (candidate, trial)
        results = self.launcher.run([trial for _, trial in waiting.values()]) if waiting else []
        for (key, (candidate, _)), result in zip(waiting.items(), results, strict=True):
            steps[key] = replace(self._step(candidate, result), key=key, launch=self.launcher.launches)
            self.journal.add(steps[key])
        done = [replace(steps[key], what=c.what) for c, (key, _) in zip(candidates, prepared, strict=True)]
        self.on_step(done)
        return done

    def trial(self, candidate: Candidate) -> Trial:
        """A piece as a trial, with its inputs."""
        return self._prepare(candidate)[1]

    def _prepare(self, candidate: Candidate) -> tuple[str, Trial]:
        piece = candidate.piece
        right = candidate.right or self.values
        sets = [[values[tensor] for tensor in piece.inputs] for values in right]
        inputs, outputs = piece.specs()
        options = {**self.options, **candidate.options}
        data = graph.write(piece.model)
        arrays = [array for arrays in sets for array in arrays]
        key = digest(data, self.launcher.lane, repr(sorted(options.items())), self.environment, *arrays)
        return key, Trial(candidate.what, data, inputs, outputs, sets, SEQUENCE, options=options)

    def _step(self, candidate: Candidate, result: TrialResult) -> Step:
        piece = candidate.piece
        facts = result.facts
        shared: dict[str, Any] = {
            "key": "",
            "what": candidate.what,
            "nodes": piece.nodes,
            "delegated": facts.delegated_ops,
            "total": facts.total_ops,
        }
        if result.failure is not None:
            return Step(verdict="failed", failure=result.failure.value, error=result.error, **shared)
        right = candidate.right or self.values
        judged = [
            judge(result.outputs(position), piece.outputs, right[index], self.limits)
            for position, index in enumerate(SEQUENCE)
        ]
        worst = max(judged, key=lambda each: each.worst)
        late = judged[0].worst <= 1 < worst.worst
        names = self.subject.anatomy.subgraph.tensors
        return Step(
            verdict="wrong" if worst.worst > 1 else "right",
            worst=worst.worst if np.isfinite(worst.worst) else None,
            tensor=None if worst.tensor is None else names[worst.tensor].name,
            max_abs_diff=worst.max_abs_diff,
            error="right in the first inference, wrong later" if late else None,
            **shared,
        )
