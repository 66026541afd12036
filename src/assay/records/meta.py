"""What people say of a model: `meta.yaml`, beside the card, which no rebuild changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pydantic import Field

from assay.records.card import Delegation, ModelInfo, Pitfall
from assay.records.document import DocumentError, Part, Provenance, Text, conform
from assay.records.runs import RecordArtifact

FILE = "meta.yaml"
"""Its name in the card's folder."""

_MAX_BYTES = 2**20


class _Model(Part):
    family: Text | None = None
    id: Text | None = None
    license: Text | None = None
    source_url: Text | None = None
    task: Text | None = None


class _Conversion(Part):
    command: Text | None = None
    quantization: Text | None = None
    tool: Text | None = None
    tool_version: Text | None = None


class Meta(Part):
    """The content of a `meta.yaml`. All of it is optional.

    Attributes:
        model: family, license, source_url, task (`id` is for converters; the card's name is given elsewhere).
        family: Short for `model.family`; likewise `task`, `license`, `source` or `source_url`.
        task: See `family`.
        license: See `family`.
        source: See `family`.
        source_url: See `family`.
        conversion: command, quantization, tool, tool_version.
        artifact: The file that was converted.
        delegation: What a look at the graph says.
        demo_url: A page that runs the model.
        pitfalls: Texts, or objects with `text` and `evidence`.
        provenance: `example` where the weights are random.
    """

    model: _Model | None = None
    family: Text | None = None
    task: Text | None = None
    license: Text | None = None
    source: Text | None = None
    source_url: Text | None = None
    conversion: _Conversion | None = None
    artifact: RecordArtifact | None = None
    delegation: Delegation | None = None
    demo_url: Text | None = None
    pitfalls: list[Text | Pitfall] = Field(default_factory=list[Text | Pitfall])
    provenance: Provenance | None = None

    def info(self, model_id: str) -> ModelInfo:
        """The card's `model` block."""
        model = self.model or _Model()
        return ModelInfo(
            family=model.family or self.family,
            id=model_id,
            license=model.license or self.license,
            source_url=model.source_url or self.source_url or self.source,
            task=model.task or self.task,
        )


def read_meta(path: Path) -> Meta:
    """Read a `meta.yaml`.

    Raises:
        DocumentError: It is missing, too large, not YAML, or has unknown or wrong fields.
    """
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise DocumentError(f"{path} is larger than 1 MiB", fix="it holds a few lines about the model")
    try:
        value = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise DocumentError(f"{path} is not YAML{line}: {str(error).splitlines()[0]}") from error
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise DocumentError(f"{path}: got {type(value).__name__}, expected names with values")
    return conform(_texts(cast(dict[Any, Any], value)), Meta, path)


def _texts(value: dict[Any, Any]) -> dict[str, Any]:
    """YAML reads `task: 3` as a number and a date as a date; a person who wrote a word meant a text."""
    import datetime

    def convert(item: Any) -> Any:
        if isinstance(item, dict):
            return {str(key): convert(inner) for key, inner in cast(dict[Any, Any], item).items()}
        if isinstance(item, list):
            return [convert(inner) for inner in cast(list[Any], item)]
        return item.isoformat() if isinstance(item, datetime.date) else item

    return convert(value)
