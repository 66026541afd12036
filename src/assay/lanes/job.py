"""What crosses the border of a lane's child process: the job that it is given, and what it observes.

Only standard-library types: the child starts fast.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from assay.graph import Signature

Json = Any
"""What `json` reads and writes."""

UNFEEDABLE = frozenset({"string", "resource", "variant"})
"""Element types that no lane can be given or asked for."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of the signature that is run.

    Attributes:
        name: The name in the signature, or the tensor's name where the model has no signatures.
        dtype: NumPy's name for the element type, for example `float32`, `int8`, `bool`.
        shape: The resolved shape; no dimension is dynamic any more.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


def input_specs(signature: Signature, shapes: Mapping[str, Sequence[int]]) -> list[TensorSpec]:
    """The inputs of a signature, with the shapes of a dictionary by name where it has them."""
    return [
        TensorSpec(entry.name, entry.tensor.dtype, tuple(shapes.get(entry.name, entry.tensor.shape)))
        for entry in signature.inputs
    ]


def output_specs(signature: Signature) -> list[TensorSpec]:
    """The outputs of a signature, with the shapes that the file has; a run shows what a dynamic one becomes."""
    return [TensorSpec(entry.name, entry.tensor.dtype, tuple(entry.tensor.shape)) for entry in signature.outputs]


def resized_inputs(signature: Signature, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Names of the inputs whose shape is not the file's, and must be set before a run."""
    return [
        entry.name
        for entry in signature.inputs
        if tuple(shapes.get(entry.name, entry.tensor.shape)) != tuple(entry.tensor.shape)
    ]


@dataclass(frozen=True)
class Job:
    """One model on one lane: all that the child process needs to know.

    Attributes:
        model: Path of the `.tflite` file.
        workdir: The only folder that the child writes to.
        signature: Signature key; None where the model has no signatures (subgraph 0 is run).
        inputs: The inputs of the signature, in order, with resolved shapes.
        outputs: The outputs of the signature, in order.
        resized: Names of the inputs whose shape must be set before the run, since the file leaves it dynamic
            or the user asked for another one.
        input_sets: `.npz` files, one for each set of inputs; arrays are keyed `"0"`, `"1"`, ... by position.
        sequence: Indices into `input_sets`, invoked in this order on the one loaded model, first thing after
            loading; the outputs of each are kept as `outputs/<position>.npz`, keyed in the same way.
            `[0, 1, 0]` shows whether the same input gives the same output after another one.
        warmup: Invocations before timing (the sequence not counted).
        runs: Timed invocations of set 0; 0 measures numbers only.
        budget_s: Seconds after which timing stops early, once 3 invocations are timed.
        threads: CPU threads.
        options: Options of one lane alone, as JSON.
    """

    model: str
    workdir: str
    signature: str | None
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    resized: list[str]
    input_sets: list[str]
    sequence: list[int]
    warmup: int = 3
    runs: int = 50
    budget_s: float = 30.0
    threads: int = 1
    options: dict[str, Json] = field(default_factory=dict[str, Json])

    @classmethod
    def of(
        cls,
        model: Path,
        signature: Signature,
        workdir: Path,
        input_sets: Sequence[Path],
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        sequence: Sequence[int] | None = None,
        **settings: Any,
    ) -> Job:
        """The job that runs a signature of a model file.

        Args:
            model: The `.tflite` file.
            signature: The signature, as `assay.graph.read` found it in the file.
            workdir: See the attribute.
            input_sets: `.npz` files, one for each set of inputs.
            shapes: Input name -> shape, for the inputs that do not have the file's.
            sequence: See the attribute; each set once by default.
            settings: Values of `warmup`, `runs`, `budget_s`, `threads` and `options`.
        """
        shapes = shapes or {}
        return cls(
            # Absolute: other processes read the job, wherever they run.
            model=str(model.resolve()),
            workdir=str(workdir),
            signature=signature.key,
            inputs=input_specs(signature, shapes),
            outputs=output_specs(signature),
            resized=resized_inputs(signature, shapes),
            input_sets=[str(path) for path in input_sets],
            sequence=list(range(len(input_sets)) if sequence is None else sequence),
            **settings,
        )

    def to_json(self) -> str:
        """This job as a JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        data = json.loads(text)
        for key in ("inputs", "outputs"):
            data[key] = [TensorSpec(s["name"], s["dtype"], tuple(s["shape"])) for s in data[key]]
        return cls(**data)


@dataclass
class Observation:
    """What the child saw; written to `observation.json` after each stage, so a crash loses one stage only.

    Times are in milliseconds, memory in MiB (2**20 bytes), as measured in the child.

    Attributes:
        stage: What was begun last: `start`, `load`, `first_run`, `sequence`, `warmup`, `timed`, `done`.
        load_ms: From the file to a model that is ready to be given inputs (compilation included).
        first_run_ms: The first invocation, host to host.
        samples_ms: Every timed invocation, host to host, in order.
        warmup_runs: Invocations done before timing, the sequence not counted.
        budget_hit: True if timing stopped at the time budget before `runs` invocations.
        baseline_mb: Resident memory before the model was loaded.
        peak_mb: Highest resident memory seen.
        output_specs: The outputs as they came, in order: name, dtype, shape.
        error: Text of the exception that ended the measurement, or None.
        error_class: Failure class that the lane itself knows for the error, or None.
        facts: What the API says, raw, for `Lane.read`: versions, adapter, delegation flags.
        state: The machine before and after timing, for the acceptance rule.
    """

    stage: str = "start"
    load_ms: float | None = None
    first_run_ms: float | None = None
    samples_ms: list[float] = field(default_factory=list[float])
    warmup_runs: int = 0
    budget_hit: bool = False
    baseline_mb: float | None = None
    peak_mb: float | None = None
    output_specs: list[TensorSpec] = field(default_factory=list[TensorSpec])
    error: str | None = None
    error_class: FailureClass | None = None
    facts: dict[str, Json] = field(default_factory=dict[str, Json])
    state: dict[str, Json] = field(default_factory=dict[str, Json])

    def to_json(self) -> str:
        """This observation as a JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Observation:
        """The observation that `to_json` wrote."""
        data = json.loads(text)
        data["output_specs"] = [TensorSpec(s["name"], s["dtype"], tuple(s["shape"])) for s in data["output_specs"]]
        if data["error_class"] is not None:
            data["error_class"] = FailureClass(data["error_class"])
        return cls(**data)


def save_observation(job: Job, observation: Observation) -> None:
    """Write the observation to the job's folder, whole or not at all."""
    folder = Path(job.workdir)
    partial = folder / "observation.json.part"
    partial.write_text(observation.to_json())
    partial.replace(folder / "observation.json")


def read_observation(folder: Path) -> Observation | None:
    """What a child wrote last into a job's folder; None if it wrote nothing readable."""
    try:
        return Observation.from_json((folder / "observation.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None
