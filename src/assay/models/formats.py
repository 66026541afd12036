"""Formats of model files: how each is told by its name, and what is known of a file before it is run.

Entry-point group: `assay.formats`; the entry's name is the format's name, its value a `Format` class.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.graph.model import Signature, SignatureTensor, Tensor

if TYPE_CHECKING:
    from assay.graph import Model

GROUP = "assay.formats"

PROVENANCE_MARK = "assay.provenance"
"""Metadata entry of a model whose weights are random: whoever measures it measures an example."""


@dataclass(frozen=True)
class Contents:
    """What a format knows of a file.

    Attributes:
        signatures: What can be run: named inputs and outputs, each with dtype and shape; -1 for a dimension that
            is open. Empty for a file that takes prompts and gives tokens.
        graph: The graph, where the format has one that is read here; without it no expected error can be learnt.
        example: Whether the file says that its weights are no real ones.
    """

    signatures: Sequence[Signature]
    graph: Model | None = None
    example: bool = False


class Format:
    """A format of model files.

    Attributes:
        name: The format's name, for example `tflite`.
        suffixes: Ends of file names that it is told by, with their dot.
    """

    name: str
    suffixes: tuple[str, ...]

    def read(self, path: Path) -> Contents:
        """What is in a file.

        Raises:
            AssayError: It is not of this format, or damaged.
        """
        raise NotImplementedError


class TfliteFormat(Format):
    """LiteRT's own format, read as a graph."""

    name = "tflite"
    suffixes = (".tflite",)

    def read(self, path: Path) -> Contents:
        """The graph and its signatures."""
        from assay import graph

        model = graph.read(path)
        example = any(
            entry.name == PROVENANCE_MARK and bytes(model.buffers[entry.buffer].data) == b"example"
            for entry in model.metadata
        )
        return Contents(model.signatures, model, example)


def signature(
    key: str | None,
    inputs: Mapping[str, tuple[str, Sequence[int]]],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
) -> Signature:
    """A signature for a format without a graph.

    Args:
        key: Its name; None for a file's only one.
        inputs: Name -> (NumPy's name for the element type, shape); -1 for a dimension that is open.
        outputs: The same for the outputs.
    """
    count = 0

    def entries(specs: Mapping[str, tuple[str, Sequence[int]]]) -> list[SignatureTensor]:
        nonlocal count
        found: list[SignatureTensor] = []
        for name, (dtype, shape) in specs.items():
            fixed = tuple(1 if size < 0 else int(size) for size in shape)
            found.append(SignatureTensor(name, Tensor(count, name, dtype, fixed, tuple(shape))))
            count += 1
        return found

    return Signature(key, 0, entries(inputs), entries(outputs))


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@functools.cache
def find(name: str) -> Format:
    """The format of that name.

    Raises:
        AssayError: There is none, or its package cannot be imported.
    """
    if name not in _installed():
        raise AssayError(f"there is no format {name!r}", fix=f"choose from {', '.join(sorted(_installed()))}")
    try:
        return _installed()[name].load()()
    except (ImportError, AttributeError) as error:
        raise AssayError(f"the format {name!r} cannot be loaded: {error}") from error


def format_of(path: Path) -> Format:
    """The format that a file's name tells; `tflite` where it tells none, since people name those in many ways."""
    for name in _installed():
        if path.name.lower().endswith(find(name).suffixes):
            return find(name)
    return find(TfliteFormat.name)
