"""Records on disk made useful: cards, an index, queries, differences between versions. Names load on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.catalog.cards import add_pitfall as add_pitfall
    from assay.catalog.cards import build_card as build_card
    from assay.catalog.check import check_card as check_card
    from assay.catalog.database import open_catalog as open_catalog
    from assay.catalog.difference import diff as diff
    from assay.catalog.index import write_index as write_index
    from assay.catalog.ready import run_ready as run_ready
    from assay.catalog.staleness import stale as stale

_HOME_OF = {
    "add_pitfall": "cards",
    "build_card": "cards",
    "check_card": "check",
    "diff": "difference",
    "open_catalog": "database",
    "run_ready": "ready",
    "stale": "staleness",
    "write_index": "index",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
