"""The diagnosis from end to end: is it wrong, where, of what kind, the smallest file, and what to do."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.diagnosis import delegation, fixes
from assay.diagnosis.bundle import AFTER_ANOTHER, FIRST, issue_text, script, write_bundle
from assay.diagnosis.finding import Cost, Finding, NodeRef
from assay.diagnosis.journal import Journal, Step, digest
from assay.diagnosis.kinds import MEANING, Kind, classify, describe
from assay.diagnosis.launch import Launcher, TrialResult
from assay.diagnosis.locate import Located, alike, locate
from assay.diagnosis.session import Judged, Limits, Session, difference_of, judge
from assay.diagnosis.smallest import LIGHT, smallest
from assay.diagnosis.subject import Reference, Subject, open_subject, run_reference
from assay.errors import AssayError
from assay.evidence.litert_log import graphics_errors
from assay.lanes import registry
from assay.lanes.job import Json
from assay.models.artifact import identify
from assay.protocol import machine
from assay.records.files import write_atomic
from assay.records.privacy import scrub, scrub_values
from assay.scratch import Scratch

Array = np.ndarray[Any, np.dtype[Any]]


FOLDER = "diagnose"
"""Folder of findings in a folder of records and cards."""


@dataclass(frozen=True)
class Progress:
    """How far a diagnosis is.

    Attributes:
        stage: What is being done.
        launches: Processes started so far.
        expected: Processes expected in all; an estimate that gets better as the search narrows.
        seconds_left: What the remaining ones take if they take as long as those so far; None before the first.
    """

    stage: str
    launches: int
    expected: int
    seconds_left: float | None


@dataclass(frozen=True)
class Settings:
    """How to diagnose.

    Attributes:
        signature: Signature key; None for the first.
        shapes: Input name -> shape, for dynamic inputs.
        sets: The user's inputs; None makes seeded ones.
        set_names: What they are called.
        expected: Outputs of the source model for the first set, by output name; a reference that differs from
            them shows a fault of the conversion.
        reference: Reference lane; None takes the first that runs the model.
        options: Options of the lane.
        seed: Of seeded inputs.
        threads: CPU threads.
        time_limit_s: For one process with one piece, in seconds.
        fix: Write a rewritten model if one is right.
        regions: Measure time by region.
        resume: Go on from the log of a stopped diagnosis.
        out: Folder of findings; None writes nothing.
    """

    signature: str | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    sets: Sequence[Sequence[Array]] | None = None
    set_names: Sequence[str] | None = None
    expected: Mapping[str, Array] | None = None
    reference: str | None = None
    options: dict[str, Json] = field(default_factory=dict[str, Json])
    seed: int = 0
    threads: int = 2
    time_limit_s: float = 120.0
    fix: bool = False
    regions: bool = False
    resume: bool = True
    out: Path | None = None


def _silent(progress: Progress) -> None:
    """No one is told."""


def diagnose(
    path: Path,
    lane: str,
    settings: Settings | None = None,
    *,
    on_progress: Callable[[Progress], None] = _silent,
) -> Finding:
    """Find what a lane does wrong with a model.

    Args:
        path: The `.tflite` file.
        lane: The lane.
        settings: How; the defaults suit most models.
        on_progress: Told before and after every process.

    Returns:
        The finding; `symptom` is `none` where the lane is right.

    Raises:
        AssayError: The file or an option is no good, the lane cannot run here, or no reference runs the model.
    """
    settings = settings or Settings()
    available = registry.find(lane).available()
    if not available.available:
        raise AssayError(f"the lane {lane} cannot run here: {available.reason}", fix=available.fix)
    artifact = identify(path)
    subject = open_subject(
        path,
        signature=settings.signature,
        shapes=settings.shapes,
        sets=settings.sets,
        set_names=settings.set_names,
        seed=settings.seed,
    )
    finding = Finding(
        model=path.name,
        sha256=artifact.sha256,
        size_bytes=artifact.size_bytes,
        lane=lane,
        reference="",
        on=scrub(available.on),
        environment=scrub_values({**machine.describe(), **available.details}),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    folder = None if settings.out is None else folder_of(settings.out, path, lane)
    with Scratch() as scratch:
        run = _Run(subject, lane, settings, finding, folder, scratch, on_progress)
        try:
            run.all()
        finally:
            run.close()
    if folder is not None:
        _write(folder, finding, settings)
    return finding


def folder_of(out: Path, model: Path, lane: str) -> Path:
    """The folder of the finding of a model on a lane."""
    return out / f"{model.stem}__{lane.rpartition(':')[2]}"


def _write(folder: Path, finding: Finding, settings: Settings) -> None:
    from assay import records

    if finding.symptom not in ("none", "converter"):
        runs = AFTER_ANOTHER if finding.symptom == "stale" else FIRST
        text = script(finding.lane, runs, options=settings.options, threads=settings.threads)
        finding.files["issue"] = "issue.md"
        write_atomic(folder / "issue.md", issue_text(finding, text))
    finding.files["finding"] = "finding.json"
    write_atomic(folder / "finding.json", records.dumps(finding.to_dict()))


@dataclass(frozen=True)
class _Whole:
    """The whole model on the lane."""

    symptom: str
    result: TrialResult
    focus: int
    other: int
    worst: Judged


class _Run:
    """One diagnosis; its methods are its stages."""

    def __init__(
        self,
        subject: Subject,
        lane: str,
        settings: Settings,
        finding: Finding,
        folder: Path | None,
        scratch: Path,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.subject, self.lane, self.settings, self.finding = subject, lane, settings, finding
        self.folder, self.scratch = folder, scratch
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._stage = ""
        self._expected = 0
        self.launcher = self._launcher(lane)
        self.references: list[Launcher] = []
        journal = None if folder is None else folder / "steps.jsonl"
        self.journal = Journal(journal, resume=settings.resume)

    def _launcher(self, lane: str) -> Launcher:
        return Launcher(lane, threads=self.settings.threads, time_limit_s=self.settings.time_limit_s)

    def close(self) -> None:
        """Remove temporary files; note what it took."""
        launchers = [self.launcher, *self.references]
        for launcher in launchers:
            launcher.close()
        self.finding.cost = Cost(
            launches=sum(launcher.launches for launcher in launchers),
            pieces=sum(launcher.pieces for launcher in launchers),
            resumed=self.journal.resumed,
            seconds=round(time.monotonic() - self._begun, 1),
        )

    def all(self) -> None:
        """Every stage that the symptom calls for."""
        units = len(self.subject.anatomy.units)
        narrowing = max(1, int(np.ceil(np.log(max(units, 2)) / np.log(8))))
        self._stages(3 + narrowing + 7)
        self._tell("running the reference")
        reference, launcher = self._reference()
        self.finding.reference = launcher.lane
        if self._converter_fault(reference):
            return
        self._tell("running the whole model on the lane")
        whole = self._whole(reference)
        session = self._session(reference, whole)
        self._describe_whole(whole)
        if whole.symptom != "none":
            self._tell("searching")
            located = locate(session, self._shows(whole))
            if located is None:
                self._not_located()
            else:
                self._explain(session, launcher, located, whole)
        if registry.find(self.lane).accelerated and whole.result.failure is None:
            self._tell("looking at what the lane refuses")
            self.finding.delegation = delegation.examine(
                session, whole.result, self._twin(), regions=self.settings.regions
            )
        self.finding.side_findings = _side_findings(self.journal.steps(), whole)

    def _stages(self, expected: int) -> None:
        self._expected = expected

    def _tell(self, stage: str) -> None:
        self._stage = stage
        launches = self.launcher.launches + sum(each.launches for each in self.references)
        seconds = self.launcher.seconds + sum(each.seconds for each in self.references)
        left = max(0, self._expected - launches)
        estimate = seconds / launches * left if launches else None
        self._on_progress(Progress(stage, launches, max(self._expected, launches), estimate))

    def _reference(self) -> tuple[Reference, Launcher]:
        """The first lane that runs the model as a reference."""
        lane = registry.find(self.lane)
        precision = "fp32" if self.settings.options.get("enforce_f32") else lane.precision
        names = [self.settings.reference] if self.settings.reference else registry.references()
        names = [name for name in names if name != self.lane] or names
        failures: list[str] = []
        for name in names:
            launcher = self._launcher(name)
            self.references.append(launcher)
            try:
                return run_reference(self.subject, self.scratch / name, launcher, precision), launcher
            except AssayError as error:
                failures.append(error.message)
        raise AssayError("; ".join(failures), fix="without a right value nothing can be called wrong")

    def _converter_fault(self, reference: Reference) -> bool:
        """Whether the reference itself differs from the source's outputs."""
        if self.settings.expected is None:
            return False
        worst: tuple[float, str] = (0.0, "")
        for entry in self.subject.signature.outputs:
            if entry.name not in self.settings.expected:
                raise AssayError(
                    f"the source's outputs have no {entry.name!r}",
                    fix=f"name them {', '.join(e.name for e in self.subject.signature.outputs)}",
                )
            source = np.asarray(self.settings.expected[entry.name])
            right = reference.values[0][entry.tensor.index]
            gap = difference_of(source, right)
            limit = max(
                8 * reference.expected.get(entry.tensor.index, 0.0), 1e-4 * float(np.abs(source).max(initial=0))
            )
            if gap > limit and gap >= worst[0]:
                worst = (gap, entry.name)
        if not worst[1]:
            return False
        finding = self.finding
        finding.symptom, finding.kind = "converter", Kind.CONVERTER
        finding.worst_output = worst[1]
        finding.max_abs_diff = worst[0] if np.isfinite(worst[0]) else None
        finding.sentence = (
            f"the file differs from its source: {finding.reference} is off at output {worst[1]!r} by "
            f"{worst[0]:.6g}, so the conversion is at fault and no lane can be right"
        )
        finding.suggestion = fixes.suggestion(Kind.CONVERTER, [])
        return True

    def _whole(self, reference: Reference) -> _Whole:
        """Run the file as it is on every input set, the first set again at the end."""
        sets = len(self.subject.sets)
        sequence = [*range(sets), 0]
        (result,) = self.launcher.run([self.subject.trial(sequence, options=self.settings.options)])
        if result.failure is not None:
            return _Whole("failed", result, 0, sets - 1, Judged(0.0, None, None))
        limits = Limits(reference.expected)
        tensors = self.subject.output_tensors
        judged = [
            judge(result.outputs(position), tensors, reference.values[index], limits)
            for position, index in enumerate(sequence)
        ]
        focus = max(range(sets), key=lambda index: judged[index].worst)
        again = judge(result.outputs(sets), tensors, dict(zip(tensors, result.outputs(0), strict=True)), limits)
        if judged[focus].worst > 1:
            other = next((index for index in range(sets) if index != focus), focus)
            # Right on a fresh model and wrong on later runs alone: what comes first decides.
            late = focus > 0 and judged[0].worst <= 1 < judged[sets].worst
            symptom = "stale" if late else "wrong"
            focus, other = (0, focus) if late else (focus, other)
            worst = judged[sets] if late else judged[focus]
            return _Whole(symptom, result, focus, other, worst)
        if judged[sets].worst > 1:
            return _Whole("stale", result, 0, sets - 1, judged[sets])
        if again.worst > 1:
            return _Whole("unstable", result, 0, sets - 1, again)
        return _Whole("none", result, focus, (focus + 1) % sets, judged[focus])

    def _session(self, reference: Reference, whole: _Whole) -> Session:
        return Session(
            subject=self.subject,
            reference=reference,
            launcher=self.launcher,
            journal=self.journal,
            limits=Limits(reference.expected),
            sets=(whole.focus, whole.other),
            options=self.settings.options,
            environment=digest(self.finding.on, repr(sorted(self.finding.environment.items()))),
            on_step=lambda steps: self._tell(f"{steps[0].what}: {len(steps)} pieces" if steps else self._stage),
        )

    def _describe_whole(self, whole: _Whole) -> None:
        finding = self.finding
        finding.symptom = whole.symptom
        finding.inputs = self.subject.set_names[whole.focus]
        finding.evidence = tuple(dict.fromkeys((*whole.result.facts.evidence, *whole.result.evidence)))
        finding.failure = whole.result.failure.value if whole.result.failure else None
        finding.error = whole.result.error
        if whole.worst.tensor is not None:
            finding.max_abs_diff = whole.worst.max_abs_diff
            finding.worst_output = self.subject.anatomy.subgraph.tensors[whole.worst.tensor].name
            finite = np.isfinite(whole.worst.worst)
            finding.times_limit = round(whole.worst.worst * Limits({}).margin, 3) if finite else None
        if whole.symptom == "none":
            close = f"no output is further from {finding.reference} than its arithmetic explains"
            sets = f"{len(self.subject.sets)} input sets"
            if whole.result.facts.served is False:
                finding.sentence = (
                    f"nothing of it runs on {self.lane}: the CPU served it all, and {close} ({sets})"
                )
            else:
                finding.sentence = f"right: {close} ({sets})"

    def _shows(self, whole: _Whole) -> Callable[[Step], bool]:
        if whole.symptom == "failed":
            return lambda step: step.verdict == "failed" and step.failure == self.finding.failure
        return lambda step: step.verdict == "wrong"

    def _not_located(self) -> None:
        self.finding.kind = Kind.FUSION
        self.finding.sentence = (
            f"{self.lane} is wrong on {self.finding.model}, and right on the same nodes once the file is written "
            "anew with fixed shapes: the fault is in what the file says beside its nodes"
        )

    def _explain(self, session: Session, reference: Launcher, located: Located, whole: _Whole) -> None:
        finding, anatomy = self.finding, self.subject.anatomy
        tensors = anatomy.subgraph.tensors
        finding.nodes = tuple(
            NodeRef(
                node,
                anatomy.subgraph.nodes[node].op,
                tuple(tensors[t].name for t in anatomy.subgraph.nodes[node].outputs if t >= 0),
                tuple(tensors[t].shape for t in anatomy.subgraph.nodes[node].outputs if t >= 0),
            )
            for node in located.nodes
        )
        finding.isolated = located.isolated
        finding.alone = tuple(f"{anatomy.label(step.nodes[0])}: {describe(step)}" for step in located.alone)
        self._tell("telling what kind it is")
        kind = classify(session, located, twin=self._twin())
        finding.kind, finding.also = kind.kind, tuple(kind.also)
        finding.because = kind.because
        finding.clues = tuple(clue.sentence for clue in kind.clues)
        self._tell("trying the same ops elsewhere")
        others = alike(session, located, self._shows(whole))
        finding.alike = dataclasses.asdict(others)
        finding.sentence = self._sentence(located, kind.kind)
        self._hand_over(session, reference, located, whole, others.faulty)
        if whole.symptom != "failed":
            self._tell("trying rewrites")
            target = self.folder if self.settings.fix else None
            cures = kind.cures if kind.cures else ()
            finding.fixes = tuple(
                fixes.try_fixes(session, reference, target, cures=cures, nodes=located.nodes)
                if cures or self.settings.fix
                else ()
            )
            for fix in finding.fixes:
                if fix.file is not None:
                    finding.files["fixed"] = fix.file.path
        finding.suggestion = fixes.suggestion(kind.kind, finding.fixes)

    def _hand_over(
        self,
        session: Session,
        reference: Launcher,
        located: Located,
        whole: _Whole,
        others: Sequence[tuple[int, ...]],
    ) -> None:
        """Make the smallest file: of the region, or of a place with the same ops that needs fewer bytes."""
        if self.folder is None:
            return
        self._tell("making the smallest file")

        def shows(result: TrialResult, worst: float) -> bool:
            if whole.symptom == "failed":
                return result.failure is not None and result.failure.value == self.finding.failure
            return result.failure is None and worst > 1

        found = smallest(session, reference, session.carve(located.nodes), shows)
        if found is not None and len(found.data) > LIGHT and others:
            lighter = smallest(session, reference, session.carve(others[0]), shows)
            found = min((each for each in (found, lighter) if each), key=lambda each: len(each.data))
        if found is None:
            return
        write_bundle(
            self.folder, self.finding, found, options=self.settings.options, threads=self.settings.threads
        )
        self.finding.evidence = tuple(dict.fromkeys((*self.finding.evidence, *found.facts.evidence)))
        for line in graphics_errors("\n".join(found.facts.evidence))[:1]:
            self.finding.because += (f"the lane's log, as it runs the smallest file: {line}",)

    def _twin(self) -> Launcher | None:
        """The CPU lane that serves what an accelerator leaves."""
        if not registry.find(self.lane).accelerated or registry.find(self.lane).precision != "fp16":
            return None
        cpu = registry.calibration()
        if cpu is None:
            return None
        for launcher in self.references:
            if launcher.lane == cpu:
                return launcher
        self.references.append(self._launcher(cpu))
        return self.references[-1]

    def _sentence(self, located: Located, kind: Kind) -> str:
        label = self.subject.anatomy.label
        names = " -> ".join(label(node) for node in located.nodes)
        if located.isolated and len(located.nodes) == 1:
            where = f"{names} alone"
        elif located.isolated:
            where = f"{names} together, which is one op and what prepares its weights,"
        else:
            right = all(step.verdict == "right" for step in located.alone)
            where = f"{names} together{' (each alone is right)' if right else ''}"
        several = not located.isolated
        shown = (
            ("fail" if several else "fails")
            if located.step.verdict == "failed"
            else "are wrong"
            if several
            else "is wrong"
        )
        doubt = ""
        if self.lane in registry.references()[:1]:
            doubt = f"; only {self.finding.reference} says so, and it may be the one that is wrong"
        return f"{where} {shown} on {self.lane} ({kind.value}: {MEANING[kind]}){doubt}"


def _side_findings(steps: Sequence[Step], whole: _Whole) -> tuple[str, ...]:
    """Pieces that failed on the way, though the whole model does not."""
    found: dict[str, str] = {}
    for step in steps:
        if step.verdict != "failed" or (whole.result.failure and step.failure == whole.result.failure.value):
            continue
        nodes = (
            f"node {step.nodes[0]}" if len(step.nodes) == 1 else f"{len(step.nodes)} nodes from {step.nodes[0]}"
        )
        found.setdefault(
            f"{step.failure}: {step.error}", f"a piece of {nodes} fails: {step.failure}: {step.error}"
        )
    return tuple(found.values())
