"""Which cells were measured on a runtime that is no longer the newest known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.catalog.database import Catalog
from assay.records import versions


@dataclass(frozen=True)
class StaleCell:
    """A cell to measure again.

    Attributes:
        model_id: The model.
        signature: Signature that was run.
        device: Short name of the device.
        accelerator: The lane.
        runtime: The runtime's name.
        runtime_version: The version it was measured on.
        newest: The newest version known.
        date: Day of the measurement.
        status: What it said.
    """

    model_id: str
    signature: str | None
    device: str
    accelerator: str
    runtime: str
    runtime_version: str
    newest: str
    date: str
    status: str


def newest_versions(catalog: Catalog, known: Mapping[str, str] | None = None) -> dict[tuple[str, str], str]:
    """The newest release of each runtime: (runtime, family of version names) -> version.

    A pre-release counts only where there is no release. Versions of different families, such as `1.0.15` and
    `gallery-1.0.15`, do not compare.

    Args:
        catalog: An open catalog.
        known: Versions that no record has yet: runtime -> version.
    """
    seen: dict[tuple[str, str], list[str]] = {}
    rows = catalog.sql("SELECT DISTINCT runtime, runtime_version FROM runs").rows
    for runtime, version in [*rows, *(known or {}).items()]:
        seen.setdefault((runtime, versions.family(version)), []).append(version)
    return {key: newest for key, names in seen.items() if (newest := versions.newest(names)) is not None}


def stale(catalog: Catalog, known: Mapping[str, str] | None = None) -> list[StaleCell]:
    """The cells whose newest run is on an older runtime than the newest known.

    Args:
        catalog: An open catalog.
        known: Versions that no record has yet: runtime -> version.
    """
    newest = newest_versions(catalog, known)
    query = (
        "SELECT model_id, signature, device, accelerator, runtime, runtime_version, date, status FROM cells "
        "ORDER BY model_id, signature, device, accelerator"
    )
    found: list[StaleCell] = []
    for model_id, signature, device, accelerator, runtime, version, date, status in catalog.sql(query).rows:
        latest = newest[runtime, versions.family(version)]
        if versions.order(version) < versions.order(latest):
            cell = (model_id, signature, device, accelerator, runtime, version, latest, str(date), status)
            found.append(StaleCell(*cell))
    return found
