"""The index of a catalog: for programs (`index.json`), and what is rendered from it for other readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.catalog.database import Progress, open_catalog
from assay.records import canonical
from assay.records.document import WRITTEN
from assay.records.files import write_atomic

INDEX_JSON = "index.json"

Render = Callable[[dict[str, Any]], str]
"""Gives a text from the value of `index.json`."""

_CELL_FIELDS = (
    "device",
    "kind",
    "browser",
    "accelerator",
    "signature",
    "context_length",
    "prefill_tokens",
    "file_sha256",
    "status",
    "failure_class",
    "latency_p50_ms",
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    "ttft_ms",
    "peak_mem_mb",
    "runtime",
    "runtime_version",
    "provenance",
    "record",
)
_CARD_FIELDS = ("family", "task", "license", "source_url", "files", "pitfalls", "card")


def write_index(
    root: Path, renders: Mapping[str, Render], progress: Progress = lambda done, total: None
) -> tuple[list[Path], list[str]]:
    """Write `index.json`, and what is rendered from it, into a catalog's folder.

    Args:
        root: The catalog's folder.
        renders: Name of a file -> what gives its text.
        progress: Told of long work.

    Returns:
        The files written, and the records that could not be read, one sentence each.

    Raises:
        AssayError: There is no catalog, or the folder cannot be written to.
    """
    index, problems = build_index(root, progress)
    texts = {INDEX_JSON: canonical.dumps(index)} | {name: render(index) for name, render in renders.items()}
    for name, text in texts.items():
        write_atomic(root / name, text)
    return [root / name for name in texts], problems


def build_index(root: Path, progress: Progress = lambda done, total: None) -> tuple[dict[str, Any], list[str]]:
    """The value of `index.json`, and the records that could not be read. Errors are those of `write_index`."""
    with open_catalog(root, progress=progress) as catalog:
        cells = catalog.sql(
            f"SELECT model_id, date, {', '.join(_CELL_FIELDS)} FROM cells ORDER BY model_id, device, browser, "
            "accelerator, signature, context_length, prefill_tokens, file_sha256"
        ).records()
        cards = catalog.sql(f"SELECT model_id, {', '.join(_CARD_FIELDS)} FROM cards ORDER BY model_id").records()
        problems = catalog.problems()
    models: dict[str, dict[str, Any]] = {}
    for card in cards:
        models[card["model_id"]] = {name: card[name] for name in _CARD_FIELDS}
    for cell in cells:
        model = models.setdefault(cell["model_id"], dict.fromkeys(_CARD_FIELDS))
        value = {name: cell[name] for name in _CELL_FIELDS}
        model.setdefault("cells", []).append({**value, "date": str(cell["date"])})
    listed = [{"id": name, "cells": [], **models[name]} for name in sorted(models)]
    return {"kind": "index", "models": listed, "schema_version": WRITTEN}, problems
