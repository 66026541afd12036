"""A lane that is wrong on purpose, to prove that what looks for faults finds them. Not for measuring anything.

It is not in the list of lanes; tests and benchmarks name it as `assay.lanes.fault:FaultLane`. It runs the model
with plain CPU kernels and corrupts the results of chosen nodes, alone or only where certain other nodes are in
the same file, as a fusion or a partition fault would.

Job option `faults` is a list of objects:

| key | meaning |
|---|---|
| `op` | hits nodes of this op; every op by default |
| `output` | hits the node that computes the tensor of this name |
| `context` | only if the file also computes all the tensors of these names |
| `rank` | only if the result has this rank |
| `broadcast` | true: only if two run-time inputs have different shapes |
| `least` | only if the result has at least so many elements |
| `kind` | a fault of `assay.numerics.faults.inject`, or `flaky`, `fp16`, `crash`, `hang`, `refuse` |
| `size`, `seed` | of that fault |
| `cured_by` | name of a job option that, if true, makes the fault go away |
"""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay import graph
from assay.lanes.base import Availability, Lane, LaneFacts
from assay.lanes.job import Job, Json, Observation
from assay.lanes.native import Array, Invoke, runtime_version
from assay.numerics.faults import inject

if TYPE_CHECKING:
    from assay.lanes.options import LaneOptions

Fault = dict[str, Json]


class FaultLane(Lane):
    """CPU kernels with faults injected; see the module."""

    name = "fault_injecting"
    summary = "CPU with faults injected on purpose; for tests and benchmarks only"
    experimental = True

    def available(self) -> Availability:
        """Always, where the runtime is installed."""
        return Availability(True, on="plain CPU kernels with injected faults")

    def options_model(self) -> type[LaneOptions]:
        """What goes wrong."""
        from assay.lanes.litert_options import FaultOptions

        return FaultOptions

    def load(self, job: Job) -> Invoke:
        """Run the model part by part and corrupt what the job's option `faults` says."""
        self.facts["runtime_version"] = runtime_version()
        return _load(job)

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """It always serves the run itself."""
        served = observation is not None and observation.load_ms is not None
        return LaneFacts(served=served, evidence=("plain CPU kernels with injected faults",) if served else ())


@dataclass(frozen=True)
class _Segment:
    """Nodes up to one whose results are corrupted.

    Attributes:
        interpreter: Ready to run them.
        inputs: Tensor index in the model and index in the interpreter, for each input.
        outputs: The same for each output.
        corrupted: Tensors to corrupt afterwards, with their faults.
    """

    interpreter: Any
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, int]]
    corrupted: list[tuple[int, Fault]]

    def run(self, values: dict[int, Array]) -> None:
        details = {detail["index"]: detail["shape"] for detail in self.interpreter.get_input_details()}
        resized = [(t, index) for t, index in self.inputs if tuple(details[index]) != values[t].shape]
        for tensor, index in resized:
            self.interpreter.resize_tensor_input(index, values[tensor].shape)
        if resized:
            self.interpreter.allocate_tensors()
        for tensor, index in self.inputs:
            self.interpreter.set_tensor(index, values[tensor])
        self.interpreter.invoke()
        for tensor, index in self.outputs:
            values[tensor] = self.interpreter.get_tensor(index)


def _load(job: Job) -> Invoke:
    model = graph.read(job.model).copy()
    signature = model.signature(job.signature)
    subgraph = model.subgraphs[signature.subgraph]
    inputs = [entry.tensor.index for entry in signature.inputs]
    outputs = [entry.tensor.index for entry in signature.outputs]
    for spec, tensor in zip(job.inputs, inputs, strict=True):
        subgraph.tensors[tensor].shape, subgraph.tensors[tensor].shape_signature = spec.shape, None
    faults = _matches(subgraph, job.options)
    for found in faults.values():
        _act(str(found["kind"]))
    # The parts are put together by name.
    for tensor in subgraph.tensors:
        tensor.name = f"t{tensor.index}"
    folded = _fold_faulty_constants(model, subgraph, faults, job.threads)
    segments = _segments(model, subgraph, faults, job.threads)
    previous: dict[int, Array] = {}

    def invoke(arrays: list[Array]) -> list[Array]:
        values = {**folded, **dict(zip(inputs, arrays, strict=True))}
        for segment in segments:
            segment.run(values)
            for tensor, fault in segment.corrupted:
                right = values[tensor]
                values[tensor] = _corrupt(fault, right, previous.get(tensor))
                previous[tensor] = right
        return [values[tensor] for tensor in outputs]

    return invoke


def _matches(subgraph: graph.Subgraph, options: dict[str, Json]) -> dict[int, Fault]:
    """Node index -> its fault, for the first fault that hits it."""
    computed = {subgraph.tensors[tensor].name for node in subgraph.nodes for tensor in node.outputs}
    found: dict[int, Fault] = {}
    for fault in options.get("faults", []):
        if options.get(str(fault.get("cured_by"))):
            continue
        if not set(fault.get("context", [])) <= computed:
            continue
        for node in subgraph.nodes:
            if node.index not in found and _hits(fault, subgraph, node):
                found[node.index] = fault
    return found


def _hits(fault: Fault, subgraph: graph.Subgraph, node: graph.Node) -> bool:
    result = subgraph.tensors[node.outputs[0]]
    if fault.get("op") not in (None, node.op):
        return False
    if fault.get("output") is not None and fault["output"] not in [subgraph.tensors[t].name for t in node.outputs]:
        return False
    if fault.get("rank") not in (None, len(result.shape)) or result.elements < fault.get("least", 0):
        return False
    if fault.get("broadcast"):
        read = [subgraph.tensors[t] for t in node.inputs if t >= 0]
        return len({tensor.shape for tensor in read if not tensor.is_constant}) > 1
    return True


def _act(kind: str) -> None:
    """The faults that end the process, or the load."""
    if kind == "crash":
        os.abort()
    if kind == "hang":
        time.sleep(1e6)
    if kind == "refuse":
        raise RuntimeError("Unsupported operation: refused on purpose")


def _corrupt(fault: Fault, right: Array, previous: Array | None) -> Array:
    kind = str(fault["kind"])
    if right.dtype.kind == "f" and kind == "flaky":
        noise = np.random.default_rng(int.from_bytes(os.urandom(8))).normal(size=right.shape)
        return (right + noise * (np.abs(right).mean() + 1e-3)).astype(right.dtype)
    if right.dtype.kind == "f" and kind == "fp16":
        with np.errstate(over="ignore"):
            return right.astype(np.float16).astype(right.dtype)
    if kind == "stale" and previous is None:
        # The first inference of a lane with stale state is right: there is nothing before it.
        return right
    return inject(kind, right, size=fault.get("size", "large"), seed=fault.get("seed", 0), previous=previous)


def _fold_faulty_constants(
    model: graph.Model, subgraph: graph.Subgraph, faults: dict[int, Fault], threads: int
) -> dict[int, Array]:
    """A faulty node that depends on constants alone is run now, and its corrupted result is written in.

    Returns:
        Tensor index -> corrupted result.
    """
    prepared: set[int] = set()
    folded: dict[int, Array] = {}
    for node in list(subgraph.nodes):
        read = [tensor for tensor in node.inputs if tensor >= 0]
        if not read or not all(subgraph.tensors[t].is_constant or t in prepared for t in read):
            continue
        prepared.update(node.outputs)
        if node.index not in faults:
            continue
        values: dict[int, Array] = {}
        _segment(model, subgraph, [node.index], threads).run(values)
        for tensor in node.outputs:
            wrong = folded[tensor] = _corrupt(faults[node.index], values[tensor], None)
            model.buffers.append(graph.Buffer(np.ascontiguousarray(wrong).tobytes()))
            subgraph.tensors[tensor].buffer = len(model.buffers) - 1
            subgraph.tensors[tensor].is_constant = True
        # It stays in the list, so that indices hold, but nothing reads what it computes.
        node.outputs = [_unread(subgraph, tensor) for tensor in node.outputs]
        del faults[node.index]
    return folded


def _unread(subgraph: graph.Subgraph, tensor: int) -> int:
    index = len(subgraph.tensors)
    subgraph.tensors.append(
        dataclasses.replace(subgraph.tensors[tensor], index=index, name=f"t{index}", buffer=0, is_constant=False)
    )
    return index


def _segments(
    model: graph.Model, subgraph: graph.Subgraph, faults: dict[int, Fault], threads: int
) -> list[_Segment]:
    segments: list[_Segment] = []
    begun: list[int] = []
    for node in subgraph.nodes:
        begun.append(node.index)
        if node.index in faults or node is subgraph.nodes[-1]:
            segment = _segment(model, subgraph, begun, threads)
            if node.index in faults:
                segment.corrupted.extend((tensor, faults[node.index]) for tensor in node.outputs if tensor >= 0)
            segments.append(segment)
            begun = []
    return segments


def _segment(model: graph.Model, subgraph: graph.Subgraph, nodes: list[int], threads: int) -> _Segment:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    part = graph.cut(model, nodes, subgraph.index)
    custom = any(node.is_custom for node in part.subgraphs[0].nodes)
    # XNNPACK has MediaPipe's custom ops; plain kernels take the rest, since they are what faults are told from.
    kernels = OpResolverType.BUILTIN if custom else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=graph.write(part), num_threads=threads, experimental_op_resolver_type=kernels
    )
    interpreter.allocate_tensors()

    def listed(details: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(int(detail["name"][1:]), detail["index"]) for detail in details]

    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    return _Segment(interpreter, listed(inputs), listed(outputs), [])
