"""The browser lanes: LiteRT.js in a real Chromium, driven from outside, each model on a page of its own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.evidence import litert_log, litertjs_log
from assay.lanes.base import Availability, Lane, LaneFacts, Refusal
from assay.lanes.browser import chromium, litertjs
from assay.lanes.browser.environment import adapter_name, is_software
from assay.lanes.job import Job, Observation, save_observation
from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from assay.lanes.base import RecordKind
    from assay.lanes.options import LaneOptions


class BrowserLane(Lane):
    """What the browser lanes share.

    Attributes:
        accelerator: LiteRT.js's name for where to run: `wasm`, `webgpu` or `webnn`.
    """

    accelerator: str
    runtime = "@litertjs/core"
    record: RecordKind = "browser_sweep"
    places = ("system", "browser")
    resident = True

    def options_model(self) -> type[LaneOptions]:
        """Browser, adapter, LiteRT.js and how it runs."""
        from assay.lanes.browser.options import BrowserOptions

        return BrowserOptions

    def check_options(self, options: dict[str, Any]) -> None:
        """Look at the options; the version of LiteRT.js that is asked for must be installed."""
        super().check_options(options)
        if options.get("litertjs"):
            litertjs.require(str(options["litertjs"]))

    def runtime_version(self, options: dict[str, Any]) -> str | None:
        """The version of LiteRT.js that is asked for."""
        return str(options.get("litertjs") or litertjs.DEFAULT_VERSION)

    def available(self) -> Availability:
        """Whether the lane can run here; looks for Playwright, a browser and the runtime, and starts nothing."""
        if not chromium.has_playwright():
            return Availability(False, reason="Playwright is not installed", fix=chromium.INSTALL_PLAYWRIGHT)
        try:
            browser = chromium.find()
        except AssayError as error:
            return Availability(False, reason=error.message, fix=error.fix)
        runtime = litertjs.find() or next(iter(reversed(litertjs.installed())), None)
        if runtime is None:
            return Availability(False, reason="no LiteRT.js is in the cache", fix="assay browser install")
        on = f"{chromium.version(browser) or browser}, LiteRT.js {runtime.version}"
        details: dict[str, Any] = {"runtime_version": runtime.version, "browser": str(browser)}
        if self.accelerator == "webgpu":
            details["adapter_kind"] = {"swiftshader": "software"}.get(chromium.resolve_adapter("auto"), "hardware")
            on += f", {details['adapter_kind']} WebGPU adapter"
        return Availability(True, on=on, details=details)

    def measure(self, job: Job, observation: Observation) -> None:
        """Measure a job in a browser; see `Lane.measure`."""
        from assay.lanes.browser.measurer import measurer

        measurer().measure(job, observation, self.accelerator)

    def keep(self) -> None:
        """Keep the browser for the next job; the lanes of a process share it."""
        from assay.lanes.browser.measurer import measurer

        measurer().keep = True

    def close(self) -> None:
        """Close the browser that was kept, if there is one."""
        from assay.lanes.browser.measurer import measurer

        measurer().close()

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """Facts from the console and from what the page saw; an accelerator must show that it served the run."""
        facts = observation.facts if observation else {}
        webgpu: dict[str, Any] = (facts.get("browser") or {}).get("webgpu") or {}
        served, evidence, failure = self._served(log, observation)
        report = litert_log.delegation(litertjs_log.plain(log)) if self.accelerated else None
        full = None
        if report is not None:
            full = report.remaining == 0
            evidence += report.lines
        elif self.accelerated and served:
            # Only together: the flag alone is also true for a graph that the CPU took whole.
            full = facts.get("is_fully_accelerated")
        if line := litertjs_log.silent_failure(litertjs_log.plain(log).splitlines()):
            failure = FailureClass.SILENT_RUN_FAILURE
            evidence.append(line)
        if self.accelerated and "is_fully_accelerated" in facts:
            evidence.append(f"page: isFullyAccelerated={str(facts['is_fully_accelerated']).lower()}")
        if self.accelerator == "webgpu":
            evidence += litert_log.graphics_errors(litertjs_log.plain(log))
        software = is_software(webgpu) if self.accelerator == "webgpu" else None
        return LaneFacts(
            served=served,
            full_delegation=full,
            delegated_ops=report.delegated if report else None,
            total_ops=report.delegated + report.remaining if report else None,
            refusals=_refusals(report),
            evidence=tuple(evidence),
            failure=failure,
            adapter=adapter_name(webgpu) if self.accelerator == "webgpu" else None,
            adapter_kind={True: "software", False: "hardware", None: None}[software],
            metrics=_metrics(facts),
            # Without shader-f16 there is no fp16 that could excuse an error.
            precision="fp32" if self.accelerator == "webgpu" and _lacks_f16(facts) else None,
        )

    def _served(
        self, log: str, observation: Observation | None
    ) -> tuple[bool | None, list[str], FailureClass | None]:
        """Whether the accelerator ran the model at least in part, what shows it, and the failure if it did not."""
        facts = observation.facts if observation else {}
        if observation is None or observation.load_ms is None:
            return None, [], None
        text = litertjs_log.plain(log)
        if self.accelerator == "wasm":
            line = litertjs_log.xnnpack_created(log)
            return (True, [line], None) if line else (None, [], None)
        if line := litertjs_log.fell_back(log):
            return False, [line], FailureClass.SILENT_CPU_FALLBACK
        if facts.get("accelerator") not in (None, self.accelerator):
            line = f"page: compiled for {facts['accelerator']}, asked for {self.accelerator}"
            return False, [line], FailureClass.SILENT_CPU_FALLBACK
        evidence = [line for line in (self._started(text), litertjs_log.partial_notice(log)) if line]
        if outputs := facts.get("outputs_served_by"):
            evidence.append(f"page: outputs came from {', '.join(sorted(set(outputs)))} memory")
        if not self._started(text):
            return False, evidence, FailureClass.SILENT_CPU_FALLBACK
        return True, evidence, None

    def _started(self, text: str) -> str | None:
        """The line with which the accelerator's engine says that it takes a graph."""
        return litert_log.gpu_started(text)


class WasmLane(BrowserLane):
    """WebAssembly on the CPU, through XNNPACK."""

    name = "wasm_xnnpack"
    summary = "browser CPU: LiteRT.js, WebAssembly, XNNPACK"
    accelerator = "wasm"
    accelerated = False
    order = 40


class WebGpuLane(BrowserLane):
    """WebGPU, through the ML Drift engine."""

    name = "webgpu_mldrift"
    summary = "browser GPU: LiteRT.js, WebGPU, ML Drift"
    accelerator = "webgpu"
    precision = "fp16"
    order = 50
    probe = "assay.probe.browser"


class WebNnLane(BrowserLane):
    """WebNN, which LiteRT.js and Chromium call experimental."""

    name = "webnn"
    summary = "browser WebNN (experimental): LiteRT.js, whatever serves navigator.ml"
    accelerator = "webnn"
    precision = "fp16"
    order = 60
    experimental = True
    asks_consent = True

    def measure(self, job: Job, observation: Observation) -> None:
        """As the other lanes, if the job says that experimental lanes may run."""
        if not job.options.get("experimental"):
            observation.error = "the lane webnn is experimental, and the job does not say that it may run"
            observation.error_class = FailureClass.LANE_UNAVAILABLE
            save_observation(job, observation)
            return
        super().measure(job, observation)


def _refusals(report: litert_log.Delegation | None) -> tuple[Refusal, ...]:
    counts = Counter(report.refusals if report else ())
    return tuple(Refusal(op, reason, count) for (op, reason), count in counts.items())


def _metrics(facts: dict[str, Any]) -> dict[str, float | int | str | bool | None]:
    """Scalars of a run for its record; what was not reached is left out."""
    runtime: dict[str, Any] = facts.get("runtime") or {}
    memory: dict[str, Any] = facts.get("memory") or {}
    webgpu: dict[str, Any] = (facts.get("browser") or {}).get("webgpu") or {}
    page: dict[str, Any] = facts.get("browser") or {}
    figures: dict[str, Any] = {
        "runtime_load_ms": runtime.get("ms"),
        "wasm_threads": runtime.get("thread_count"),
        "model_fetch_ms": facts.get("model_fetch_ms"),
        "inference_total_ms": facts.get("inference_ms"),
        "js_heap_mb": memory.get("js_heap_mb"),
        "wasm_memory_mb": memory.get("wasm_memory_mb"),
        "hardware_concurrency": page.get("hardware_concurrency"),
        "device_memory_gb": page.get("device_memory_gb"),
        "js_heap_limit_mb": page.get("js_heap_limit_mb"),
        "webgpu_is_fallback_adapter": webgpu.get("is_fallback"),
        "webgpu_max_texture_2d": (webgpu.get("limits") or {}).get("maxTextureDimension2D"),
        "webgpu_max_storage_buffer_mb": _mib((webgpu.get("limits") or {}).get("maxStorageBufferBindingSize")),
    }
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
        if value is not None
    }


def _lacks_f16(facts: dict[str, Any]) -> bool:
    asked: str | None = facts.get("precision")
    return asked == "fp32" or (facts.get("env") or {}).get("shader_f16") is False


def _mib(size: float | None) -> float | None:
    return None if size is None else size / 2**20
