"""Support matrices: what a lane was measured to do with each signature, and what follows for others.

A matrix is a folder: `matrix.json` says what was measured where and when, and one file an op holds its
signatures by outcome. Nothing is read before it is asked for: a lint of a model with ten ops reads ten files.

An answer is `measured` where the very signature was. Otherwise it may follow by a rule that the measurements
themselves give, of which there are two kinds:

- *equivalent values*: a trait's values v and w count as the same for an op if at least `MIN_PAIRS` pairs of
  measured signatures differ in nothing else, one having v and the other w, both taken, and no such pair was
  treated differently. A signature that equals a measured one up to such values is treated as that one is.
- *refused for a feature*: if every measured signature of the op with some feature (an element type, a rank
  above four, a version, an option) was refused, at least `MIN_REFUSED` of them, one more with that feature is too.

Everything else is unknown.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.linting.signature import NodeSignature

MIN_PAIRS = 2
MIN_REFUSED = 3
#: Answers that are kept for each op. Files may come from strangers, with any number of signatures.
MAX_REMEMBERED = 1 << 12
SHIPPED = Path(__file__).resolve().parent / "matrices"

TAKEN = frozenset({"supported", "wrong"})
"""Statuses of nodes that the accelerator runs."""
FATAL = frozenset({"failed", "crash"})
"""Statuses of nodes that it takes and then cannot load or run."""
_TENSOR = re.compile(r"(const |variable |empty )?([a-z]+\d*(?:_\w+)?|absent)(@[tcb])?(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a lane does with a node.

    Attributes:
        status: `supported`, `refused`, `wrong` (takes it and gives other numbers than the CPU), `failed` or
            `crash` (takes it and cannot load or run), or `unknown`.
        reason: Word for word, for all but `supported`; None for `unknown`.
        scope: `subgraph` if such a node keeps its whole subgraph off the accelerator.
        basis: `measured`, or the rule by which the answer follows, or `not measured`.
        date: The day of the measurement, ISO, or None.
        numbers: `right`, `wrong`, or `not measured`.
        max_abs_diff: Largest difference from the CPU that was measured, in the unit of the output, or None.
        evidence: Log lines, word for word.
    """

    status: str
    reason: str | None = None
    scope: str = "node"
    basis: str = "measured"
    date: str | None = None
    numbers: str = "not measured"
    max_abs_diff: float | None = None
    evidence: tuple[str, ...] = ()

    @property
    def taken(self) -> bool | None:
        """Whether the accelerator takes the node; None if unknown."""
        if self.status == "unknown":
            return None
        return self.status != "refused"


UNKNOWN = Answer("unknown", basis="not measured")


def _merged(answers: Sequence[Answer]) -> Answer:
    """One answer of a signature's outcomes; the worst speaks, and a signature that went both ways is unknown."""
    if len({_kind(answer.status) for answer in answers}) > 1:
        return Answer("unknown", basis="measured both ways: sizes decide, and they are not part of a signature")
    worst = max(
        answers, key=lambda answer: ("supported", "wrong").index(answer.status) if answer.status in TAKEN else 0
    )
    if worst.status == "wrong" and any(answer.status == "supported" for answer in answers):
        good = sum(answer.status == "supported" for answer in answers)
        note = f"{worst.reason} (right in {good} of {len(answers)} measured sizes)"
        return Answer(
            "wrong", note, worst.scope, worst.basis, worst.date, "wrong", worst.max_abs_diff, worst.evidence
        )
    return worst


def _kind(status: str) -> str:
    return "taken" if status in TAKEN else "fatal" if status in FATAL else status


class OpMatrix:
    """What is measured of one op.

    Args:
        op: Its name.
        document: The content of its file.
    """

    def __init__(self, op: str, document: Mapping[str, Any]) -> None:
        self.op = op
        self._outcomes: list[dict[str, Any]] = document["outcomes"]
        self._stored = document if "refused" in document else None
        # Signature -> its outcomes and what each differed by from the CPU. Answers are made when asked for: an op
        # has thousands of signatures, a model a handful.
        self._measured: dict[str, list[tuple[int, float | None]]] = {}
        for index, outcome in enumerate(self._outcomes):
            for text, diff in outcome["signatures"].items():
                self._measured.setdefault(text, []).append((index, diff))
        self._answered: dict[str, Answer] = {}
        self._nearest: dict[str, NodeSignature | None] = {}

    def __len__(self) -> int:
        return len(self._measured)

    def exact(self, text: str) -> Answer | None:
        """The answer that was measured for this very signature."""
        measured = self._measured.get(text)
        if measured is None:
            return None
        return _merged([self._answer(index, diff) for index, diff in measured])

    def _answer(self, index: int, diff: float | None = None) -> Answer:
        outcome = self._outcomes[index]
        status: str = outcome["status"]
        numbers = "wrong" if status == "wrong" else "not measured" if diff is None else "right"
        return Answer(
            status,
            outcome.get("reason"),
            outcome.get("scope", "node"),
            "measured",
            outcome.get("date"),
            numbers,
            diff,
            tuple(outcome.get("evidence", ())),
        )

    def answer(self, signature: NodeSignature) -> Answer:
        """The answer for a signature: measured, by a rule, or unknown."""
        text = str(signature)
        found = self._answered.get(text)
        if found is None:
            found = self.exact(text) or self._by_equivalence(signature) or self._by_feature(signature) or UNKNOWN
            if len(self._answered) < MAX_REMEMBERED:
                self._answered[text] = found
        return found

    @cached_property
    def parsed(self) -> list[tuple[NodeSignature, Answer]]:
        """All measured signatures with their answers."""
        return self._parsed(self._measured)

    def _parsed(self, texts: Iterable[str]) -> list[tuple[NodeSignature, Answer]]:
        return [(NodeSignature.parse(self.op, text), self.exact(text) or UNKNOWN) for text in texts]

    @cached_property
    def _classes(self) -> dict[tuple[str, str], tuple[str, int]]:
        """(trait, value) -> representative of its equivalence class, and the number of pairs that say so.

        They are worked out when a matrix is written, and read from it.
        """
        if self._stored is not None:
            return {
                (name, value): (values[0], pairs)
                for name, classes in self._stored["equivalent"].items()
                for pairs, *values in classes
                for value in values
            }
        pairs: Counter[tuple[str, str, str]] = Counter()
        apart: set[tuple[str, str, str]] = set()
        groups: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
        for signature, answer in self.parsed:
            kind = _kind(answer.status)
            if kind == "unknown":
                continue
            for index, (name, value) in enumerate(signature.traits):
                rest = (name, signature.tensors, signature.traits[:index], signature.traits[index + 1 :])
                groups.setdefault(rest, []).append((value, kind))
            # A trait that is absent is a value too: options at their default are left out of signatures.
            for name in self._optional - {name for name, _ in signature.traits}:
                rest = _without(signature, name)
                groups.setdefault(rest, []).append(("", kind))
        for rest, members in groups.items():
            if len(members) < 2:
                continue
            name = rest[0]
            for position, (value, kind) in enumerate(members):
                for other, other_kind in members[position + 1 :]:
                    key = (name, *sorted((value, other)))
                    if kind != other_kind:
                        apart.add(key)  # type: ignore[arg-type]
                    elif kind == "taken":
                        pairs[key] += 1  # type: ignore[index]
        return _join(pairs, apart)

    @cached_property
    def _optional(self) -> set[str]:
        """Traits that some measured signatures have and others lack."""
        if self._stored is not None:
            return set(self._stored["optional"])
        names = [frozenset(name for name, _ in signature.traits) for signature, _ in self.parsed]
        return set().union(*names) - frozenset.intersection(*names) if names else set()

    def _canonical(self, signature: NodeSignature) -> tuple[Any, ...]:
        traits = dict(signature.traits)
        for name in self._optional:
            traits.setdefault(name, "")
        steady = (
            (name, self._classes.get((name, value), (value, 0))[0]) for name, value in sorted(traits.items())
        )
        return (signature.tensors, tuple(steady))

    def _by_equivalence(self, signature: NodeSignature) -> Answer | None:
        canonical = self._canonical(signature)
        start = f"{signature.tensors} | "
        candidates = self._parsed(text for text in self._measured if text.startswith(start))
        found = [pair for pair in candidates if self._canonical(pair[0]) == canonical]
        if not found:
            return None
        kinds = {_kind(answer.status) for _, answer in found}
        if len(kinds) != 1 or "unknown" in kinds:
            return None
        nearest, answer = min(found, key=lambda item: len(_changes(item[0], signature)))
        changes = _changes(nearest, signature)
        parts: list[str] = []
        for name, value in changes:
            pairs = self._classes.get((name, value), ("", 0))[1]
            parts.append(f"{name}={value or 'default'} (changes nothing in {pairs} measured pairs)")
        basis = f"as measured for {nearest}, but {', '.join(parts)}"
        status = "supported" if answer.status in TAKEN else answer.status
        reason = None if status == "supported" else answer.reason
        return Answer(status, reason, answer.scope, basis, answer.date, evidence=answer.evidence)

    @cached_property
    def _refusals(self) -> dict[str, tuple[int, int]]:
        """Features that always led to a refusal -> how often, and the commonest of the outcomes."""
        if self._stored is not None:
            return {feature: (count, outcome) for feature, (count, outcome) in self._stored["refused"].items()}
        seen: dict[str, list[Answer]] = {}
        for signature, answer in self.parsed:
            if answer.status == "unknown":
                continue
            for feature in features(signature):
                seen.setdefault(feature, []).append(answer)
        return {
            feature: (len(answers), self._commonest(answers))
            for feature, answers in seen.items()
            if (len(answers) >= MIN_REFUSED or feature == "op")
            and (
                all(answer.status == "refused" for answer in answers)
                or (feature == "op" and all(answer.status == "failed" for answer in answers))
            )
        }

    def _commonest(self, answers: Sequence[Answer]) -> int:
        """The outcome whose reason most of the answers give."""
        said = Counter((answer.status, answer.reason) for answer in answers).most_common(1)[0][0]
        return next(
            index
            for index, outcome in enumerate(self._outcomes)
            if (outcome["status"], outcome.get("reason")) == said
        )

    def _by_feature(self, signature: NodeSignature) -> Answer | None:
        rules = [
            (feature, *self._refusals[feature]) for feature in features(signature) if feature in self._refusals
        ]
        if not rules:
            return None
        feature, count, outcome = max(rules, key=lambda rule: (rule[0] == "op", rule[1]))
        answer = self._answer(outcome)
        what = "this op" if feature == "op" else feature
        word = "refused" if answer.status == "refused" else "fatal"
        counted = f"all {count} measured signatures" if count > 1 else "the one measured signature"
        basis = f"{counted} with {what} {'were' if count > 1 else 'was'} {word}"
        return Answer(answer.status, answer.reason, answer.scope, basis, answer.date, evidence=answer.evidence)

    def derived(self) -> dict[str, Any]:
        """What follows from all measurements of the op together, to be stored beside them.

        Returns:
            `equivalent`: classes of equivalent values by trait, each as the number of pairs that say so and the
            values; `optional`: traits that some signatures have and others lack; `refused`: features that always
            led to a refusal, with how often and the position of the commonest outcome.
        """
        classes: dict[tuple[str, str], list[str]] = {}
        pairs: dict[tuple[str, str], int] = {}
        for (name, value), (first, count) in self._classes.items():
            classes.setdefault((name, first), []).append(value)
            pairs[name, first] = max(count, pairs.get((name, first), 0))
        listed: dict[str, list[list[Any]]] = {}
        for (name, first), values in sorted(classes.items()):
            others = sorted(value for value in values if value != first)
            listed.setdefault(name, []).append([pairs[name, first], first, *others])
        refused = {feature: list(found) for feature, found in sorted(self._refusals.items())}
        return {"equivalent": listed, "optional": sorted(self._optional), "refused": refused}

    def nearest_supported(self, signature: NodeSignature) -> NodeSignature | None:
        """A measured signature that the lane takes and gets right, and that is closest to this one; for hints."""
        text = str(signature)
        if text in self._nearest:
            return self._nearest[text]
        mine = set(features(signature))
        best: tuple[int, NodeSignature] | None = None
        for other, others in self._supported:
            distance = len(mine.symmetric_difference(others))
            if best is None or distance < best[0]:
                best = (distance, other)
        found = best[1] if best else None
        if len(self._nearest) < MAX_REMEMBERED:
            self._nearest[text] = found
        return found

    @cached_property
    def _supported(self) -> list[tuple[NodeSignature, set[str]]]:
        """Signatures that the lane takes and gets right, with their features."""
        return [
            (signature, set(features(signature)))
            for signature, answer in self.parsed
            if answer.status == "supported"
        ]


def _without(signature: NodeSignature, name: str) -> tuple[Any, ...]:
    """The grouping key of a signature that lacks a trait: where the trait would stand, split the others."""
    before = tuple(pair for pair in signature.traits if pair[0] < name)
    return (name, signature.tensors, before, signature.traits[len(before) :])


def _join(
    pairs: Mapping[tuple[str, str, str], int], apart: set[tuple[str, str, str]]
) -> dict[tuple[str, str], tuple[str, int]]:
    """Classes of values by trait; a value that is apart from any member of a class does not join it."""
    classes: dict[tuple[str, str], tuple[str, int]] = {}
    members: dict[tuple[str, str], set[str]] = {}
    for (name, a, b), count in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        if count < MIN_PAIRS or (name, a, b) in apart:
            continue
        first, second = (classes.get((name, value), (value, 0))[0] for value in (a, b))
        joined = members.get((name, first), {first}) | members.get((name, second), {second})
        if any((name, *sorted((x, y))) in apart for x in joined for y in joined if x < y):
            continue
        for value in joined:
            classes[(name, value)] = (first, max(count, classes.get((name, value), ("", 0))[1]))
        members[(name, first)] = joined
    return classes


def _changes(measured: NodeSignature, wanted: NodeSignature) -> list[tuple[str, str]]:
    """Traits of `wanted` that differ from those of `measured`."""
    theirs, mine = dict(measured.traits), dict(wanted.traits)
    names = sorted(set(theirs) | set(mine))
    return [(name, mine.get(name, "")) for name in names if mine.get(name, "") != theirs.get(name, "")]


def features(signature: NodeSignature) -> list[str]:
    """What a refusal can be put down to: the op as such, element types, ranks above four, each trait's value."""
    found = ["op"]
    for text in re.split(r", | -> | and ", signature.tensors.replace("many ", "")):
        match = _TENSOR.match(text)
        if match is None or match[2] == "absent":
            continue
        if match[1] is None:
            found.append(f"a runtime tensor of {match[2]}")
        else:
            found.append(f"a constant of {match[2]}")
        rank = int(match[4] or 0)
        found.append("a tensor of rank 5 or more" if rank > 4 else f"a tensor of rank {rank}")
    found += [f"{name}={value}" for name, value in signature.traits]
    found += [f"any {name}" for name, _ in signature.traits if name != "version"]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Matrix:
    """A support matrix of one lane on one runtime version.

    Attributes:
        folders: Where its files are; what is measured in any of them counts.
        header: The content of `matrix.json`, of the first folder.
    """

    folders: tuple[Path, ...]
    header: dict[str, Any]
    _ops: dict[str, OpMatrix | None] = field(default_factory=dict[str, OpMatrix | None], repr=False)

    @property
    def lane(self) -> str:
        """The lane's name."""
        return self.header["lane"]

    @property
    def runtime_version(self) -> str:
        """The runtime's version, for example `2.3.0`."""
        return self.header["runtime_version"]

    def op(self, name: str) -> OpMatrix | None:
        """What is measured of an op, or None if nothing is.

        Raises:
            AssayError: The op's file cannot be read.
        """
        if name not in self._ops:
            paths = [folder / f"{file_name(name)}.json" for folder in self.folders]
            found = [_load(path) for path in paths if path.is_file()]
            if len(found) > 1:
                found = [{"outcomes": [outcome for document in found for outcome in document["outcomes"]]}]
            self._ops[name] = OpMatrix(name, found[0]) if found else None
        return self._ops[name]

    def answer(self, signature: NodeSignature) -> Answer:
        """What the lane does with a node of this signature."""
        measured = self.op(signature.op)
        return measured.answer(signature) if measured is not None else UNKNOWN

    def ops(self) -> list[str]:
        """Names of the ops that something is measured of."""
        return sorted(self.header["ops"])


def file_name(op: str) -> str:
    """The name of an op's file: custom ops come from strangers, so only letters, digits, `_`, `.` and `-` stay."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", op)[:100]


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AssayError(f"{path} is not a readable support matrix: {error}") from error


def load(folder: Path) -> Matrix:
    """The matrix in a folder.

    Raises:
        AssayError: There is none, or it is of another kind.
    """
    header = _load(folder / "matrix.json")
    if not isinstance(header, dict) or header.get("kind") != "support_matrix":
        raise AssayError(f"{folder / 'matrix.json'} is not a support matrix", fix="make one with `assay probe`")
    return Matrix((folder,), header)


def joined(first: Matrix, second: Matrix) -> Matrix:
    """Two matrices of one lane and runtime as one, such as the shipped one and what was probed for a model.

    Raises:
        AssayError: They are of different lanes or runtimes.
    """
    for name in ("lane", "runtime_version"):
        if first.header[name] != second.header[name]:
            raise AssayError(
                f"the matrices are of different {name}s: {first.header[name]} and {second.header[name]}"
            )
    return Matrix(first.folders + second.folders, first.header)


def shipped(lane: str | None = None) -> list[Matrix]:
    """The matrices that come with the package, newest runtime first.

    Args:
        lane: Only this lane's.
    """
    found = [
        load(path.parent)
        for path in sorted(SHIPPED.glob("*/*/matrix.json"))
        if lane in (None, path.parent.parent.name)
    ]
    return sorted(found, key=lambda matrix: _version_key(matrix.runtime_version), reverse=True)


def for_lane(lane: str) -> Matrix:
    """The newest shipped matrix of a lane.

    Raises:
        AssayError: None is shipped for it.
    """
    found = shipped(lane)
    if not found:
        lanes = sorted({matrix.lane for matrix in shipped()})
        raise AssayError(
            f"no support matrix for lane {lane!r}",
            fix=f"there are matrices for {', '.join(lanes) or 'no lane'}; make one with `assay probe --lane "
            f"{lane}`",
        )
    return found[0]


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
