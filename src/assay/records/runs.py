"""One run: one model on one lane on one device on one date."""

from typing import Annotated, Any

from pydantic import Field

from assay.records.document import (
    Count,
    Date,
    Lane,
    Many,
    Measured,
    Metrics,
    NonNegative,
    Part,
    Provenance,
    Scalar,
    Sha256,
    Text,
    since,
)


class RecordArtifact(Part):
    """The exact file that was measured.

    Attributes:
        file: Its name, without folders.
        sha256: Of the whole file.
        size_bytes: Its size.
        size_mb: Its size in megabytes (10**6 bytes).
    """

    file: Text
    sha256: Sha256
    size_bytes: Count | None = None
    size_mb: NonNegative


class RefusedOp(Part):
    """An op that the accelerator did not take.

    Attributes:
        op: Its name, as the log has it.
        reason: Why, word for word.
        count: How many log lines said so.
    """

    op: Text
    reason: str
    count: Count = 1


class RunEnv(Part):
    """Where a device run was measured.

    Attributes:
        device: The device's name for people.
        machine_label: The owner's short name for the machine.
        os_build: Operating system and its version.
        runtime: `litert`, `litert-lm`, or another runtime.
        runtime_version: Version of the runtime.
        soc: System on chip.
        vendor_sdk: Vendor's SDK and version, for NPU runs.
    """

    device: Text
    machine_label: Text | None = None
    os_build: str | None
    runtime: Text
    runtime_version: Text
    soc: str | None
    vendor_sdk: str | None


class DeviceRun(Part):
    """What one accelerator of one device did with a model. `null` means not measured.

    Attributes:
        accelerator: The lane. Open: other producers have names of their own.
        context_length: Tokens of context (language models).
        date: Day of the measurement.
        decode_tokens_per_s: Tokens generated per second.
        delegated_ops: Nodes that the accelerator took.
        env: Where it was measured.
        error: The main line of a failure, word for word.
        evidence: Log lines and counters that the fields were read from, word for word.
        failure_class: Why it failed. Open: other producers have classes of their own.
        full_delegation: True if the accelerator took every node.
        latency_p50_ms: Median of one inference, host to host, in milliseconds.
        loads: The model loaded and compiled.
        max_abs_diff: Largest absolute difference to the reference's outputs.
        max_rel_diff: Largest difference, relative to the reference's scale.
        metrics: Further figures, flat, with their unit in the name.
        output_match: True if the outputs agree with the reference's.
        peak_mem_mb: Peak memory in MiB, over what the process needs without the model.
        prefill_tokens_per_s: Tokens of the prompt taken in per second.
        provenance: `measured` or `example`.
        runs: An inference completed.
        signature: Signature that was run; null or absent for the file's only one.
        total_ops: Nodes in all, as the runtime counts them.
        ttft_ms: Time to the first token, in milliseconds.
    """

    accelerator: Lane
    context_length: Count | None
    date: Date
    decode_tokens_per_s: NonNegative
    delegated_ops: Count | None = None
    env: RunEnv
    error: str | None = None
    evidence: Many[str]
    failure_class: str | None = None
    full_delegation: bool | None
    latency_p50_ms: NonNegative
    loads: bool
    max_abs_diff: Measured
    max_rel_diff: Measured
    metrics: Metrics = Field(default_factory=dict[str, Scalar])
    output_match: bool | None
    peak_mem_mb: NonNegative
    prefill_tokens_per_s: NonNegative
    provenance: Provenance
    runs: bool
    signature: str | None = None
    total_ops: Count | None = None
    ttft_ms: NonNegative


class WebGpuAdapter(Part):
    """What the browser says of its graphics adapter; empty texts are what it would not say."""

    architecture: str | None = None
    description: str | None = None
    device: str | None = None
    vendor: str | None = None


class BrowserEnv(Part):
    """Where a browser run was measured.

    Attributes:
        browser: `chromium`, `firefox`, ...
        browser_version: Its version.
        headless: True if it ran without a window.
        jspi: True if JavaScript Promise Integration was in use.
        litertjs_core_version: Version of `@litertjs/core`.
        machine_label: The owner's short name for the machine.
        os: Operating system.
        os_version: Its version.
        webgpu_adapter: The adapter; null where WebGPU was not there or not asked.
        cross_origin_isolated: True if the page could share memory between threads.
        jspi_supported: True if the browser has JavaScript Promise Integration, in use or not.
        shader_f16: True if the adapter computes in fp16; null without one.
        wasm_build: The WebAssembly build that was fetched: `jspi`, `threaded`, `single` or `compat`.
        webgpu_adapter_kind: `software` or `hardware`.
    """

    browser: Text
    browser_version: Text
    headless: bool
    jspi: bool | None = None
    litertjs_core_version: Text
    machine_label: Text
    os: Text
    os_version: str | None = None
    webgpu_adapter: WebGpuAdapter | None = None
    cross_origin_isolated: bool | None = None
    jspi_supported: bool | None = None
    shader_f16: bool | None = None
    wasm_build: str | None = None
    webgpu_adapter_kind: str | None = None


class BrowserRun(Part):
    """What one backend of LiteRT.js did with a model. Fields mean what they mean in `DeviceRun`.

    The first ten are the form's own; the rest is optional, left out where there is nothing to say.
    """

    backend: Lane
    date: Date
    env: BrowserEnv
    full_delegation: bool | None
    latency_p50_ms: NonNegative
    loads: bool
    max_rel_diff: Measured
    output_match: bool | None
    provenance: Provenance
    runs: bool
    delegated_ops: Count | None = None
    delegation_evidence: Many[str] | None = None
    error: str | None = None
    evidence: Many[str] | None = None
    failure_class: str | None = None
    max_abs_diff: Measured = None
    metrics: Metrics | None = None
    peak_mem_mb: NonNegative = None
    signature: str | None = None
    total_ops: Count | None = None
    artifact: Annotated[RecordArtifact | None, since("1.3")] = None
    refused_ops: Annotated[Many[RefusedOp] | None, since("1.3")] = None
    source: Annotated[str | None, since("1.3", description="The record that the run comes from")] = None
    verdict: Annotated[dict[str, Any] | None, since("1.3")] = None
