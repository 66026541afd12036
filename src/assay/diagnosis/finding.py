"""What a diagnosis found, as one document."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NodeRef:
    """A node of the whole graph.

    Attributes:
        index: Its place in the order of execution.
        op: Its op.
        outputs: Names of the tensors that it computes.
        shapes: Their shapes.
    """

    index: int
    op: str
    outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class File:
    """A file that was handed over.

    Attributes:
        path: Where it is, relative to the folder of the finding.
        size_bytes: Its size.
        sha256: Its digest.
    """

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Fix:
    """A rewrite that was tried on the whole model.

    Attributes:
        rewrite: Its name.
        summary: What it does.
        equal_on_reference: True if the reference gives the same results for the rewritten model.
        reference_max_abs_diff: Largest difference there; None if it did not run.
        right_on_lane: True if the lane is right on the rewritten model.
        lane_max_abs_diff: Largest difference there; None if it did not run.
        full_delegation: True if the lane then takes every node; None if unknown.
        file: The rewritten model, if it was written.
    """

    rewrite: str
    summary: str
    equal_on_reference: bool
    reference_max_abs_diff: float | None
    right_on_lane: bool
    lane_max_abs_diff: float | None
    full_delegation: bool | None
    file: File | None = None


@dataclass(frozen=True)
class RefusedOp:
    """Ops that the accelerator refuses, and what they cost; nodes that hand values to each other count as one.

    Attributes:
        ops: The ops, in the order in which values pass.
        reasons: The reasons, word for word.
        nodes: Indices of all nodes that are refused so.
        crossings_saved: How many fewer tensors would cross between accelerator and CPU if these were taken.
    """

    ops: tuple[str, ...]
    reasons: tuple[str, ...]
    nodes: tuple[int, ...]
    crossings_saved: int


@dataclass(frozen=True)
class Region:
    """Time of one part of the graph on the lane and on the CPU.

    Attributes:
        first: First node.
        last: Last node.
        ops: Its most frequent ops.
        lane_ms: Median on the lane, host to host, in milliseconds; None if it did not run.
        cpu_ms: Median on the CPU lane.
        delegated: Nodes that the accelerator took; None if unknown.
        total: Nodes.
    """

    first: int
    last: int
    ops: tuple[str, ...]
    lane_ms: float | None
    cpu_ms: float | None
    delegated: int | None
    total: int


@dataclass(frozen=True)
class Delegation:
    """What the accelerator refuses and what that costs.

    Attributes:
        delegated: Nodes that it took; None if unknown.
        total: Nodes.
        crossings: Tensors that cross between accelerator and CPU, as far as the refused nodes are known.
        partitions: Runs of nodes on the same side, in the order of execution; known as far.
        refused: Refused ops, the costliest first.
        whole_ms: Median of the whole model on the lane, in milliseconds.
        delegated_part_ms: Median of the nodes that are taken, as one model without the refused ones between.
        best_gain_ms: What full delegation would save at best: `whole_ms - delegated_part_ms`, if positive.
        regions: Time by region, where it was asked for.
    """

    delegated: int | None
    total: int | None
    crossings: int | None = None
    partitions: int | None = None
    refused: tuple[RefusedOp, ...] = ()
    whole_ms: float | None = None
    delegated_part_ms: float | None = None
    best_gain_ms: float | None = None
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Cost:
    """What the diagnosis took.

    Attributes:
        launches: Processes started.
        pieces: Models run.
        resumed: Verdicts taken from the log of an earlier, stopped diagnosis.
        seconds: Wall time, in seconds.
    """

    launches: int
    pieces: int
    resumed: int
    seconds: float


@dataclass
class Finding:
    """What is wrong with a model on a lane, where, of what kind, and what to do.

    Attributes:
        model: File name of the model.
        sha256: Digest of the file.
        size_bytes: Its size.
        lane: The lane.
        reference: The lane that it was compared with.
        on: Adapter, driver and versions that served the lane.
        environment: Facts of this machine.
        date: Day of the diagnosis, ISO.
        symptom: `none`, `wrong`, `stale`, `unstable`, `failed` or `converter`.
        sentence: What was found, in one sentence.
        inputs: The inputs that show it.
        max_abs_diff: Largest difference at an output of the whole model; None if not finite or not run.
        worst_output: Name of that output.
        times_limit: That difference over what arithmetic explains.
        failure: Failure class of the whole model, or None.
        error: One sentence for it.
        nodes: The nodes that are named.
        isolated: True if one node alone shows the fault.
        alone: What each of the nodes did alone.
        kind: Kind of fault, see `assay.diagnosis.kinds.Kind`.
        also: Further kinds that were seen.
        because: What shows the kind, in sentences.
        clues: What the wrong values look like.
        alike: Other places with the same ops: tried, of, faulty.
        side_findings: Pieces that failed on the way, in sentences.
        evidence: Log lines, word for word.
        smallest: The smallest file that shows it.
        smallest_max_abs_diff: Largest difference on it.
        files: All files that were written, by what they are.
        fixes: Rewrites that were tried.
        suggestion: What to do, in one sentence.
        delegation: What is refused and what that costs; None if the lane has no accelerator.
        cost: What it took.
    """

    model: str
    sha256: str
    size_bytes: int
    lane: str
    reference: str
    on: str
    environment: dict[str, Any]
    date: str
    symptom: str = "none"
    sentence: str = ""
    inputs: str = ""
    max_abs_diff: float | None = None
    worst_output: str | None = None
    times_limit: float | None = None
    failure: str | None = None
    error: str | None = None
    nodes: tuple[NodeRef, ...] = ()
    isolated: bool | None = None
    alone: tuple[str, ...] = ()
    kind: str | None = None
    also: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()
    alike: dict[str, Any] | None = None
    side_findings: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    smallest: File | None = None
    smallest_max_abs_diff: float | None = None
    files: dict[str, str] = field(default_factory=dict[str, str])
    fixes: tuple[Fix, ...] = ()
    suggestion: str | None = None
    delegation: Delegation | None = None
    cost: Cost | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"kind_of_document": "diagnosis", **dataclasses.asdict(self)}

    @property
    def found(self) -> bool:
        """True if something is wrong, or the lane does not take the whole graph."""
        refused = self.delegation is not None and bool(self.delegation.refused)
        return self.symptom != "none" or refused
