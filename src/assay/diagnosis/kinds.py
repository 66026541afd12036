"""What kind of fault it is, told by experiments on the region: each kind is named with what shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from assay.diagnosis.clues import Clue, Seen, look
from assay.diagnosis.journal import Step
from assay.diagnosis.launch import Launcher, Trial, TrialResult
from assay.diagnosis.locate import Located
from assay.diagnosis.pieces import Piece
from assay.diagnosis.session import SEQUENCE, Candidate, Session, difference_of
from assay.graph.rewrites import REWRITES, apply
from assay.lanes import registry
from assay.numerics.faults import FP16_MAX

Array = np.ndarray[Any, np.dtype[Any]]


class Kind(StrEnum):
    """Kinds of faults."""

    PRECISION = "precision"
    OVERFLOW = "overflow"
    LAYOUT = "layout_or_rank"
    BROADCAST = "broadcast"
    STALE = "stale_state"
    QUANTIZATION = "quantization"
    CONVERTER = "converter"
    NON_DETERMINISM = "non_determinism"
    HAND_OVER = "hand_over"
    FUSION = "fusion"
    KERNEL = "wrong_kernel"
    FAILURE = "failure"


MEANING: dict[Kind, str] = {
    Kind.PRECISION: "the lane's shorter arithmetic is not enough here: with fp32 the fault is gone",
    Kind.OVERFLOW: "values leave the range of float16 (65504)",
    Kind.LAYOUT: "the axes are read in the wrong order, or the rank without a batch dimension is handled wrongly",
    Kind.BROADCAST: "an operand that should be repeated along an axis is not",
    Kind.STALE: "a value of an earlier inference comes back",
    Kind.QUANTIZATION: "the integer arithmetic is wrong",
    Kind.CONVERTER: "the file itself differs from its source: the reference is wrong too",
    Kind.NON_DETERMINISM: "the same input does not give the same output",
    Kind.HAND_OVER: "a value is lost where one part of the runtime hands it to another",
    Kind.FUSION: "the nodes are right one by one and wrong together",
    Kind.KERNEL: "the op is computed wrongly, alone and with fp32",
    Kind.FAILURE: "the lane fails on these nodes",
}


@dataclass(frozen=True)
class Diagnosed:
    """A kind of fault and what shows it.

    Attributes:
        kind: The kind.
        because: Observations, in sentences.
        also: Further kinds that the observations show.
        clues: What the wrong values look like.
        cures: Names of graph rewrites with which the region is right.
    """

    kind: Kind
    because: tuple[str, ...]
    also: tuple[Kind, ...] = ()
    clues: tuple[Seen, ...] = ()
    cures: tuple[str, ...] = ()


@dataclass
class _Findings:
    """Kinds in the order of how much they explain, with the sentences that show them."""

    because: dict[Kind, list[str]] = field(default_factory=dict[Kind, list[str]])

    def add(self, kind: Kind, sentence: str) -> None:
        self.because.setdefault(kind, []).append(sentence)


def classify(session: Session, located: Located, *, twin: Launcher | None) -> Diagnosed:
    """Find the kind of a located fault.

    Args:
        session: Where it was located.
        located: The region.
        twin: Launcher of the CPU lane that serves the rest of a partitioned graph; None if the lane is a CPU's.

    Returns:
        The kind that explains most, with all observations.
    """
    if located.step.verdict == "failed":
        sentence = f"the lane fails on them alone: {located.step.error}"
        return Diagnosed(Kind.FAILURE, (sentence,))
    piece = session.carve(located.nodes)
    portraits = _portraits(session, piece)
    found = _Findings()
    clues = _values(session, piece, portraits, found)
    cures = _experiments(session, piece, portraits[0], found)
    _partition(session, located, piece, portraits[0], twin, found)
    _rest(session, located, piece, found)
    kinds = sorted(found.because, key=_ORDER.index)
    because = [sentence for kind in kinds for sentence in found.because[kind]]
    return Diagnosed(kinds[0], tuple(because), tuple(kinds[1:]), tuple(clues), tuple(cures))


_LEFT_OUT = "leaving out any one of these nodes, its result given instead, makes the fault go away"

_ORDER = [
    Kind.STALE,
    Kind.HAND_OVER,
    Kind.OVERFLOW,
    Kind.PRECISION,
    Kind.LAYOUT,
    Kind.BROADCAST,
    Kind.NON_DETERMINISM,
    Kind.FUSION,
    Kind.QUANTIZATION,
    Kind.KERNEL,
]


@dataclass(frozen=True)
class _Portrait:
    """One run of the region: what came out, inference by inference."""

    outputs: list[list[Array]]
    result: TrialResult


def _portraits(session: Session, piece: Piece) -> list[_Portrait]:
    """The region run twice in one process."""
    trial: Trial = session.trial(Candidate("a closer look", piece))
    results = session.launcher.run([trial, trial])
    return [
        _Portrait([result.outputs(position) for position in range(len(result.files))], result)
        for result in results
    ]


def _values(session: Session, piece: Piece, portraits: Sequence[_Portrait], found: _Findings) -> list[Seen]:
    """What the wrong values look like, and whether they come again."""
    first = portraits[0].outputs
    if len(first) < len(SEQUENCE):
        return []
    right, other = session.values
    clues: list[Seen] = []
    for position, tensor in enumerate(piece.outputs):
        limit = session.limits.of(tensor, right[tensor])
        wrongs = [outputs[position] for outputs in first]
        if difference_of(right[tensor], wrongs[0]) <= limit < difference_of(right[tensor], wrongs[2]):
            found.add(Kind.STALE, "the first inference is right; the same input is wrong after another one")
        clues += look(right[tensor], wrongs[0], limit)
        clues += look(other[tensor], wrongs[1], limit, previous=right[tensor])
        again = [each.outputs[0][position] for each in portraits if each.outputs]
        repeats = [difference_of(again[0], each) for each in [wrongs[2], *again[1:]]]
        stale = Kind.STALE in found.because
        if max(repeats) > limit and not stale:
            found.add(Kind.NON_DETERMINISM, "the same input gives different outputs from run to run")
    seen = list(dict.fromkeys(clues))
    for clue in seen:
        if clue.clue is Clue.PREVIOUS_RUN:
            found.add(Kind.STALE, clue.sentence)
        elif clue.clue is Clue.AXES_PERMUTED:
            found.add(Kind.LAYOUT, clue.sentence)
        elif clue.clue is Clue.ROWS_REPEATED and _broadcasts(session, piece):
            found.add(Kind.BROADCAST, clue.sentence)
        elif clue.clue is Clue.SATURATED:
            found.add(Kind.OVERFLOW, clue.sentence)
    return seen[:4]


def _broadcasts(session: Session, piece: Piece) -> bool:
    graph = piece.model.subgraphs[0]
    for node in graph.nodes:
        shapes = {graph.tensors[tensor].shape for tensor in node.inputs if tensor >= 0}
        if node.op in ("ADD", "SUB", "MUL", "DIV", "BROADCAST_TO", "MAXIMUM", "MINIMUM") and len(shapes) > 1:
            return True
    return False


def _experiments(session: Session, piece: Piece, portrait: _Portrait, found: _Findings) -> list[str]:
    """Changes to the region or to the lane that should make no difference, and do."""
    candidates: list[Candidate] = []
    labels: list[str] = []
    if registry.find(session.launcher.lane).precision == "fp16" or _has_option(session, "enforce_f32"):
        candidates.append(Candidate("with fp32", piece, {"enforce_f32": True}))
        labels.append("enforce_f32")
    for rewrite in REWRITES:
        model = apply(rewrite, piece.model)
        if model is not None:
            changed = Piece(model, piece.nodes, piece.inputs, piece.outputs)
            candidates.append(Candidate(f"with {rewrite.name}", changed))
            labels.append(rewrite.name)
    steps = session.run(candidates) if candidates else []
    cures = [label for label, step in zip(labels, steps, strict=True) if step.verdict == "right"]
    if "enforce_f32" in cures:
        found.add(*_shorter(session, piece, portrait))
    if "keep-batch" in cures:
        found.add(Kind.LAYOUT, "with a leading batch dimension (rank 4 instead of 3) the same arithmetic is right")
    if "expand-broadcast" in cures:
        found.add(Kind.BROADCAST, "with the operand repeated to full size beforehand the same arithmetic is right")
    if "part-neighbours" in cures:
        found.add(Kind.FUSION, "with a RESHAPE between them the same nodes are right")
    if "split-activation" in cures:
        found.add(Kind.FUSION, "with the fused activation as a node of its own the result is right")
    return [cure for cure in cures if cure != "enforce_f32"]


def _has_option(session: Session, name: str) -> bool:
    """Whether a lane's faults depend on an option: the fault-injecting lane says so."""
    return any(fault.get("cured_by") == name for fault in session.options.get("faults", []))


def _shorter(session: Session, piece: Piece, portrait: _Portrait) -> tuple[Kind, str]:
    """Precision or overflow: both are gone with fp32."""
    largest = _largest(session, piece)
    broken = any(not np.isfinite(array).all() for arrays in portrait.outputs for array in arrays)
    if largest > FP16_MAX or broken:
        sentence = f"with fp32 it is right; values in the region reach {largest:.6g}, float16 ends at 65504"
        return Kind.OVERFLOW, sentence
    return Kind.PRECISION, "with fp32 (enforce_f32) the same nodes are right"


def _largest(session: Session, piece: Piece) -> float:
    """The largest magnitude that the reference sees in the region, squares of LayerNorm and the like included."""
    values: Mapping[int, Array] = session.values[0]
    graph = session.subject.anatomy.subgraph
    tensors = {t for node in piece.nodes for t in (*graph.nodes[node].inputs, *graph.nodes[node].outputs)}
    found = [values[t] for t in tensors if t >= 0 and t in values]
    return max(
        (float(np.abs(v.astype(np.float64)).max(initial=0)) for v in found if v.dtype.kind == "f"), default=0.0
    )


def _partition(
    session: Session,
    located: Located,
    piece: Piece,
    portrait: _Portrait,
    twin: Launcher | None,
    found: _Findings,
) -> None:
    """Whether the region is wrong because it is served by two parts of the runtime."""
    facts = portrait.result.facts
    if len(piece.nodes) < 2:
        return
    if facts.delegated_ops and facts.total_ops and facts.delegated_ops < facts.total_ops and not facts.refusals:
        found.add(Kind.HAND_OVER, f"the delegate takes {facts.delegated_ops} of these {facts.total_ops} nodes")
        found.add(Kind.HAND_OVER, _LEFT_OUT)
    if twin is None or not facts.refusals:
        return
    label = session.subject.anatomy.label
    refused = {refusal.op for refusal in facts.refusals}
    graph = session.subject.anatomy.subgraph
    here = [node for node in piece.nodes if graph.nodes[node].op in refused]
    there = [node for node in piece.nodes if node not in here]
    if not here or not there:
        return
    (result,) = twin.run([session.trial(Candidate("on the CPU alone", piece))])
    right = result.failure is None and not _wrong(session, piece, result)
    between = f"on the CPU: {', '.join(map(label, here))}; on the accelerator: {', '.join(map(label, there))}"
    found.add(Kind.HAND_OVER, f"the accelerator refuses a part of it: {between}")
    if right:
        found.add(Kind.HAND_OVER, f"{twin.lane} alone computes the same nodes right")
    found.add(Kind.HAND_OVER, _LEFT_OUT)
    _tap(session, located, piece, here, found)


def _tap(session: Session, located: Located, piece: Piece, here: list[int], found: _Findings) -> None:
    """Read out what is handed over: who has lost it?"""
    from assay.diagnosis.pieces import carve

    graph = session.subject.anatomy.subgraph
    made = {tensor for node in piece.nodes if node not in here for tensor in graph.nodes[node].inputs}
    border = [tensor for node in here for tensor in graph.nodes[node].outputs if tensor in made]
    if not border:
        return
    outputs = [*piece.outputs, *border]
    opened = carve(
        session.subject.model, session.subject.anatomy, located.nodes, session.values[0], outputs=outputs
    )
    (result,) = session.launcher.run([session.trial(Candidate("read out between the parts", opened))])
    if result.failure is not None:
        return
    for position, tensor in enumerate(outputs):
        if tensor not in border:
            continue
        right, seen = session.values[0][tensor], result.outputs(0)[position]
        gap = difference_of(right, seen)
        name = graph.tensors[tensor].name
        producer = session.subject.anatomy.label(session.subject.anatomy.producers[tensor])
        state = (
            "is wrong when it is read out" if gap > session.limits.of(tensor, right) else "is right when read out"
        )
        found.add(Kind.HAND_OVER, f"the value handed over, {name!r} (made by {producer}), {state}")


def _wrong(session: Session, piece: Piece, result: TrialResult) -> bool:
    for position, index in enumerate(SEQUENCE):
        for tensor, output in zip(piece.outputs, result.outputs(position), strict=True):
            right = session.values[index][tensor]
            if difference_of(right, output) > session.limits.of(tensor, right):
                return True
    return False


def _rest(session: Session, located: Located, piece: Piece, found: _Findings) -> None:
    """What is left where nothing narrower was seen."""
    label = session.subject.anatomy.label
    context = [step for step in located.alone if step.verdict == "right"]
    if not located.isolated and context and Kind.HAND_OVER not in found.because:
        names = ", ".join(label(step.nodes[0]) for step in context)
        found.add(Kind.FUSION, f"alone, these are right: {names}")
    if found.because:
        return
    quantized = [
        t for t in piece.model.subgraphs[0].tensors if t.quantization is not None and t.dtype != "float32"
    ]
    if quantized and any(session.values[0][t].dtype.kind in "iu" for t in piece.outputs):
        found.add(Kind.QUANTIZATION, "the nodes compute on quantized integers, and no other cause was seen")
        return
    found.add(Kind.KERNEL, "the op alone, fed with the reference's own values, gives wrong results every time")


def describe(step: Step) -> str:
    """What became of a piece, in a few words."""
    if step.verdict == "failed":
        return f"{step.failure}: {step.error}"
    if step.verdict == "wrong" and step.max_abs_diff is not None:
        return f"wrong by up to {step.max_abs_diff:.3g}"
    return step.verdict
