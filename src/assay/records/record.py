"""Records: files of runs, to which runs are added and never changed.

There are two forms of each. Ours (`entries`) keeps beside each run the exact file, the command, the host and
every timing. The plain form (`results`), which other producers write, has the runs alone; it is only read.
"""

from typing import Any, Literal

from pydantic import Field

from assay.records.document import DeviceName, Document, Many, Metrics, ModelId, Part, Sha256, Text
from assay.records.runs import BrowserRun, DeviceRun, RecordArtifact, RefusedOp


class _Entry(Part):
    """What is kept beside a run.

    Attributes:
        artifact: The exact file measured.
        signature: Signature that was run; null for the file's only one.
        command: The command line.
        started_at: ISO 8601 time, UTC.
        host: The machine that measured: CPU model, cores, OS, kernel, Python, adapter.
        samples_ms: Every timed inference in milliseconds, in order.
        refused_ops: Ops that the accelerator did not take.
        verdict: What the outputs say, per output; null if not judged.
        inputs: How the inputs were made; null if unknown.
    """

    artifact: RecordArtifact
    signature: str | None = None
    command: Many[str] = Field(default_factory=list[str])
    started_at: str | None = None
    host: dict[str, Any] = Field(default_factory=dict[str, Any])
    samples_ms: Many[float | int] = Field(default_factory=list[float | int])
    refused_ops: Many[RefusedOp] = Field(default_factory=list[RefusedOp])
    verdict: dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None


class DeviceEntry(_Entry):
    """One device run, with what is kept beside it.

    Attributes:
        run: The run.
    """

    run: DeviceRun


class BrowserEntry(_Entry):
    """One browser run, with what is kept beside it.

    Attributes:
        run: The run.
    """

    run: BrowserRun


class DeviceRunFile(Document):
    """`data/device_runs/<runtime version>/<date>/<model id>__<device>.json`.

    Attributes:
        model_id: The model.
        device: Short name of the device.
        entries: Runs, in the order measured.
    """

    kind: Literal["device_run"]
    model_id: ModelId
    device: DeviceName
    entries: Many[DeviceEntry]


class BrowserSweepFile(Document):
    """`data/sweep/<litertjs version>/<date>/<model id>.json`.

    Attributes:
        model_id: The model.
        entries: Runs, in the order measured.
    """

    kind: Literal["browser_sweep"]
    model_id: ModelId
    entries: Many[BrowserEntry]


class PlainDeviceRunFile(Document):
    """A device-run file of another producer.

    Attributes:
        model_id: The model.
        device: Short name of the device.
        artifact: Name of the file measured.
        artifact_sha256: Its digest, where the source states it.
        quantization: In words.
        notes: For people.
        results: The runs.
    """

    model_id: ModelId
    device: DeviceName
    artifact: Text
    artifact_sha256: Sha256 | None = None
    quantization: str | None = None
    notes: str | None = None
    results: Many[DeviceRun]


class PlainSweepFile(Document):
    """A browser-sweep file of another producer.

    Attributes:
        model_id: The model.
        source: Where the model came from.
        license: The model's license.
        input_spec: How inputs were made.
        config: How it was measured.
        notes: For people.
        results: The runs.
    """

    model_id: ModelId
    source: str | None = None
    license: str | None = None
    input_spec: str | None = None
    config: Metrics | None = None
    notes: str | None = None
    results: Many[BrowserRun]
