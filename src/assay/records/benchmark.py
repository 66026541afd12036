"""Benchmark records: what other harnesses and other runtimes measured of a model."""

from typing import Annotated, Literal

from pydantic import Field

from assay.records.document import Count, Date, Document, Lane, Many, Metrics, ModelId, NonNegative, Part, Text

BenchmarkProvenance = Annotated[str, Field(pattern=r"^(measured|vendor_doc|inferred|example)$")]
"""`measured`, `vendor_doc` (a vendor published it), `inferred` or `example`."""


class BenchmarkRecord(Part):
    """One figure of one harness.

    Attributes:
        device: The device's name.
        soc: System on chip.
        backend: What ran it.
        runtime: Another runtime's name; absent or null for LiteRT itself.
        precision: Numeric form, for example `fp16` or `int8`.
        latency_p50_ms: Median latency in milliseconds.
        tokens_per_s: Tokens per second.
        peak_mem_mb: Peak memory in MiB.
        metrics: Further figures, flat, with their unit in the name.
        harness: The program that measured.
        harness_version: Its version.
        runs: Number of runs behind `statistic`.
        statistic: How they were joined, for example `median`.
        date: Day of the measurement.
        provenance: Where the figure comes from.
        notes: For people.
    """

    device: Text
    soc: str | None = None
    backend: Lane
    runtime: str | None = None
    precision: str | None = None
    latency_p50_ms: NonNegative = None
    tokens_per_s: NonNegative = None
    peak_mem_mb: NonNegative = None
    metrics: Metrics | None = None
    harness: Text
    harness_version: str | None = None
    runs: Count | None = None
    statistic: str | None = None
    date: Date
    provenance: BenchmarkProvenance
    notes: str | None = None


class BenchmarkFile(Document):
    """A file of benchmark records of one model, `data/benchmarks/.../<any name>.json`.

    Attributes:
        model_id: The model.
        results: Its records. Those with a `runtime` go to a card's `cross_runtime`, the rest to `benchmarks`.
    """

    kind: Literal["benchmark"] | None = None
    model_id: ModelId
    results: Many[BenchmarkRecord]
