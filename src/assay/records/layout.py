"""Where things are in an output folder."""

import contextlib
from pathlib import Path

DEVICE_RUNS = Path("data/device_runs")
"""Folder of device-run records, below the output folder."""

SWEEPS = Path("data/sweep")
"""Folder of browser-sweep records, below the output folder."""

BENCHMARKS = Path("data/benchmarks")
"""Folder of benchmark records, below the output folder."""

CARDS = Path("cards")
"""Folder of cards, below the output folder."""


def private_folder(root: Path) -> Path:
    """The folder below `root` for locks and caches; it may be deleted at any time, and git ignores it.

    Raises:
        OSError: It cannot be made.
    """
    folder = root / ".assay"
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
            file.write("*\n")
    return folder
