"""The grid: which one-op models are worth running, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay.probe.cases import Case
from assay.probe.grid import elementwise, layout, others, reduce, weights, written

_FAMILIES = (elementwise, layout, reduce, weights, others, written)


def cases(ops: Iterable[str] | None = None) -> Iterator[Case]:
    """Every case of the grid, each once, in a fixed order.

    Args:
        ops: Only cases of these ops; None for all.
    """
    wanted = set(ops) if ops is not None else None
    seen: set[str] = set()
    for family in _FAMILIES:
        for case in family.cases():
            if wanted is not None and case.op not in wanted:
                continue
            if case.id not in seen:
                seen.add(case.id)
                yield case


def known_ops() -> list[str]:
    """Names of the ops that the grid has cases for."""
    return sorted({case.op for family in _FAMILIES for case in family.cases()})
