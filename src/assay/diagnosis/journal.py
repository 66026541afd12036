"""The log of a diagnosis: one line for every step with its verdict; a diagnosis that was stopped goes on from it.

A step is known by a digest of everything that decides its verdict: the piece's bytes, its inputs, the lane and
its options. So a log of another model, other inputs or another runtime is never taken for this one's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Step:
    """What became of one piece.

    Attributes:
        key: Digest of what was run.
        what: What the piece was for, in words.
        nodes: Indices of its nodes.
        verdict: `right`, `wrong`, `failed` or `skipped`.
        worst: Largest difference over the limit it must keep; None where there was nothing to compare.
        tensor: Name of the output that is worst.
        max_abs_diff: Largest absolute difference of that output.
        failure: Failure class, or None.
        error: One sentence for the failure or what else is to be said, or None.
        delegated: Nodes that the accelerator took, or None.
        total: Nodes as the runtime counts them, or None.
        launch: Number of the process in this diagnosis.
    """

    key: str
    what: str
    nodes: tuple[int, ...]
    verdict: str
    worst: float | None = None
    tensor: str | None = None
    max_abs_diff: float | None = None
    failure: str | None = None
    error: str | None = None
    delegated: int | None = None
    total: int | None = None
    launch: int = 0

    @property
    def wrong(self) -> bool:
        """True if it ran and its outputs are wrong."""
        return self.verdict == "wrong"


class Journal:
    """Steps done so far, on disk as JSON lines; each line is flushed, so a kill loses at most the last one.

    Args:
        path: The file; None keeps the steps in memory only.
        resume: False starts it anew.
    """

    def __init__(self, path: Path | None, *, resume: bool = True) -> None:
        self._path = path
        self._steps: dict[str, Step] = {}
        self.resumed = 0
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.is_file():
            for step in _read(path):
                self._steps[step.key] = step
        elif path.is_file():
            path.unlink()

    def find(self, key: str) -> Step | None:
        """The step with that key, if it was done before."""
        step = self._steps.get(key)
        if step is not None:
            self.resumed += 1
        return step

    def add(self, step: Step) -> None:
        """Write a step down."""
        self._steps[step.key] = step
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(step), sort_keys=True) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def steps(self) -> list[Step]:
        """All steps, in order."""
        return list(self._steps.values())


def _read(path: Path) -> Iterable[Step]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            data: dict[str, Any] = json.loads(line)
            data["nodes"] = tuple(data["nodes"])
            yield Step(**data)
        except (ValueError, TypeError, KeyError):
            # A line cut short by a kill: that step is done again.
            continue


def digest(*parts: bytes | str | Array) -> str:
    """A digest of bytes, texts and arrays (values, types and shapes)."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(f"{part.dtype.str}{part.shape}".encode())
            sha.update(np.ascontiguousarray(part).tobytes())
        else:
            sha.update(part.encode() if isinstance(part, str) else part)
        sha.update(b"\0")
    return sha.hexdigest()
