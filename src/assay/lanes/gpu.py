"""The native GPU lane: LiteRT's ML Drift engine over WebGPU (Vulkan, Metal or Direct3D underneath)."""

from __future__ import annotations

import ctypes.util
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.distribution import install_runtime
from assay.evidence import litert_log
from assay.lanes.base import Availability, Lane, LaneFacts, Refusal
from assay.lanes.job import Job, Json, Observation
from assay.lanes.native import Array, Invoke, runtime_version
from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from assay.lanes.options import LaneOptions

_NEEDS_CPU = "Some ops are not accelerated"
_ICD_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_ICD_FOLDERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_SWIFTSHADER = (
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib/chromium-browser/vk_swiftshader_icd.json",
    "/opt/google/chrome/vk_swiftshader_icd.json",
)
# Mesa's software driver; Debian 12's own (22.3) is refused by the engine, so it never counts as a GPU.
_SOFTWARE_ICD = ("lvp_icd", "swiftshader")


def _hardware_icds() -> list[str]:
    """Vulkan drivers of graphics hardware that is there."""
    if not list(Path("/dev/dri").glob("renderD*")) and not Path("/dev/nvidiactl").exists():
        return []
    files = [str(path) for folder in _ICD_FOLDERS for path in sorted(Path(folder).glob("*.json"))]
    return [path for path in files if not any(word in Path(path).name for word in _SOFTWARE_ICD)]


def vulkan_driver() -> tuple[str | None, str]:
    """Which Vulkan driver file to use, and why: the user's choice, the hardware's, else a software one."""
    for variable in _ICD_VARIABLES:
        if chosen := os.environ.get(variable):
            return chosen, f"{variable} is set"
    if hardware := _hardware_icds():
        return os.pathsep.join(hardware), "hardware"
    for path in _SWIFTSHADER:
        if Path(path).is_file():
            return path, "software, no graphics hardware found"
    return None, "no Vulkan driver found"


class MlDriftLane(Lane):
    """The ML Drift GPU engine through `CompiledModel`.

    The GPU alone is asked first: it refuses a graph with an op that it cannot take, so a graph it accepts is
    fully delegated. Where it refuses, GPU and CPU together partition the graph.

    Options: `enforce_f32: true` asks for fp32 arithmetic; `partition: true` goes to GPU and CPU at once.
    """

    name = "gpu_mldrift"
    summary = "GPU, native ML Drift engine through WebGPU/Vulkan"
    precision = "fp16"
    order = 30
    probe = "assay.probe.worker"

    def options_model(self) -> type[LaneOptions]:
        """Arithmetic and partition."""
        from assay.lanes.litert_options import MlDriftOptions

        return MlDriftOptions

    def available(self) -> Availability:
        """Whether the engine's library and a graphics driver are there; which adapter it takes, a run shows."""
        try:
            import ai_edge_litert

            version = runtime_version()
        except ImportError:
            return Availability(False, reason="ai-edge-litert is missing", fix=install_runtime())
        library = next(Path(ai_edge_litert.__path__[0]).glob("libLiteRtWebGpuAccelerator.*"), None)
        if library is None:
            return Availability(
                False,
                reason=f"the runtime for {platform.system()} {platform.machine()} carries no GPU engine",
                fix="use a platform whose ai-edge-litert wheel has libLiteRtWebGpuAccelerator",
            )
        if platform.system() != "Linux":
            return Availability(True, on=f"LiteRT {version}", details={"runtime_version": version})
        if ctypes.util.find_library("vulkan") is None:
            return Availability(
                False, reason="the Vulkan loader libvulkan.so.1 is missing", fix="apt-get install libvulkan1"
            )
        driver, why = vulkan_driver()
        if driver is None:
            return Availability(
                False,
                reason="no Vulkan driver: no graphics hardware's and no software one",
                fix="apt-get install chromium (it ships SwiftShader), or set VK_ICD_FILENAMES",
            )
        on = f"Vulkan driver {driver} ({why}), LiteRT {version}"
        return Availability(True, on=on, details={"runtime_version": version, "driver": driver})

    def child_env(self, options: dict[str, Json]) -> dict[str, str]:
        """Point the Vulkan loader at the driver chosen."""
        if platform.system() != "Linux" or any(os.environ.get(name) for name in _ICD_VARIABLES):
            return {}
        driver, _ = vulkan_driver()
        return {"VK_ICD_FILENAMES": driver} if driver else {}

    def load(self, job: Job) -> Invoke:
        """Compile for the GPU. A call returns only when outputs are read back: a run returns before it is done."""
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.gpu_options import GpuOptions
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import CpuOptions, Options

        facts = self.facts
        facts["runtime_version"] = runtime_version()
        facts["enforce_f32"] = bool(job.options.get("enforce_f32", False))

        def compile_for(accelerators: Any) -> Any:
            options = Options(
                hardware_accelerators=accelerators,
                cpu_options=CpuOptions(num_threads=job.threads),
                gpu_options=GpuOptions(enforce_f32=facts["enforce_f32"]),
            )
            return CompiledModel.from_file(job.model, options=options)

        model = None
        if not job.options.get("partition"):
            facts["mode"] = "gpu"
            try:
                model = compile_for(HardwareAccelerator.GPU)
            except RuntimeError as error:
                if _NEEDS_CPU not in str(error):
                    raise
                facts["refused_alone"] = str(error).splitlines()[-1].strip(" └")
        if model is None:
            facts["mode"] = "gpu|cpu"
            model = compile_for(HardwareAccelerator.GPU | HardwareAccelerator.CPU)
        facts["is_fully_accelerated"] = model.is_fully_accelerated()
        return _buffered_invoke(model, job)

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """Delegation from the engine's log. The API's own flag is kept as evidence, never taken as proof."""
        adapter = litert_log.adapter(log)
        report = litert_log.delegation(log)
        started = litert_log.gpu_started(log)
        evidence = [adapter.line] if adapter else []
        evidence += [started] if started else []
        evidence += litert_log.graphics_errors(log)
        refusals: tuple[Refusal, ...] = ()
        served = full = delegated = total = None
        enforced = bool(observation and observation.facts.get("enforce_f32"))
        mode = observation.facts.get("mode") if observation else None
        loaded = observation is not None and observation.load_ms is not None
        if report is not None:
            evidence += report.lines
            delegated, total = report.delegated, report.delegated + report.remaining
            full = report.remaining == 0
            refusals = _count(report.refusals)
        if observation is not None and "is_fully_accelerated" in observation.facts:
            flag = observation.facts["is_fully_accelerated"]
            evidence.append(f"api: compiled for {mode}, is_fully_accelerated={flag}")
            if report is None:
                # Without a partition report the graph is whole; alone, the GPU refuses any graph with an op
                # that it cannot take, so there is nothing that the CPU could have served.
                full = True if mode == "gpu" and flag and started else None
        if loaded:
            served = bool(adapter and started) and delegated != 0
        failure = None
        if loaded and not served:
            failure = FailureClass.SILENT_CPU_FALLBACK
        return LaneFacts(
            served=served,
            full_delegation=full,
            delegated_ops=delegated,
            total_ops=total,
            refusals=refusals,
            evidence=tuple(evidence),
            failure=failure,
            adapter=f"{adapter.name} ({adapter.backend})" if adapter else None,
            adapter_kind=None if adapter is None else "software" if adapter.software else "hardware",
            precision="fp32" if enforced else None,
            metrics={"enforce_f32": enforced},
        )


def _count(refusals: tuple[tuple[str, str], ...]) -> tuple[Refusal, ...]:
    counts: dict[tuple[str, str], int] = {}
    for refusal in refusals:
        counts[refusal] = counts.get(refusal, 0) + 1
    return tuple(Refusal(op, reason, count) for (op, reason), count in counts.items())


def _buffered_invoke(model: Any, job: Job) -> Invoke:
    keys = list(model.get_signature_list())
    index = keys.index(job.signature) if job.signature is not None else 0
    signature = model.get_signature_by_index(index)
    for spec in job.inputs:
        if spec.name in job.resized:
            model.resize_input_tensor_by_name(keys[index], spec.name, spec.shape, strict=False)
    inputs = {spec.name: model.create_input_buffer_by_name(keys[index], spec.name) for spec in job.inputs}
    outputs = {spec.name: model.create_output_buffer_by_name(keys[index], spec.name) for spec in job.outputs}
    # By index, buffers go in the order of the runtime's own list.
    ordered_inputs = [inputs[name] for name in signature["inputs"]]
    ordered_outputs = [outputs[name] for name in signature["outputs"]]
    # The file may leave an output's shape open; the compiled model knows it.
    details = model.get_output_tensor_details(keys[index])
    shapes = [tuple(int(size) for size in details[spec.name]["shape"]) for spec in job.outputs]
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]

    def invoke(arrays: list[Array]) -> list[Array]:
        for spec, array in zip(job.inputs, arrays, strict=True):
            inputs[spec.name].write(array)
        model.run_by_index(index, ordered_inputs, ordered_outputs)
        return [
            outputs[spec.name].read(size, np.dtype(spec.dtype)).reshape(shape)
            for spec, size, shape in zip(job.outputs, sizes, shapes, strict=True)
        ]

    return invoke
