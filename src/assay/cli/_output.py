"""Where output goes: results on stdout, everything said on the way on stderr."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

# A pipe or a file has no width: lines stay whole for whoever reads them next.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
"""stdout: tables and results."""

err = Console(stderr=True, highlight=False)
"""stderr: progress, notes and warnings."""


def print_json(document: Any) -> None:
    """Print one JSON document on stdout, sorted keys, nothing else."""
    print(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False))


def progress() -> Progress:
    """A progress bar on stderr; it vanishes when done and stays silent where stderr is no terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
