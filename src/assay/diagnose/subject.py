"""What is diagnosed: one signature of one model with its inputs, and the reference's value of every inner tensor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay import graph
from assay.diagnose.launch import Launcher, Trial
from assay.diagnose.pieces import Anatomy, Piece, carve
from assay.errors import AssayError
from assay.lanes.base import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

REFERENCES = ("cpu_reference", "cpu_xnnpack")
"""Lanes that can be the reference, the first that runs the model."""

KINDS = ("uniform", "normal", "structured")
"""Kinds of seeded inputs that are tried where the user gives none."""


@dataclass(frozen=True)
class Subject:
    """One signature of one model, ready to be run.

    Attributes:
        path: The file.
        model: The graph.
        signature: The signature.
        anatomy: Of its subgraph.
        inputs: Its inputs with resolved shapes.
        outputs: Its outputs.
        resized: Inputs whose shape must be set, since the file leaves it open.
        sets: Input sets, each one array for each input.
        set_names: What each set is: a kind of seeded inputs, or the user's.
    """

    path: Path
    model: graph.Model
    signature: graph.Signature
    anatomy: Anatomy
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    resized: list[str]
    sets: list[list[Array]]
    set_names: list[str]

    @property
    def output_tensors(self) -> list[int]:
        """Tensor indices of the outputs, in order."""
        return [entry.tensor.index for entry in self.signature.outputs]

    @property
    def input_tensors(self) -> list[int]:
        """Tensor indices of the inputs, in order."""
        return [entry.tensor.index for entry in self.signature.inputs]

    def trial(self, sequence: Sequence[int], *, options: dict[str, Any], runs: int = 0) -> Trial:
        """The whole file as a trial."""
        return Trial(
            name="the whole model",
            model=self.path,
            inputs=self.inputs,
            outputs=self.outputs,
            sets=self.sets,
            sequence=sequence,
            signature=self.signature.key,
            resized=self.resized,
            options=options,
            runs=runs,
        )


def open_subject(
    path: Path,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    sets: Sequence[Sequence[Array]] | None = None,
    set_names: Sequence[str] | None = None,
    seed: int = 0,
) -> Subject:
    """Read a model and make its inputs.

    Args:
        path: The `.tflite` file.
        signature: Signature key; the first by default.
        shapes: Input name -> shape, for dynamic inputs.
        sets: The user's inputs; seeded ones of several kinds by default.
        set_names: What the user's sets are called.
        seed: Of seeded inputs.

    Raises:
        AssayError: The file, the signature or a shape is no good, or the graph has nothing to diagnose.
    """
    from assay.numerics.inputs import make_inputs, resolve_shapes

    model = graph.read(path)
    chosen = model.signature(signature)
    subgraph = model.subgraphs[chosen.subgraph]
    if not subgraph.nodes:
        raise AssayError(f"{path}: the graph has no nodes, so no node can be wrong")
    if sets is None:
        resolved = resolve_shapes(chosen, shapes)
        sets = [make_inputs(model, chosen, resolved, kind, seed) for kind in KINDS]
        set_names = [f"seeded {kind}, seed {seed}" for kind in KINDS]
    else:
        resolved = {entry.name: array.shape for entry, array in zip(chosen.inputs, sets[0], strict=True)}
    if any(tensor.tensor.dtype in ("string", "resource", "variant") for tensor in chosen.inputs):
        raise AssayError(f"{path}: an input is a string or a resource, which cannot be fed")
    resized = [entry.name for entry in chosen.inputs if tuple(resolved[entry.name]) != tuple(entry.tensor.shape)]
    return Subject(
        path=path,
        model=model,
        signature=chosen,
        anatomy=Anatomy(subgraph),
        inputs=[TensorSpec(e.name, e.tensor.dtype, tuple(resolved[e.name])) for e in chosen.inputs],
        outputs=[TensorSpec(e.name, e.tensor.dtype, tuple(e.tensor.shape)) for e in chosen.outputs],
        resized=resized,
        sets=[list(arrays) for arrays in sets],
        set_names=list(set_names or [f"given set {index}" for index in range(len(sets))]),
    )


class Values(Mapping[int, Array]):
    """Tensor index -> value, of one run; each is read from the disk when it is asked for.

    Args:
        inputs: Values of the graph's inputs.
        file: `.npz` with the other values, keyed by position.
        order: Tensor index of each position.
    """

    def __init__(self, inputs: Mapping[int, Array], file: Path, order: Sequence[int]) -> None:
        self._inputs = dict(inputs)
        self._position = {tensor: position for position, tensor in enumerate(order)}
        self._archive = np.load(file, allow_pickle=False)

    def __getitem__(self, tensor: int) -> Array:
        if tensor in self._inputs:
            return self._inputs[tensor]
        return self._archive[str(self._position[tensor])]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._inputs or tensor in self._position

    def __iter__(self) -> Iterator[int]:
        yield from self._inputs
        yield from (tensor for tensor in self._position if tensor not in self._inputs)

    def __len__(self) -> int:
        return len(self._inputs.keys() | self._position.keys())


@dataclass
class Reference:
    """The reference's run of a subject.

    Attributes:
        lane: The lane that it is.
        values: For each input set, the value of every tensor that has numbers.
        notes: What has to be said of it.
    """

    lane: str
    values: list[Values]
    notes: list[str] = field(default_factory=list[str])


def tapped(subject: Subject) -> Piece:
    """The subject with every inner tensor as an output: what plain kernels compute on the way."""
    known = dict(zip(subject.input_tensors, subject.sets[0], strict=True))
    every = [node.index for node in subject.anatomy.subgraph.nodes]
    order = subject.anatomy.inner_tensors()
    return carve(subject.model, subject.anatomy, every, known, outputs=order)


def run_reference(subject: Subject, folder: Path, launcher: Launcher) -> Reference:
    """Run the reference once and keep the value of every inner tensor.

    Args:
        subject: What to run.
        folder: Where the values go.
        launcher: Of the reference lane.

    Raises:
        AssayError: The reference cannot run the model.
    """
    piece = tapped(subject)
    inputs, outputs = piece.specs()
    fed = [dict(zip(subject.input_tensors, arrays, strict=True)) for arrays in subject.sets]
    sets = [[known[tensor] for tensor in piece.inputs] for known in fed]
    data = graph.write(piece.model)
    trial = Trial("the reference's inner values", data, inputs, outputs, sets, list(range(len(sets))))
    (result,) = launcher.run([trial])
    if result.failure is not None:
        raise AssayError(
            f"{subject.path}: the reference {launcher.lane} cannot run the model: {result.error}",
            fix="choose another with --reference",
        )
    folder.mkdir(parents=True, exist_ok=True)
    values: list[Values] = []
    for index, file in enumerate(result.files):
        kept = folder / f"values{index}.npz"
        shutil.move(file, kept)
        values.append(Values(fed[index], kept, piece.outputs))
    return Reference(launcher.lane, values)
