"""One signature of one model on lanes and devices: the same inputs for each, and what comes of them judged."""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.devices.base import Device
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.base import LaneFacts
from assay.lanes.job import UNFEEDABLE, Job, Json, resized_inputs
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.measure.entry import Measured
from assay.measure.judge import Judge, Judged, seeded_sets
from assay.measure.settings import Settings
from assay.models.file import ModelFile, open_model
from assay.numerics.consistency import plan_sequence
from assay.numerics.inputs import resolve_shapes
from assay.numerics.source import source_outputs
from assay.numerics.user_inputs import InputSet, load_inputs
from assay.protocol.acceptance import Acceptance, accept
from assay.protocol.statistics import summarize
from assay.records.failure import FailureClass
from assay.records.meta import read_meta

if TYPE_CHECKING:
    from assay.graph import Signature


@dataclass(frozen=True)
class RunSubject:
    """One signature of one model, ready to be measured.

    Attributes:
        file: The model.
        model_id: The model's name in records.
        signature: The signature.
        shapes: Input name -> shape, none of them dynamic any more.
        provenance: `measured`, or `example` for a model that is not a real one.
    """

    file: ModelFile
    model_id: str
    signature: Signature
    shapes: dict[str, tuple[int, ...]]
    provenance: str

    @property
    def label(self) -> str:
        """What people call it: the model's name, and the signature's where it has one."""
        return self.model_id + (f":{self.signature.key}" if self.signature.key else "")

    @property
    def nodes(self) -> int | None:
        """Nodes in its graph; None where its format has no graph that is read here."""
        if self.file.graph is None:
            return None
        return len(self.file.graph.subgraphs[self.signature.subgraph].nodes)

    @property
    def unfeedable(self) -> str | None:
        """Why no lane can be fed, or None."""
        for direction, entries in (("input", self.signature.inputs), ("output", self.signature.outputs)):
            for entry in entries:
                if entry.tensor.dtype in UNFEEDABLE:
                    return f"{direction} {entry.name!r} is of type {entry.tensor.dtype}, which is not supported"
        return None


def open_subjects(path: Path, model_id: str, settings: Settings, meta: Path | None) -> Iterator[RunSubject]:
    """The signatures of a file that are to be measured.

    Args:
        path: The model file.
        model_id: Its name in records.
        settings: Which signatures, and which shapes.
        meta: YAML file with what people know of the model, or None.

    Raises:
        AssayError: The file, a signature or a shape is no good.
    """
    file = open_model(path, settings.variants)
    signatures = list(file.signatures)
    if settings.signatures:
        known = {str(signature.key): signature for signature in signatures}
        for key in settings.signatures:
            if key not in known:
                names = ", ".join(str(signature.key) for signature in signatures if signature.key is not None)
                raise AssayError(
                    f"{path} has no signature {key!r}",
                    fix=f"it has {names}" if names else "it has none: leave --signature out",
                )
        signatures = [known[key] for key in settings.signatures]
    if not signatures:
        raise AssayError(f"{path} has no graph to run")
    provenance = "example" if file.example else (read_meta(meta).provenance or "measured") if meta else "measured"
    for signature in signatures:
        shapes = resolve_shapes(signature, settings.shapes)
        yield RunSubject(file, model_id, signature, shapes, provenance)


class Bench:
    """Measures one subject on lane after lane, with the same inputs, and judges what they return.

    Args:
        subject: What to measure.
        settings: How.
        desk: This machine. Reference and expected error are computed here, once for all devices.
        lanes: All lanes that will be measured here; a better reference than these is run for its numbers only.
        scratch: Folder for inputs, jobs and outputs.
        stop: Ends the job at hand when it is set.

    Attributes:
        inputs: How the inputs were made, for the record; empty where no lane can be fed.
        model_times_s: Seconds that each child process spent inside a model so far.

    Raises:
        AssayError: The user's inputs or the source are no good.
        OSError: The disk is full; `measure` and `judge` raise it too.
    """

    def __init__(
        self,
        subject: RunSubject,
        settings: Settings,
        desk: Device,
        lanes: Sequence[str],
        scratch: Path,
        stop: threading.Event | None = None,
    ) -> None:
        self._stop = stop
        self._subject, self._settings, self._desk, self._scratch = subject, settings, desk, scratch
        self.inputs: dict[str, Json] = {}
        self.model_times_s: list[float] = []
        self._files: list[Path] = []
        self._sequence: list[int] = []
        self._judge: Judge | None = None
        if subject.unfeedable is None:
            self._judge = self._feed()
            self._set_unmeasured_reference(self._judge, lanes)

    def measure(self, device: Device, lane: str) -> Measured:
        """Measure once, or with the quiet gate until a measurement was not disturbed."""
        if self._subject.unfeedable is not None:
            failure = FailureClass.UNSUPPORTED_DTYPE
            return Measured(None, LaneFacts(), Acceptance(None, False, failure, self._subject.unfeedable, ()))
        settings = self._settings
        attempts = 0
        while True:
            attempts += 1
            if settings.quiet_gate:
                device.wait_for_quiet(settings.quiet_timeout_s)
            folder = self._folder(lane)
            job = self._job(lane, self._files, self._sequence, folder)
            measured = dataclasses.replace(self._run(device, lane, job), attempts=attempts)
            again = settings.quiet_gate and measured.unstable and attempts < settings.quiet_attempts
            if not again:
                return measured

    def judge(self, device: Device, lane: str, measured: Measured) -> Judged | None:
        """What is to be said of a lane's outputs, or None where there are none."""
        outputs = _outputs(measured)
        if not outputs or self._judge is None:
            return None
        if self._judge.reference is None and device.here and lane in registry.references():
            self._judge.set_reference(lane, self._sequence, outputs, _inference_ms(measured))
        precision = measured.facts.precision or registry.find(lane).precision
        return self._judge.judge(lane, precision, self._sequence, outputs, elsewhere=not device.here)

    def _folder(self, lane: str) -> Path:
        """A folder for one job; the next has another."""
        return Path(tempfile.mkdtemp(prefix=f"{lane.replace(':', '.')}-", dir=self._scratch))

    def _feed(self) -> Judge:
        """Make the sets of inputs, and who judges what comes of them."""
        settings, subject = self._settings, self._subject
        signature, shapes = subject.signature, subject.shapes
        own: list[InputSet] = []
        if settings.inputs is not None:
            own = load_inputs(settings.inputs, signature, shapes, image_range=settings.image_range)
        # Outputs saved from a source belong to the user's inputs; nobody has them for ours.
        saved = settings.source is not None and settings.source.endswith(".npz")
        kinds = () if saved and own else settings.kinds
        sets = own + seeded_sets(subject.file.graph, signature, shapes, settings.seed, kinds)
        for position, one in enumerate(sets):
            self._files.append(self._scratch / f"inputs-{position}.npz")
            save_arrays(self._files[-1], one.arrays)
        self._sequence = plan_sequence(len(sets))
        self.inputs = {
            "kind": sets[0].name,
            "seed": settings.seed,
            "sets": [one.name for one in sets],
            "shapes": {name: list(shape) for name, shape in shapes.items()},
            "source": settings.source,
        }
        return Judge(
            subject.file.graph,
            signature,
            sets,
            self._numbers,
            self._scratch,
            calibration=registry.calibration(),
            seed=settings.seed,
            resized=bool(resized_inputs(signature, shapes)),
            source=source_outputs(settings.source, signature, sets) if settings.source else None,
        )

    def _set_unmeasured_reference(self, judge: Judge, lanes: Sequence[str]) -> None:
        """Run a better reference than the lanes asked for hold, for its numbers only."""
        for name in registry.references():
            if name in lanes:
                return
            if self._subject.file.for_formats(registry.find(name).formats) is None:
                continue
            job = self._job(name, self._files, self._sequence, self._folder(name))
            measured = self._run(self._desk, name, dataclasses.replace(job, runs=0))
            outputs = _outputs(measured)
            if outputs:
                judge.set_reference(name, self._sequence, outputs, _inference_ms(measured))
                return

    def _numbers(self, lane: str, model: Path, inputs: list[list[Array]]) -> list[list[Array]]:
        """Outputs of another model file with the same inputs and outputs, for a list of input sets.

        Raises:
            AssayError: The lane did not give them.
        """
        with tempfile.TemporaryDirectory(prefix="numbers-", dir=self._scratch) as temporary:
            files: dict[int, Path] = {}
            for arrays in inputs:
                # The same set comes again and again: one file of each.
                if id(arrays) not in files:
                    files[id(arrays)] = Path(temporary) / f"inputs-{len(files)}.npz"
                    save_arrays(files[id(arrays)], arrays)
            order = list(files)
            sequence = [order.index(id(arrays)) for arrays in inputs]
            job = self._job(lane, list(files.values()), sequence, Path(temporary) / "job")
            job = dataclasses.replace(job, model=str(model.resolve()), runs=0, options={})
            measured = self._run(self._desk, lane, job)
            outputs = _outputs(measured) or []
            if len(outputs) != len(inputs):
                raise AssayError(
                    measured.acceptance.error or f"{lane} gave {len(outputs)} of {len(inputs)} outputs"
                )
            return outputs

    def _job(self, lane: str, files: Sequence[Path], sequence: list[int], folder: Path) -> Job:
        settings = self._settings
        artifact = self._subject.file.for_formats(registry.find(lane).formats)
        assert artifact is not None, "a lane is asked only for a model that it reads"
        return Job.of(
            artifact.path,
            self._subject.signature,
            folder,
            files,
            shapes=self._subject.shapes,
            sequence=sequence,
            warmup=settings.warmup,
            runs=settings.runs,
            budget_s=settings.budget_s,
            threads=settings.cpu_threads,
            options=settings.options,
        )

    def _run(self, device: Device, lane: str, job: Job) -> Measured:
        limits = self._settings
        outcome = device.run_job(
            lane, job, time_limit_s=limits.time_limit_s, memory_limit=limits.memory_limit, stop=self._stop
        )
        observation = outcome.observation
        if observation is not None and f"[Errno {errno.ENOSPC}]" in (observation.error or ""):
            # The disk's fault says nothing of the lane.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), job.workdir)
        if observation is not None:
            self.model_times_s.append(observation.facts.get("model_time_s") or 0.0)
        facts = registry.find(lane).read(outcome.log, observation)
        acceptance = accept(outcome.ending, outcome.log, facts.failure, registry.find(lane).explain)
        summary = None
        unstable: list[str] = []
        if observation is not None and observation.samples_ms and acceptance.failure is None:
            summary = summarize(observation.samples_ms)
            unstable = summary.unsteady + list(observation.state.get("disturbances", []))
        return Measured(outcome, facts, acceptance, summary, unstable, attempts=1)


def _outputs(measured: Measured) -> list[list[Array]] | None:
    """The outputs of each inference of the sequence, or None if the run does not count."""
    if measured.outcome is None or measured.acceptance.failure is not None:
        return None
    return [load_arrays(path) for path in measured.outcome.output_files()]


def _inference_ms(measured: Measured) -> float | None:
    if measured.summary is not None:
        return measured.summary.p50_ms
    observation = measured.outcome.observation if measured.outcome else None
    return observation.first_run_ms if observation else None
