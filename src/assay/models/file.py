"""The subject of a measurement: a model file with a format, named inputs and outputs, and variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.models import formats
from assay.models.artifact import Artifact, identify

if TYPE_CHECKING:
    from assay.graph import Model, Signature


@dataclass(frozen=True)
class ModelFile:
    """A model.

    Attributes:
        artifact: The file.
        format: Name of its format.
        signatures: What can be run, see `formats.Contents`.
        graph: Its graph, or None where its format has none that is read here.
        example: Whether its weights are no real ones.
        variants: The same model in other formats: format -> file.
    """

    artifact: Artifact
    format: str
    signatures: Sequence[Signature]
    graph: Model | None
    example: bool = False
    variants: Mapping[str, Artifact] = field(default_factory=dict[str, Artifact])

    def for_formats(self, names: Sequence[str]) -> Artifact | None:
        """The file that something can read which reads these formats; the model's own before its variants."""
        if self.format in names:
            return self.artifact
        return next((self.variants[name] for name in names if name in self.variants), None)


def open_model(path: Path, variants: Mapping[str, Path] | None = None) -> ModelFile:
    """Read what can be known of a model before it is run.

    Args:
        path: The file.
        variants: The same model in other formats: format -> file.

    Raises:
        AssayError: A file is missing, or not of its format.
    """
    artifact = identify(path)
    format_ = formats.format_of(path)
    contents = format_.read(path)
    others: dict[str, Artifact] = {}
    for name, other in (variants or {}).items():
        if name == format_.name:
            raise AssayError(f"{path} is of the format {name} itself", fix=f"leave --variant {name}= out")
        others[formats.find(name).name] = identify(other)
    return ModelFile(artifact, format_.name, contents.signatures, contents.graph, contents.example, others)
