"""What lint says: plain objects, and the JSON document made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from assay.linting.matrix import Answer
from assay.linting.source import module_path


@dataclass(slots=True)
class NodeReport:
    """One node.

    Attributes:
        index: Its index in its subgraph.
        op: Its op.
        output: Name of its first output tensor.
        signature: Its signature as text.
        answer: What the lane does with it.
        place: `accelerator`, `cpu`, `folded` (a float16 weight's DEQUANTIZE that disappears), or `unknown`.
        stranded: True if the lane would take it and leaves it on the CPU, since it takes one partition only.
    """

    index: int
    op: str
    output: str
    signature: str
    answer: Answer
    place: str
    stranded: bool = False

    @property
    def module(self) -> str:
        """Path of the source module, read from the output's name; empty if the name has none."""
        return module_path(self.output)


@dataclass(frozen=True)
class Finding:
    """Something to know or to change.

    Attributes:
        rule: Short name of the rule.
        severity: `error` (will not load or run), `fallback` (runs on the CPU), `warning` (runs, and may be wrong
            or slow), `unknown` (not measured).
        message: What is so.
        hint: What to do about it; empty if nothing is known.
        nodes: `(subgraph, node)` pairs that it is about.
        modules: Source modules of those nodes.
        evidence: Where it is known from: measured lines, or a public source.
        rewrite: Name of the conversion rewrite that cures it (`assay convert --rewrite`), or None.
    """

    rule: str
    severity: str
    message: str
    hint: str
    nodes: tuple[tuple[int, int], ...]
    modules: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    rewrite: str | None = None


@dataclass(frozen=True)
class SubgraphReport:
    """One subgraph.

    Attributes:
        index: Its index in the model.
        name: Its name.
        total: Nodes in it.
        delegated: Nodes that the accelerator gets; None if unknown nodes leave that open.
        delegated_range: Fewest and most nodes that it can get, unknown ones refused or taken.
        partitions: Accelerator parts in the order of execution, as node indices; unknown ones counted as refused.
        crossings: Tensors that pass between accelerator and CPU inside of the graph.
        crossing_bytes: Their sizes together.
        whole_refusal: Why the subgraph as a whole cannot be given to the accelerator, or None.
        nodes: Every node.
    """

    index: int
    name: str
    total: int
    delegated: int | None
    delegated_range: tuple[int, int]
    partitions: tuple[tuple[int, ...], ...]
    crossings: int
    crossing_bytes: int
    whole_refusal: str | None
    nodes: tuple[NodeReport, ...]

    def count(self, *statuses: str) -> int:
        """Nodes with one of these statuses, folded ones not counted."""
        return sum(node.answer.status in statuses and node.place != "folded" for node in self.nodes)


@dataclass(frozen=True)
class LintReport:
    """A whole model on one lane.

    Attributes:
        model: The file, or None for one in memory.
        lane: The lane.
        runtime: The runtime that the matrix was measured on, as its package is called.
        runtime_version: Its version.
        adapter: Adapter that the matrix was measured on.
        measured: Days of the measurements, first and last.
        subgraphs: Every subgraph.
        findings: Most serious first.
    """

    model: str | None
    lane: str
    runtime: str
    runtime_version: str
    adapter: str | None
    measured: tuple[str, str]
    subgraphs: tuple[SubgraphReport, ...]
    findings: tuple[Finding, ...] = field(default=())

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def count(self, *statuses: str) -> int:
        """Nodes of all subgraphs with one of these statuses."""
        return sum(subgraph.count(*statuses) for subgraph in self.subgraphs)

    @property
    def partitions(self) -> int:
        """Accelerator parts of all subgraphs."""
        return sum(len(subgraph.partitions) for subgraph in self.subgraphs)

    @property
    def fallback(self) -> bool:
        """True if nodes will run on the CPU, or the model will not load."""
        return any(
            subgraph.whole_refusal is not None
            or subgraph.count("refused", "failed", "crash") > 0
            or any(node.stranded for node in subgraph.nodes)
            for subgraph in self.subgraphs
        )

    @property
    def delegated(self) -> int | None:
        """Nodes that the accelerator gets, of all subgraphs; None if that is open."""
        counts = [subgraph.delegated for subgraph in self.subgraphs]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def total(self) -> int:
        """Nodes of all subgraphs."""
        return sum(subgraph.total for subgraph in self.subgraphs)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values: `kind` `lint_report`, `schema_version` 1.0."""
        document = asdict(self)
        for subgraph, listed in zip(self.subgraphs, document["subgraphs"], strict=True):
            for node, item in zip(subgraph.nodes, listed["nodes"], strict=True):
                item["module"] = node.module
        document.update(
            kind="lint_report",
            schema_version="1.0",
            total=self.total,
            delegated=self.delegated,
            partitions=self.partitions,
            fallback=self.fallback,
            counts={
                "supported": self.count("supported"),
                "wrong": self.count("wrong"),
                "refused": self.count("refused"),
                "failed": self.count("failed", "crash"),
                "unknown": self.count("unknown"),
            },
        )
        return document
