"""Ready queries for what users of a catalog ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.catalog.database import Catalog, Table, open_catalog
from assay.errors import AssayError
from assay.records import versions


@dataclass(frozen=True)
class ReadyQuery:
    """A query with a name.

    Attributes:
        name: What to ask for.
        help: What it answers, in one line.
        sql: The query; it may use `$since_order`, the order text of a version.
        needs_since: It compares with a version, which must be given.
    """

    name: str
    help: str
    sql: str
    needs_since: bool = False


_SLOWER = """
WITH later AS (
  SELECT * FROM runs WHERE runtime_order >= $since_order AND latency_p50_ms > 0 AND provenance = 'measured'
  QUALIFY row_number() OVER (PARTITION BY {cell} ORDER BY {age}) = 1
), before AS (
  SELECT * FROM runs WHERE runtime_order < $since_order AND latency_p50_ms > 0 AND provenance = 'measured'
  QUALIFY row_number() OVER (PARTITION BY {cell} ORDER BY {age}) = 1
)
SELECT l.model_id, l.device, l.accelerator, l.signature, b.runtime_version AS version_before,
  l.runtime_version AS version_since, b.latency_p50_ms AS latency_before_ms, l.latency_p50_ms AS latency_since_ms,
  round(l.latency_p50_ms / b.latency_p50_ms, 3) AS ratio,
  l.latency_ci95_low_ms > b.latency_ci95_high_ms AS intervals_apart, l.date
FROM later l JOIN before b ON {same} AND l.runtime = b.runtime
WHERE l.latency_p50_ms > b.latency_p50_ms * 1.05
ORDER BY ratio DESC, l.model_id, l.device, l.accelerator
"""


def _slower() -> str:
    from assay.records.rows import AGE, CELL

    return _SLOWER.format(
        cell=", ".join(CELL),
        age=", ".join(f"{expression} DESC" for expression in AGE),
        same=" AND ".join(f"l.{name} IS NOT DISTINCT FROM b.{name}" for name in CELL),
    )


def ready_queries() -> dict[str, ReadyQuery]:
    """The ready queries by name."""
    queries = (
        ReadyQuery(
            "fastest",
            "the fastest lane of each model on each device; wrong outputs do not count",
            "SELECT model_id, signature, device, accelerator, latency_p50_ms, status, runtime_version, date, "
            "provenance FROM cells WHERE latency_p50_ms IS NOT NULL AND status NOT IN ('wrong', 'failed') "
            "QUALIFY row_number() OVER (PARTITION BY model_id, signature, device "
            "ORDER BY latency_p50_ms, accelerator) = 1 ORDER BY model_id, signature, device",
        ),
        ReadyQuery(
            "wrong",
            "every cell whose outputs are wrong",
            "SELECT model_id, signature, device, accelerator, max_abs_diff, max_rel_diff, verdict, "
            "full_delegation, runtime_version, date, provenance, record FROM cells WHERE status = 'wrong' "
            "ORDER BY model_id, device, accelerator",
        ),
        ReadyQuery(
            "fallback",
            "models of which an accelerator left a part, or all, to the CPU",
            "SELECT model_id, signature, device, accelerator, delegated_ops, total_ops, failure_class, "
            "runtime_version, date FROM cells WHERE status = 'partial' OR failure_class = 'silent_cpu_fallback' "
            "ORDER BY model_id, device, accelerator",
        ),
        ReadyQuery(
            "failed",
            "every cell that fails, and why",
            "SELECT model_id, signature, device, accelerator, failure_class, error, runtime_version, date "
            "FROM cells WHERE status = 'failed' ORDER BY failure_class, model_id, device, accelerator",
        ),
        ReadyQuery(
            "slower",
            "cells slower by 5 % or more since a runtime version (--since 2.3.0)",
            _slower(),
            needs_since=True,
        ),
        ReadyQuery(
            "unchecked",
            "cells that run and whose outputs nobody compared",
            "SELECT model_id, signature, device, accelerator, latency_p50_ms, runtime_version, date, provenance "
            "FROM cells WHERE status = 'runs' ORDER BY model_id, device, accelerator",
        ),
        ReadyQuery(
            "tokens",
            "speeds of language models",
            "SELECT model_id, device, accelerator, context_length, prefill_tokens, prefill_tokens_per_s, "
            "decode_tokens_per_s, ttft_ms, peak_mem_mb, runtime_version, date, provenance FROM cells "
            "WHERE decode_tokens_per_s IS NOT NULL OR prefill_tokens_per_s IS NOT NULL "
            "ORDER BY model_id, device, accelerator",
        ),
        ReadyQuery(
            "hot",
            "runs during which the device throttled",
            "SELECT model_id, device, accelerator, thermal, latency_p50_ms, date, record FROM runs "
            "WHERE throttled ORDER BY date DESC, model_id",
        ),
    )
    return {query.name: query for query in queries}


def query(root: Path | str, question: str, *, since: str | None = None) -> Table:
    """Ask one question of a folder of records and cards.

    Files that cannot be read are not in the answer; `SELECT * FROM problems` names them.

    Args:
        root: The folder with `data/` and `cards/`.
        question: SQL over the views `runs`, `cells`, `cards`, `evidence`, `benchmarks` and `problems`, or the name
            of one of `ready_queries`.
        since: A runtime version, for a ready query that compares with one.

    Returns:
        The answer's columns and rows; `Table.records` gives them as dicts.

    Raises:
        AssayError: There is nothing to ask, the query is wrong, or DuckDB is not installed.
    """
    with open_catalog(Path(root)) as catalog:
        return ask(catalog, question, since)


def ask(catalog: Catalog, question: str, since: str | None = None) -> Table:
    """Ask one question of an open catalog; arguments and errors are those of `query`."""
    text = question.strip()
    return catalog.sql(question) if any(c.isspace() for c in text) else run_ready(catalog, text, since)


def run_ready(catalog: Catalog, name: str, since: str | None = None) -> Table:
    """Answer a ready query.

    Args:
        catalog: An open catalog.
        name: The query's name.
        since: A runtime version, for a query that compares with one.

    Raises:
        AssayError: There is no such query, or it needs a version.
    """
    queries = ready_queries()
    if name not in queries:
        raise AssayError(f"there is no ready query {name!r}", fix=f"one of {', '.join(queries)}, or SQL")
    query = queries[name]
    parameters: dict[str, Any] | None = None
    if query.needs_since:
        if since is None:
            raise AssayError(f"{name} compares with a version", fix="add --since VERSION")
        parameters = {"since_order": versions.order(since)}
    return catalog.sql(query.sql, parameters)
