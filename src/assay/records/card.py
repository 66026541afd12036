"""The card: all that is known of one model, in one document."""

from typing import Annotated, Any

from pydantic import Field

from assay.records.benchmark import BenchmarkRecord
from assay.records.document import (
    Count,
    Date,
    DeviceName,
    Document,
    Lane,
    Many,
    ModelId,
    NonNegative,
    Part,
    Sha256,
    Text,
    since,
)
from assay.records.runs import BrowserRun, DeviceRun, RecordArtifact, RefusedOp


class Artifact(Part):
    """A file of the model.

    Attributes:
        file: Its name.
        sha256: Of the whole file.
        size_mb: Its size in megabytes (10**6 bytes).
    """

    file: Text
    sha256: Sha256
    size_mb: NonNegative


class ModelInfo(Part):
    """What people say of the model; null where nobody said.

    Attributes:
        family: Family of models, for example `sam2`.
        id: Its name here, and its folder under `cards/`.
        license: SPDX-like identifier, lower case.
        source_url: Where it comes from.
        task: What it does, for example `mask-generation`.
    """

    family: Text | None
    id: ModelId
    license: Text | None
    source_url: Text | None
    task: Text | None


class Conversion(Part):
    """How the file was made; null where nobody said.

    Attributes:
        command: The exact command.
        quantization: In words.
        tool: The converter.
        tool_version: Its version.
    """

    command: Text | None
    quantization: Text | None
    tool: Text | None
    tool_version: Text | None


class Delegation(Part):
    """What a look at the graph alone says of an accelerator.

    Attributes:
        backend: The accelerator.
        blocking_ops: Ops that it would not take, worst first.
        coverage_ops_pct: Share of the nodes that it would take, in percent.
        lint_report_version: Version of the report that this comes from.
        litert_version: Runtime version that the rules hold for.
        matched_provenance_counts: Nodes by the provenance of the rule that judged them.
        partitions: Parts that the graph would fall into.
    """

    backend: Lane
    blocking_ops: Many[str]
    coverage_ops_pct: Annotated[float | int, Field(ge=0, le=100)]
    lint_report_version: Text
    litert_version: Text
    matched_provenance_counts: dict[str, Count]
    partitions: Count


class DeviceCell(Part):
    """The newest run of one cell.

    Attributes:
        device: Short name of the device.
        run: What was measured.
        source: The record it comes from, a path below the output folder.
    """

    device: DeviceName
    run: DeviceRun
    source: Text
    artifact: Annotated[RecordArtifact | None, since("1.3", description="The exact file measured")] = None
    command: Annotated[Many[str] | None, since("1.3", description="The command line")] = None
    host: Annotated[dict[str, Any] | None, since("1.3", description="The machine that measured")] = None
    refused_ops: Annotated[Many[RefusedOp] | None, since("1.3")] = None
    started_at: Annotated[str | None, since("1.3", description="ISO 8601, UTC")] = None
    verdict: Annotated[dict[str, Any] | None, since("1.3", description="Per output")] = None


class DeviceBlock(Part):
    """Runs on devices.

    Attributes:
        records: One for each cell, in order of device, accelerator, signature, context, file.
    """

    records: Many[DeviceCell]


class BrowserBlock(Part):
    """Runs in browsers.

    Attributes:
        backends: One for each cell, in order of backend and machine.
        demo_url: A page that runs the model.
        sweep_source: The newest record that the runs come from.
    """

    backends: Many[BrowserRun]
    demo_url: str | None
    sweep_source: Text


class Pitfall(Part):
    """Something a user of the model must know, with what shows it.

    Attributes:
        text: In words.
        evidence: Log lines and figures, word for word.
        date: Day it was found.
        lane: The lane it was seen on.
        ops: The ops it comes from.
        source: The record or report it comes from.
    """

    text: Text
    evidence: Many[str] = Field(default_factory=list[str])
    date: Date | None = None
    lane: Lane | None = None
    ops: Many[str] | None = None
    source: str | None = None


class PitfallFile(Document):
    """Pitfalls that tools found of one model, `cards/<model id>/pitfalls.json`.

    Attributes:
        pitfalls: In the order found.
    """

    pitfalls: Many[Pitfall]


class Card(Document):
    """All that is known of one model.

    Attributes:
        artifacts: The model's files.
        benchmarks: What other harnesses measured on LiteRT.
        conversion: How the files were made.
        cross_runtime: What was measured on other runtimes.
        delegation: What a look at the graph says of an accelerator; null if nobody looked.
        model: What people say of the model.
        pitfalls: What a user must know, in words.
        browser: Runs in browsers.
        device: Runs on devices.
        pitfall_details: The pitfalls that come with evidence.
    """

    artifacts: Many[Artifact]
    benchmarks: Many[BenchmarkRecord]
    conversion: Conversion
    cross_runtime: Many[BenchmarkRecord]
    delegation: Delegation | None
    model: ModelInfo
    pitfalls: Many[Text]
    browser: Annotated[BrowserBlock | None, since("1.1")] = None
    device: Annotated[DeviceBlock | None, since("1.2")] = None
    pitfall_details: Annotated[Many[Pitfall] | None, since("1.3")] = None
