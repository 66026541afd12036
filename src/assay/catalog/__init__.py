"""Records on disk made useful: cards, an index, queries, differences between versions. Names load on first use."""

from typing import TYPE_CHECKING

from assay.lazy import lazy

if TYPE_CHECKING:
    from assay.catalog.cards import add_pitfall as add_pitfall
    from assay.catalog.cards import build_card as build_card
    from assay.catalog.check import check_card as check_card
    from assay.catalog.database import open_catalog as open_catalog
    from assay.catalog.difference import diff as diff
    from assay.catalog.find import find_card as find_card
    from assay.catalog.index import write_index as write_index
    from assay.catalog.ready import query as query
    from assay.catalog.ready import ready_queries as ready_queries
    from assay.catalog.ready import run_ready as run_ready
    from assay.catalog.staleness import stale as stale
else:
    # Not for type checkers, which would take any misspelt name for one that loads later.
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "cards": ("add_pitfall", "build_card"),
            "check": ("check_card",),
            "database": ("open_catalog",),
            "difference": ("diff",),
            "find": ("find_card",),
            "index": ("write_index",),
            "ready": ("query", "ready_queries", "run_ready"),
            "staleness": ("stale",),
        },
    )
