"""The CPU lanes: `cpu_xnnpack`, and `cpu_reference`, the same kernels without XNNPACK to check it by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.distribution import install_runtime
from assay.lanes.base import Availability, Lane, LaneFacts
from assay.lanes.job import Job, Json, Observation
from assay.lanes.native import Array, Invoke, runtime_version

if TYPE_CHECKING:
    from assay.lanes.options import LaneOptions


def _availability() -> Availability:
    try:
        version = runtime_version()
    except ImportError:
        return Availability(False, reason="ai-edge-litert is missing", fix=install_runtime())
    from assay.protocol import machine

    on = f"{machine.cpu_model()}, LiteRT {version}"
    return Availability(True, on=on, details={"runtime_version": version, "adapter": None})


class CpuLane(Lane):
    """What both CPU lanes share; a subclass says which kernels."""

    accelerated = False
    delegate: str | None = None

    def _resolver(self, options: dict[str, Json]) -> Any:
        raise NotImplementedError

    def available(self) -> Availability:
        """Always, where the runtime is installed."""
        return _availability()

    def load(self, job: Job) -> Invoke:
        """Load with the TFLite interpreter of the LiteRT runtime."""
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(
            model_path=job.model,
            num_threads=job.threads,
            experimental_op_resolver_type=self._resolver(job.options),
        )
        self.facts["runtime_version"] = runtime_version()
        if job.signature is not None:
            return _signature_invoke(interpreter, job)
        invoke = _plain_invoke(interpreter, job)
        self.facts["delegation"] = _delegation(interpreter)
        return invoke

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """Delegation from the node list that the interpreter holds after the delegate was applied."""
        if observation is None:
            return LaneFacts()
        created = tuple(line for line in log.splitlines() if "XNNPACK delegate" in line)[:1]
        counts = observation.facts.get("delegation")
        if self.delegate is None or counts is None:
            # The interpreter runs the model itself; nothing else could have served it.
            return LaneFacts(served=observation.load_ms is not None, evidence=created)
        delegated, total = counts["delegated"], counts["total"]
        line = f"interpreter: {delegated} of {total} nodes in {counts['partitions']} DELEGATE node(s)"
        # A graph of which XNNPACK takes nothing is served by the other kernels of the same CPU lane.
        return LaneFacts(
            served=True,
            full_delegation=delegated == total and total > 0,
            delegated_ops=delegated,
            total_ops=total,
            evidence=(*created, line),
            metrics={"partitions_count": counts["partitions"]},
        )


class XnnpackLane(CpuLane):
    """LiteRT on the CPU as users get it: XNNPACK for what it takes, plain kernels for the rest."""

    name = "cpu_xnnpack"
    summary = "CPU, XNNPACK kernels (what a user gets by default)"
    reference_rank = 1
    calibrates = True
    order = 20
    delegate = "XNNPACK"

    def _resolver(self, options: dict[str, Json]) -> Any:
        from ai_edge_litert.interpreter import OpResolverType

        return OpResolverType.BUILTIN


class ReferenceLane(CpuLane):
    """LiteRT's own kernels without any delegate. Option `kernels: reference` takes the plainest ones, slow."""

    name = "cpu_reference"
    summary = "CPU, plain kernels without XNNPACK (what others are compared with)"
    reference_rank = 0
    order = 10

    def options_model(self) -> type[LaneOptions]:
        """Which kernels."""
        from assay.lanes.litert_options import ReferenceOptions

        return ReferenceOptions

    def _resolver(self, options: dict[str, Json]) -> Any:
        from ai_edge_litert.interpreter import OpResolverType

        if options.get("kernels") == "reference":
            return OpResolverType.BUILTIN_REF
        return OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def _plain_invoke(interpreter: Any, job: Job) -> Invoke:
    inputs = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    for index, spec in zip(inputs, job.inputs, strict=True):
        if spec.name in job.resized:
            interpreter.resize_tensor_input(index, spec.shape, strict=False)
    interpreter.allocate_tensors()

    def invoke(arrays: list[Array]) -> list[Array]:
        for index, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return invoke


def _signature_invoke(interpreter: Any, job: Job) -> Invoke:
    # The runner sets shapes and allocates at every call, which would count as inference time; so the loop
    # below uses the interpreter's tensors of that signature, as the runner does inside.
    runner = interpreter.get_signature_runner(job.signature)
    wrapper, subgraph = interpreter._interpreter, runner._subgraph_index
    inputs = [runner._inputs[spec.name] for spec in job.inputs]
    by_name = dict(runner._outputs)
    outputs = [by_name[spec.name] for spec in job.outputs]
    for index, spec in zip(inputs, job.inputs, strict=True):
        if spec.name in job.resized:
            wrapper.ResizeInputTensor(index, np.array(spec.shape, dtype=np.int32), False, subgraph)
    wrapper.AllocateTensors(subgraph)

    def invoke(arrays: list[Array]) -> list[Array]:
        for index, array in zip(inputs, arrays, strict=True):
            wrapper.SetTensor(index, array, subgraph)
        wrapper.Invoke(subgraph)
        return [wrapper.GetTensor(index, subgraph) for index in outputs]

    return invoke


def _delegation(interpreter: Any) -> dict[str, int]:
    """Count the nodes that DELEGATE nodes stand for, by walking back from their outputs to their inputs.

    The node list keeps the replaced nodes and appends the delegates; the execution plan is not exposed.
    """
    nodes = interpreter._get_ops_details()
    delegates = [node for node in nodes if node["op_name"] == "DELEGATE"]
    plain = [node for node in nodes if node["op_name"] != "DELEGATE"]
    producer = {int(tensor): node["index"] for node in plain for tensor in node["outputs"] if tensor >= 0}
    by_index = {node["index"]: node for node in plain}
    taken: set[int] = set()
    for delegate in delegates:
        border = {int(tensor) for tensor in delegate["inputs"]}
        stack = [int(tensor) for tensor in delegate["outputs"]]
        while stack:
            tensor = stack.pop()
            node = producer.get(tensor)
            if node is None or node in taken or tensor in border:
                continue
            taken.add(node)
            stack.extend(int(each) for each in by_index[node]["inputs"] if each >= 0)
    return {"delegated": len(taken), "total": len(plain), "partitions": len(delegates)}
