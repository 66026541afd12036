"""What `assay inspect` does: the models of a file, what is in them, and a picture of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.graph import Model, read, read_all, summarize
from assay.graph.bundle import Entry, entries, is_bundle
from assay.graph.facts import ModelSummary, to_json


@dataclass(slots=True)
class Inspected:
    """A file and the models in it.

    Attributes:
        path: The file.
        models: Name -> model; for a `.tflite` its file name.
        summaries: Name -> what is in the model.
        parts: All parts of a bundle; empty for a `.tflite`.
    """

    path: Path
    models: dict[str, Model]
    summaries: dict[str, ModelSummary]
    parts: list[Entry] = field(default_factory=list[Entry])

    def document(self, *, with_nodes: bool = False) -> dict[str, Any]:
        """The JSON that `assay inspect --json` prints.

        Args:
            with_nodes: Add every node and tensor.
        """
        models: list[dict[str, Any]] = []
        for name, summary in self.summaries.items():
            document = {"name": name} | to_json(summary)
            if with_nodes:
                document["graph"] = _graph(self.models[name])
            models.append(document)
        parts = [
            {"attributes": part.attributes, "kind": part.kind, "name": part.name, "size_bytes": part.nbytes}
            for part in self.parts
        ]
        return {
            "file": self.path.name,
            "models": models,
            "parts": parts,
            "size_bytes": self.path.stat().st_size,
        }

    def other_parts(self) -> list[str]:
        """Lines on the parts of a bundle that are no models, and on what the bundle says of the models."""
        lines: list[str] = []
        for part in self.parts:
            said = ", ".join(f"{name} {value}" for name, value in part.attributes.items())
            if part.kind != "tflite_model" or said:
                kind = "model" if part.kind == "tflite_model" else part.kind
                lines.append(f"{part.name}: {kind}, {part.nbytes:,} bytes{', ' + said if said else ''}")
        return lines


def inspect_file(path: Path, part: str | None = None) -> Inspected:
    """Read a model or a bundle and sum up what is in it.

    Args:
        path: A `.tflite`, `.litertlm` or `.task` file.
        part: Of a bundle, the name of one model.

    Raises:
        AssayError: The file is not sound, or has no model of that name; the message lists the names.
    """
    if not is_bundle(path):
        if part is not None:
            raise AssayError(f"{path} is a single model, so it has no part {part!r}")
        models, parts = {path.name: read(path)}, []
    else:
        parts = entries(path)
        models = read_all(path)
    if part is not None:
        if part not in models:
            raise AssayError(f"{path} has no model {part!r}", fix=f"Its models: {', '.join(models)}")
        models = {part: models[part]}
    return Inspected(path, models, {name: summarize(model) for name, model in models.items()}, parts)


def _graph(model: Model) -> list[dict[str, Any]]:
    """Every node and tensor, as JSON."""
    return [
        {
            "nodes": [
                {
                    "inputs": node.inputs,
                    "op": node.op,
                    "options": {key: _plain(value) for key, value in node.options.items()},
                    "outputs": node.outputs,
                    "version": node.version,
                }
                for node in subgraph.nodes
            ],
            "tensors": [
                {
                    "constant": tensor.is_constant,
                    "dtype": tensor.dtype,
                    "name": tensor.name,
                    "shape": list(tensor.shape_signature or tensor.shape),
                }
                for tensor in subgraph.tensors
            ],
        }
        for subgraph in model.subgraphs
    ]


def _plain(value: Any) -> Any:
    """An option's value as JSON: vectors as lists, bytes as hexadecimal."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    return [_plain(item) for item in value]
