"""The convert extra: there, or an error that says how to get it."""

from __future__ import annotations

import importlib.util

from assay.errors import AssayError


def require(*modules: str, extra: str = "convert") -> None:
    """Check that modules of an extra can be imported, without importing them.

    Args:
        modules: Top-level module names.
        extra: The extra that brings them.

    Raises:
        AssayError: One is missing; says what to install.
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise AssayError(f"{', '.join(missing)} is not installed", fix=f"pip install 'assay[{extra}]'")
