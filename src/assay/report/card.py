"""CARD.md: a card for people, rendered from `card.json` alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.records.benchmark import BenchmarkRecord
from assay.records.card import Card
from assay.records.rows import RunRow, card_rows
from assay.report.hub import front_matter
from assay.report.text import code, escape, link, number

if TYPE_CHECKING:
    import jinja2

WORKS = {
    "match": "yes, outputs match",
    "runs": "runs, outputs not compared",
    "partial": "in part on the accelerator",
    "wrong": "**no: wrong outputs**",
    "failed": "**no**",
}
"""A run's status in words."""


@dataclass(frozen=True)
class CellView:
    """One row of the first table, every text ready for Markdown."""

    where: str
    lane: str
    works: str
    latency: str
    interval: str
    memory: str
    nodes: str
    difference: str
    prefill: str
    decode: str
    ttft: str
    condition: str
    environment: str
    date: str
    provenance: str


def render_card(card: Card) -> str:
    """The Markdown of a card: front matter for model hubs, does it work where and how fast, then the rest.

    Args:
        card: A card of any version.

    Returns:
        The text, the same for the same card.
    """
    all_rows = list(card_rows(card))
    sources = sorted({row.record for row in all_rows})
    language = [row for row in all_rows if is_language(row)]
    return (
        _environment()
        .get_template("card.md.j2")
        .render(
            card=card,
            front_matter=front_matter(card),
            cells=[cell_view(row) for row in all_rows if row not in language],
            language=[cell_view(row) for row in language],
            failures=[row for row in all_rows if row.status in ("failed", "wrong")],
            benchmarks=[_benchmark(record) for record in card.benchmarks],
            cross_runtime=[_benchmark(record) for record in card.cross_runtime],
            example=any(row.provenance == "example" for row in all_rows),
            sources=sources,
        )
    )


def is_language(row: RunRow) -> bool:
    """True for a run whose speed is in tokens."""
    return any(v is not None for v in (row.prefill_tokens_per_s, row.decode_tokens_per_s, row.ttft_ms))


def cell_view(row: RunRow) -> CellView:
    """A run as the texts of a table row."""
    conditions = [f"signature {escape(row.signature)}"] if row.signature else []
    conditions += [f"context {row.context_length}"] if row.context_length is not None else []
    conditions += [f"prompt {number(row.prefill_tokens)}"] if row.prefill_tokens is not None else []
    return CellView(
        where=escape(row.device) + (f" ({escape(row.browser)})" if row.browser else ""),
        lane=escape(row.accelerator),
        works=works(row),
        latency=number(row.latency_p50_ms) + (" (unstable)" if row.unstable else ""),
        interval=interval(row),
        memory=number(row.peak_mem_mb),
        nodes=nodes(row),
        difference=number(row.max_abs_diff) if row.max_abs_diff is not None else _relative(row),
        prefill=number(row.prefill_tokens_per_s),
        decode=number(row.decode_tokens_per_s),
        ttft=number(row.ttft_ms),
        condition=", ".join(conditions) or "-",
        environment=escape(environment(row)),
        date=row.date,
        provenance=row.provenance,
    )


def works(row: RunRow) -> str:
    """Whether the run works, in Markdown."""
    if row.status == "failed" and row.failure_class:
        return f"**no: {escape(row.failure_class.replace('_', ' '))}**"
    if row.status == "match" and row.verdict == "precision_noise":
        return "yes, outputs match to the lane's precision"
    return WORKS[row.status]


def reason(row: RunRow) -> str:
    """Why a run counts as failed or wrong, in Markdown."""
    sentence = row.metrics.get("verdict_sentence")
    if row.status == "wrong":
        return escape(sentence if isinstance(sentence, str) else "the outputs differ from the reference's")
    name = escape(row.failure_class or "failed")
    return f"{name}: {code(row.error)}" if row.error else name


def interval(row: RunRow) -> str:
    """The confidence interval of the median, or the range where only that is known."""
    if row.latency_ci95_low_ms is not None and row.latency_ci95_high_ms is not None:
        return f"{number(row.latency_ci95_low_ms)} to {number(row.latency_ci95_high_ms)}"
    if row.latency_min_ms is not None and row.latency_max_ms is not None:
        return f"range {number(row.latency_min_ms)} to {number(row.latency_max_ms)}"
    return "-"


def nodes(row: RunRow) -> str:
    """How many nodes the accelerator took."""
    if row.delegated_ops is not None and row.total_ops is not None:
        return f"{row.delegated_ops} of {row.total_ops}"
    return {True: "all", False: "not all", None: "-"}[row.full_delegation]


def environment(row: RunRow) -> str:
    """Where a run was measured, in one line."""
    parts = [row.device_name if row.kind == "device" else None, row.soc]
    parts += [f"{row.browser} {row.browser_version}" if row.browser else None]
    parts += [f"{'@litertjs/core' if row.kind == 'browser' else row.runtime} {row.runtime_version}"]
    parts += [row.vendor_sdk, row.os_build]
    parts += [f"{row.adapter} ({row.adapter_kind})" if row.adapter and row.adapter_kind else row.adapter]
    parts += [f"{row.threads} threads" if row.threads else None]
    parts += [f"thermal {row.thermal}" if row.thermal else None]
    return ", ".join(part for part in parts if part)


def _relative(row: RunRow) -> str:
    return f"{number(row.max_rel_diff)} relative" if row.max_rel_diff is not None else "-"


def _benchmark(record: BenchmarkRecord) -> dict[str, str]:
    harness = " ".join(part for part in (record.harness, record.harness_version) if part)
    detail = " of ".join(str(part) for part in (record.statistic, record.runs) if part)
    metrics = ", ".join(f"{name} = {value}" for name, value in sorted((record.metrics or {}).items()))
    return {
        "runtime": escape(record.runtime or "litert"),
        "device": escape(", ".join(part for part in (record.device, record.soc) if part)),
        "backend": escape(record.backend),
        "precision": escape(record.precision or "-"),
        "latency": number(record.latency_p50_ms),
        "tokens": number(record.tokens_per_s),
        "memory": number(record.peak_mem_mb),
        "harness": escape(harness + (f" ({detail})" if detail else "")),
        "date": record.date,
        "provenance": record.provenance,
        "metrics": escape(metrics) or "-",
    }


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.report", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML: the filters below do the escaping.
    )
    filters: dict[str, Any] = {"text": escape, "code": code, "link": link, "number": number, "reason": reason}
    environment.filters.update(filters)
    return environment
