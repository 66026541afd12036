"""Runs as flat rows: the same for a device and a browser, for our records and those of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.records import versions
from assay.records.record import (
    BrowserEntry,
    BrowserSweepFile,
    DeviceEntry,
    DeviceRunFile,
    PlainDeviceRunFile,
    PlainSweepFile,
)
from assay.records.runs import BrowserRun, DeviceRun

if TYPE_CHECKING:
    from assay.records.card import Card

STATUSES = ("failed", "wrong", "partial", "runs", "match")
"""What a run says in one word, worst first: it failed; outputs are wrong; the accelerator left a part to the
CPU; it runs (outputs not compared); it runs and outputs match."""

_THERMAL = re.compile(r"\bthermal=(\S+)")
_THROTTLED = re.compile(r"\bthrottled=(0x[0-9a-fA-F]+)")
_CPU_WORDS = ("cpu", "wasm")
"""How names of lanes that ask for no accelerator begin, in records that do not say it otherwise."""
_COOL = ("NONE->NONE", "NONE", "nominal")


@dataclass(slots=True)
class RunRow:
    """One run. `None` means not measured or not stated.

    Attributes:
        record: The file it comes from, relative to the catalog's folder.
        position: Its place in the file.
        origin: `record`, or `card` for a run that only a card has.
        kind: `device` or `browser`.
        model_id: The model.
        device: Short name of the device or machine.
        browser: The browser's name; None for a device run.
        accelerator: The lane.
        signature: Signature that was run.
        context_length: Tokens of context.
        prefill_tokens: Tokens of the prompt that speeds hold for.
        file_sha256: Digest of the file measured.
        file_name: Its name.
        date: Day of the measurement.
        started_at: Its time, where known.
        runtime: The runtime's name.
        runtime_version: Its version.
        runtime_order: A text that puts versions in order.
        machine_label: The owner's name for the machine.
        device_name: The device's name for people.
        soc: System on chip.
        os_build: Operating system.
        vendor_sdk: Vendor's SDK.
        browser_version: The browser's version.
        adapter: Graphics adapter.
        adapter_kind: `software` or `hardware`.
        loads: It loaded.
        runs: It ran.
        status: One of `STATUSES`.
        failure_class: Why it failed.
        error: The main line of the failure.
        full_delegation: The accelerator took every node.
        delegated_ops: Nodes it took.
        total_ops: Nodes in all.
        output_match: Outputs agree with the reference.
        max_abs_diff: Largest absolute difference.
        max_rel_diff: Largest relative difference.
        latency_p50_ms: Median latency.
        latency_min_ms: Shortest.
        latency_max_ms: Longest.
        latency_ci95_low_ms: Lower end of the median's 95 % confidence interval.
        latency_ci95_high_ms: Upper end.
        iterations: Timed inferences.
        threads: CPU threads.
        load_ms: Time to load.
        first_run_ms: Time of the first inference.
        prefill_tokens_per_s: Speed of the prompt.
        decode_tokens_per_s: Speed of generation.
        ttft_ms: Time to the first token.
        peak_mem_mb: Peak memory.
        thermal: Thermal state before and after, as the evidence has it.
        throttled: The device throttled.
        unstable: Timings cannot be trusted.
        verdict: What the outputs say, in a word.
        provenance: `measured` or `example`.
        metrics: All further figures.
        evidence: Log lines.
    """

    record: str
    position: int
    origin: str
    kind: str
    model_id: str
    device: str
    browser: str | None
    accelerator: str
    signature: str | None
    context_length: int | None
    prefill_tokens: float | None
    file_sha256: str | None
    file_name: str | None
    date: str
    started_at: str | None
    runtime: str
    runtime_version: str
    runtime_order: str
    machine_label: str | None
    device_name: str | None
    soc: str | None
    os_build: str | None
    vendor_sdk: str | None
    browser_version: str | None
    adapter: str | None
    adapter_kind: str | None
    loads: bool
    runs: bool
    status: str
    failure_class: str | None
    error: str | None
    full_delegation: bool | None
    delegated_ops: int | None
    total_ops: int | None
    output_match: bool | None
    max_abs_diff: float | None
    max_rel_diff: float | None
    latency_p50_ms: float | None
    latency_min_ms: float | None
    latency_max_ms: float | None
    latency_ci95_low_ms: float | None
    latency_ci95_high_ms: float | None
    iterations: int | None
    threads: int | None
    load_ms: float | None
    first_run_ms: float | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    ttft_ms: float | None
    peak_mem_mb: float | None
    thermal: str | None
    throttled: bool | None
    unstable: bool | None
    verdict: str | None
    provenance: str
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: Sequence[str] = ()

    def cell(self) -> tuple[Any, ...]:
        """What makes two runs measurements of the same thing; see `CELL`."""
        return tuple(getattr(self, name) for name in CELL)

    def age(self) -> tuple[Any, ...]:
        """Greater for the run that its cell takes; see `AGE`."""
        return (
            self.provenance == "measured",
            self.date,
            self.started_at or "",
            self.runtime_order,
            self.record,
            self.position,
        )


CELL = (
    "model_id",
    "kind",
    "device",
    "browser",
    "accelerator",
    "signature",
    "context_length",
    "prefill_tokens",
    "file_sha256",
)
"""The columns of a cell. Speeds at different prompt lengths are different facts, so the prompt counts too."""

AGE = (
    "provenance = 'measured'",
    "date",
    "coalesce(started_at, '')",
    "runtime_order",
    "record",
    "position",
)
"""`RunRow.age` in SQL, in order of importance: a cell takes the greatest."""


def newest(rows: Iterable[RunRow]) -> list[RunRow]:
    """The run that each cell takes: its newest measured one by date, or an example where nothing was measured."""
    best: dict[tuple[Any, ...], RunRow] = {}
    for row in rows:
        key = row.cell()
        if key not in best or row.age() > best[key].age():
            best[key] = row
    return list(best.values())


def device_rows(document: DeviceRunFile | PlainDeviceRunFile, record: str) -> Iterator[RunRow]:
    """The runs of a device-run record."""
    if isinstance(document, DeviceRunFile):
        for position, entry in enumerate(document.entries):
            yield device_row(entry.run, document.model_id, document.device, record, position, entry=entry)
        return
    for position, run in enumerate(document.results):
        row = device_row(run, document.model_id, document.device, record, position)
        row.file_sha256 = row.file_sha256 or document.artifact_sha256
        row.file_name = row.file_name or document.artifact
        yield row


def browser_rows(document: BrowserSweepFile | PlainSweepFile, record: str) -> Iterator[RunRow]:
    """The runs of a browser-sweep record."""
    if isinstance(document, BrowserSweepFile):
        for position, entry in enumerate(document.entries):
            yield browser_row(entry.run, document.model_id, record, position, entry=entry)
        return
    for position, run in enumerate(document.results):
        yield browser_row(run, document.model_id, record, position)


def card_rows(card: Card) -> Iterator[RunRow]:
    """The runs of a card; `record` is the file that the card names as their source."""
    model_id = card.model.id
    cells = card.device.records if card.device else []
    for position, cell in enumerate(cells):
        row = device_row(cell.run, model_id, cell.device, cell.source, position)
        row.origin = "card"
        yield row
    if card.browser is None:
        return
    for position, run in enumerate(card.browser.backends, len(cells)):
        row = browser_row(run, model_id, run.source or card.browser.sweep_source, position)
        row.origin = "card"
        yield row


def device_row(
    run: DeviceRun, model_id: str, device: str, record: str, position: int, entry: DeviceEntry | None = None
) -> RunRow:
    """A device run as a row."""
    env = run.env
    row = _row(run, run.metrics, run.evidence, entry)
    row.record, row.position, row.kind = record, position, "device"
    row.model_id, row.device, row.accelerator = model_id, device, run.accelerator
    row.context_length = run.context_length
    row.runtime, row.runtime_version = env.runtime, env.runtime_version
    row.runtime_order = versions.order(env.runtime_version)
    row.machine_label, row.device_name, row.soc = env.machine_label, env.device, env.soc
    row.os_build, row.vendor_sdk = env.os_build, env.vendor_sdk
    row.prefill_tokens_per_s, row.decode_tokens_per_s = run.prefill_tokens_per_s, run.decode_tokens_per_s
    row.ttft_ms = run.ttft_ms
    row.status = _status(run, run.accelerator, run.metrics)
    return row


def browser_row(
    run: BrowserRun, model_id: str, record: str, position: int, entry: BrowserEntry | None = None
) -> RunRow:
    """A browser run as a row; its device is the machine's label, its runtime LiteRT.js."""
    env = run.env
    row = _row(run, run.metrics or {}, run.evidence or run.delegation_evidence or [], entry)
    row.record, row.position, row.kind = record, position, "browser"
    row.model_id, row.device, row.accelerator = model_id, env.machine_label, run.backend
    row.browser, row.browser_version = env.browser, env.browser_version
    row.runtime, row.runtime_version = "litertjs", env.litertjs_core_version
    row.runtime_order = versions.order(env.litertjs_core_version)
    row.machine_label = row.device_name = env.machine_label
    row.os_build = f"{env.os} {env.os_version or ''}".strip()
    adapter = env.webgpu_adapter
    if adapter is not None and row.adapter is None:
        parts = (adapter.vendor, adapter.architecture, adapter.device, adapter.description)
        row.adapter = " ".join(part for part in parts if part) or None
    row.status = _status(run, run.backend, run.metrics or {})
    return row


def _status(run: DeviceRun | BrowserRun, accelerator: str, metrics: dict[str, Any]) -> str:
    """What a run says in one word, one of `STATUSES`."""
    if not run.loads or not run.runs or run.failure_class is not None:
        return "failed"
    if run.output_match is False:
        return "wrong"
    # XNNPACK leaves what it does not know to the plain kernels, on the same CPU: nothing fell back.
    if run.full_delegation is False and _accelerated(accelerator, metrics):
        return "partial"
    return "match" if run.output_match else "runs"


def _accelerated(accelerator: str, metrics: dict[str, Any]) -> bool:
    """Whether an accelerator was asked for: what the record says, else the first word of the lane's name."""
    said = _flag(metrics, "accelerated")
    return not accelerator.startswith(_CPU_WORDS) if said is None else said


def _row(
    run: DeviceRun | BrowserRun,
    metrics: dict[str, Any],
    evidence: list[str],
    entry: DeviceEntry | BrowserEntry | None,
) -> RunRow:
    """What device and browser runs share; the rest is left for the caller."""
    thermal, throttled = _heat(metrics, evidence)
    artifact = entry.artifact if entry else None
    return RunRow(
        record="",
        position=0,
        origin="record",
        kind="",
        model_id="",
        device="",
        browser=None,
        accelerator="",
        signature=(entry.signature if entry else None) or run.signature or _text(metrics, "signature"),
        context_length=None,
        prefill_tokens=_number(metrics, "prefill_tokens"),
        file_sha256=artifact.sha256 if artifact else _text(metrics, "file_sha256"),
        file_name=artifact.file if artifact else _text(metrics, "file"),
        date=run.date,
        started_at=entry.started_at if entry else None,
        runtime="",
        runtime_version="",
        runtime_order="",
        machine_label=None,
        device_name=None,
        soc=None,
        os_build=None,
        vendor_sdk=None,
        browser_version=None,
        adapter=_text(metrics, "adapter"),
        adapter_kind=_text(metrics, "adapter_kind"),
        loads=run.loads,
        runs=run.runs,
        status="",
        failure_class=run.failure_class,
        error=run.error,
        full_delegation=run.full_delegation,
        delegated_ops=run.delegated_ops,
        total_ops=run.total_ops,
        output_match=run.output_match,
        max_abs_diff=run.max_abs_diff,
        max_rel_diff=run.max_rel_diff,
        latency_p50_ms=run.latency_p50_ms,
        latency_min_ms=_number(metrics, "latency_min_ms"),
        latency_max_ms=_number(metrics, "latency_max_ms"),
        latency_ci95_low_ms=_number(metrics, "latency_ci95_low_ms"),
        latency_ci95_high_ms=_number(metrics, "latency_ci95_high_ms"),
        iterations=_whole(metrics, "iterations"),
        threads=_whole(metrics, "threads"),
        load_ms=_number(metrics, "load_ms"),
        first_run_ms=_number(metrics, "first_run_ms"),
        prefill_tokens_per_s=None,
        decode_tokens_per_s=None,
        ttft_ms=None,
        peak_mem_mb=run.peak_mem_mb,
        thermal=thermal,
        throttled=throttled,
        unstable=_flag(metrics, "unstable"),
        verdict=_text(metrics, "verdict"),
        provenance=run.provenance,
        metrics=metrics,
        evidence=evidence,
    )


def _heat(metrics: dict[str, Any], evidence: list[str]) -> tuple[str | None, bool | None]:
    """Thermal state and whether the device throttled, from metrics or from the evidence's text."""
    state = _text(metrics, "thermal")
    throttled: bool | None = None
    for line in evidence:
        if state is None and "thermal=" in line and (found := _THERMAL.search(line)):
            state = found[1].rstrip(",;")
        if "throttled=" in line and (found := _THROTTLED.search(line)):
            throttled = bool(throttled) or int(found[1], 16) != 0
    if throttled is None and state is not None:
        throttled = state not in _COOL
    return state, throttled


def _text(metrics: dict[str, Any], name: str) -> str | None:
    value = metrics.get(name)
    return value if isinstance(value, str) else None


def _number(metrics: dict[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(metrics: dict[str, Any], name: str) -> int | None:
    value = _number(metrics, name)
    return int(value) if value is not None and value.is_integer() else None


def _flag(metrics: dict[str, Any], name: str) -> bool | None:
    value = metrics.get(name)
    return value if isinstance(value, bool) else None
