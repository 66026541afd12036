"""What the package index knows: the name of the distribution, its extras, and the runtime that it asks for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re

from assay.errors import AssayError

DISTRIBUTION = "litert-assay"
"""The name on the package index. The import and the command are `assay`, a name that is somebody else's there."""

RUNTIME = "ai-edge-litert"


def install(extra: str) -> str:
    """The command that installs an extra: `pip install 'litert-assay[browser]'`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def install_runtime() -> str:
    """The command that installs the runtime, in the version that the installed distribution asks for."""
    return f"pip install {_requirement(RUNTIME)}"


def need(*modules: str, extra: str) -> None:
    """Check that modules of an extra can be imported, without importing them.

    Args:
        modules: Top-level module names.
        extra: The extra that brings them.

    Raises:
        AssayError: One is missing; says what to install.
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise AssayError(f"{', '.join(missing)} is not installed", fix=install(extra))


def _requirement(package: str) -> str:
    """What the distribution asks for, such as `numpy>=2.0`; the package's name where it is not installed."""
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return package
    named = (text.partition(";")[0].strip() for text in requirements)
    return next((text for text in named if re.split(r"[^\w.-]", text, maxsplit=1)[0] == package), package)
