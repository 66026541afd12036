"""Lanes by name: from the entry-point group `assay.lanes`, or as `package.module:Class`."""

import functools
import importlib
from importlib.metadata import EntryPoint, entry_points

from assay.errors import AssayError
from assay.lanes.base import Lane

GROUP = "assay.lanes"


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@functools.cache
def _sorted_names() -> tuple[str, ...]:
    found = {name: find(name) for name in _installed()}
    return tuple(sorted(found, key=lambda name: (reference_rank(found[name]), found[name].order, name)))


def reference_rank(lane: Lane) -> float:
    """A lane's place among the references; infinite for a lane that others are not compared with."""
    return float("inf") if lane.reference_rank is None else lane.reference_rank


def names() -> list[str]:
    """Names of the installed lanes, in the order of measuring: the lanes that others are compared with first."""
    return list(_sorted_names())


def default_names() -> list[str]:
    """Lanes that are measured when none is named: all but those that call themselves experimental."""
    return [name for name in names() if not find(name).experimental]


def references() -> list[str]:
    """Lanes that others are compared with, the best first."""
    return [name for name in names() if find(name).reference_rank is not None]


def calibration() -> str | None:
    """The lane on which a model with noise in it is run, to learn what error to expect; None if there is none."""
    return next((name for name in names() if find(name).calibrates), None)


@functools.cache
def find(name: str) -> Lane:
    """The lane of that name.

    Args:
        name: An installed lane, or `package.module:Class` for one that is not installed.

    Raises:
        AssayError: There is no such lane, or its package cannot be imported.
    """
    try:
        if ":" in name:
            module, _, attribute = name.partition(":")
            return getattr(importlib.import_module(module), attribute)()
        if name in _installed():
            return _installed()[name].load()()
    except (ImportError, AttributeError) as error:
        raise AssayError(f"lane {name!r} cannot be loaded: {error}") from error
    raise AssayError(f"there is no lane {name!r}", fix=f"choose from {', '.join(names())}")
