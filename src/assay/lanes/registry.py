"""Lanes by name: from the entry-point group `assay.lanes`, or as `package.module:Class`."""

import functools
import importlib
from importlib.metadata import EntryPoint, entry_points

from assay.errors import AssayError
from assay.lanes.base import Lane

GROUP = "assay.lanes"

REFERENCES = ("cpu_reference", "cpu_xnnpack")
"""Lanes that others are compared with, the first that runs."""

# The order in which lanes are shown and measured: references first, since the others are compared with them.
_ORDER = ["cpu_reference", "cpu_xnnpack", "gpu_mldrift", "wasm_xnnpack", "webgpu_mldrift", "webnn"]


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def names() -> list[str]:
    """Names of the installed lanes: ours in the order of measuring, then those of other packages by name."""
    installed = _installed()
    known = [name for name in _ORDER if name in installed]
    return known + sorted(set(installed) - set(known))


def default_names() -> list[str]:
    """Lanes that are measured when none is named: all but those that call themselves experimental."""
    return [name for name in names() if not getattr(find(name), "experimental", False)]


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
