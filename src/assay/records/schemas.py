"""JSON Schemas of all documents, generated from the models."""

from __future__ import annotations

from typing import Any

from assay.records.benchmark import BenchmarkFile
from assay.records.card import Card, PitfallFile
from assay.records.document import LATEST, Document
from assay.records.record import BrowserSweepFile, DeviceRunFile, PlainDeviceRunFile, PlainSweepFile

FORMS: dict[str, type[Document]] = {
    "card": Card,
    "device-run": DeviceRunFile,
    "browser-sweep": BrowserSweepFile,
    "benchmark": BenchmarkFile,
    "pitfalls": PitfallFile,
    "plain-device-run": PlainDeviceRunFile,
    "plain-browser-sweep": PlainSweepFile,
}
"""Name -> form of document."""


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a form.

    Args:
        name: One of `FORMS`.

    Raises:
        KeyError: There is no such form.
    """
    version = ".".join(map(str, LATEST))
    schema = FORMS[name].model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"assay:{name}:{version}",
        **schema,
    }
