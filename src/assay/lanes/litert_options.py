"""Options of the lanes of the LiteRT runtime."""

from typing import Any, Literal

from pydantic import Field

from assay.lanes.options import LaneOptions


class ReferenceOptions(LaneOptions):
    """Options of `cpu_reference`."""

    kernels: Literal["reference"] | None = Field(
        default=None,
        description="`reference` takes the plainest kernels, slow.",
        json_schema_extra={"hidden": True},
    )


class MlDriftOptions(LaneOptions):
    """Options of `gpu_mldrift`."""

    enforce_f32: bool = Field(
        default=False, description="Ask the GPU for fp32 arithmetic.", json_schema_extra={"flag": "gpu-fp32"}
    )
    partition: bool = Field(
        default=False,
        description="Ask GPU and CPU together at once, not the GPU alone first.",
        json_schema_extra={"hidden": True},
    )


class FaultOptions(LaneOptions):
    """Options of `assay.lanes.fault:FaultLane`; whatever its `cured_by` names is an option too."""

    faults: list[dict[str, Any]] = Field(
        default=[], description="What goes wrong.", json_schema_extra={"hidden": True}
    )
