"""The conditions under which lint fails a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import AssayError
from assay.linting.report import LintReport


@dataclass(frozen=True)
class Gate:
    """What counts as a failure.

    Attributes:
        fallback: Nodes on the CPU, a model that will not load, and nodes that nobody measured.
        max_partitions: More accelerator parts than this; None for any number.
        allow_unknown: Nodes that nobody measured are not held against the model.
        wrong: Nodes that the accelerator takes and was measured to compute wrongly.
    """

    fallback: bool = False
    max_partitions: int | None = None
    allow_unknown: bool = False
    wrong: bool = False

    @classmethod
    def parse(cls, conditions: Sequence[str], *, allow_unknown: bool = False) -> Gate:
        """The gate of `fallback`, `wrong` and `partitions:N` conditions.

        Raises:
            AssayError: A condition is none of them.
        """
        fallback, wrong, most = False, False, None
        for condition in conditions:
            name, _, value = condition.partition(":")
            if name == "fallback" and not value:
                fallback = True
            elif name == "wrong" and not value:
                wrong = True
            elif name == "partitions" and value.isdecimal():
                most = int(value) if most is None else min(most, int(value))
            else:
                raise AssayError(
                    f"--fail-on {condition!r} is not known", fix="use fallback, wrong or partitions:N"
                )
        return cls(fallback, most, allow_unknown, wrong)

    def reasons(self, report: LintReport) -> list[str]:
        """Why the report does not pass; empty if it does.

        Unknown nodes fail every condition unless they are allowed: a matrix that knows nothing must never pass a
        build.
        """
        reasons: list[str] = []
        unknown = report.count("unknown")
        if self.fallback and report.fallback:
            refused, fatal = report.count("refused"), report.count("failed", "crash")
            on_cpu = sum(node.place == "cpu" for subgraph in report.subgraphs for node in subgraph.nodes)
            reasons.append(
                f"fallback: {on_cpu} nodes run on the CPU ({refused} refused), {fatal} keep the model from loading"
            )
        if self.max_partitions is not None and report.partitions > self.max_partitions:
            reasons.append(
                f"partitions: {report.partitions} accelerator partitions, {self.max_partitions} allowed"
            )
        if self.wrong and (bad := report.count("wrong")):
            many = "nodes run" if bad > 1 else "node runs"
            reasons.append(f"wrong: {bad} {many} on the accelerator with numbers that were measured to be wrong")
        conditions = self.fallback or self.wrong or self.max_partitions is not None
        if unknown and not self.allow_unknown and conditions:
            reasons.append(f"unknown: {unknown} nodes were not measured; probe them, or pass --allow-unknown")
        return reasons
