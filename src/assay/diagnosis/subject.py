"""What is diagnosed: a signature of a model with its inputs, and the reference's value of every inner tensor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay import graph
from assay.diagnosis.launch import Launcher, Trial
from assay.diagnosis.pieces import Anatomy, Piece, carve
from assay.errors import AssayError
from assay.lanes.job import UNFEEDABLE, TensorSpec, input_specs, output_specs, resized_inputs

Array = np.ndarray[Any, np.dtype[Any]]

KINDS = ("uniform", "normal", "structured")
"""Kinds of seeded inputs that are tried where the user gives none."""


MOST_VALUES = 8 * 2**30
"""Bytes of inner values that are kept on the disk at most, for all input sets, with and without noise."""


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


def load_sets(
    model: Path, signature: str | None, shapes: Mapping[str, Sequence[int]], inputs: Path | None
) -> tuple[list[list[Array]] | None, list[str] | None]:
    """The user's input sets and their names; a second, seeded one is added where there is only one.

    Raises:
        AssayError: The file or the inputs are no good.
    """
    from assay.numerics.inputs import make_inputs, resolve_shapes
    from assay.numerics.user_inputs import load_inputs

    if inputs is None:
        return None, None
    read = graph.read(model)
    chosen = read.signature(signature)
    resolved = resolve_shapes(chosen, shapes)
    loaded = load_inputs(inputs, chosen, resolved)
    sets, names = [one.arrays for one in loaded], [one.name for one in loaded]
    if len(sets) == 1:
        # What stays from an inference before shows only beside another one.
        sets.append(make_inputs(read, chosen, resolved, "uniform", 0))
        names.append("seeded uniform, seed 0")
    return sets, names


def load_outputs(path: Path | None) -> dict[str, Array] | None:
    """The source model's outputs by name.

    Raises:
        AssayError: The file cannot be read as arrays.
    """
    from assay.numerics.user_inputs import read_arrays

    return None if path is None else read_arrays(path)


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
    if any(tensor.tensor.dtype in UNFEEDABLE for tensor in chosen.inputs):
        raise AssayError(f"{path}: an input is a string or a resource, which cannot be fed")
    anatomy = Anatomy(subgraph)
    each = sum(subgraph.tensors[tensor].nbytes or 0 for tensor in anatomy.inner_tensors())
    room = MOST_VALUES // max(1, 2 * each)
    if room < 1:
        raise AssayError(
            f"{path}: one run has {each / 2**30:.1f} GiB of inner values, more than can be kept",
            fix="diagnose a part of it, cut out with assay.graph.cut, or a variant for smaller inputs",
        )
    sets = sets[:room]
    return Subject(
        path=path,
        model=model,
        signature=chosen,
        anatomy=anatomy,
        inputs=input_specs(chosen, resolved),
        outputs=output_specs(chosen),
        resized=resized_inputs(chosen, resolved),
        sets=[list(arrays) for arrays in sets],
        set_names=list(set_names or [f"given set {index}" for index in range(len(sets))]),
    )


class Values(Mapping[int, Array]):
    """Tensor index -> value, of one run; each is read from the disk when it is asked for.

    Args:
        known: Values that are at hand: the graph's inputs, and constants that were unfolded.
        file: `.npz` with the other values, keyed by position.
        order: Tensor index of each position.
    """

    def __init__(self, known: Mapping[int, Array], file: Path, order: Sequence[int]) -> None:
        self._known = dict(known)
        self._position = {tensor: position for position, tensor in enumerate(order)}
        self._archive = np.load(file, allow_pickle=False)

    def __getitem__(self, tensor: int) -> Array:
        if tensor in self._known:
            return self._known[tensor]
        return self._archive[str(self._position[tensor])]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._known or tensor in self._position

    def __iter__(self) -> Iterator[int]:
        yield from self._known
        yield from (tensor for tensor in self._position if tensor not in self._known)

    def __len__(self) -> int:
        return len(self._known.keys() | self._position.keys())


@dataclass
class Reference:
    """The reference's run of a subject.

    Attributes:
        lane: The lane that it is.
        values: For each input set, the value of every tensor that has numbers.
        expected: Tensor index -> the largest difference that arithmetic at the lane's precision explains there,
            as the reference showed with that precision's rounding noise built in.
    """

    lane: str
    values: list[Values]
    expected: dict[int, float]


def unfolded(model: graph.Model, subgraph: graph.Subgraph) -> dict[int, Array]:
    """Results of nodes that only unpack weights: float16 to float32, sparse to dense. Exact, no runtime needed.

    Delegates do this while they load, and a runtime whose delegate did so has nothing to show for these tensors.
    """
    known: dict[int, Array] = {}
    for node in subgraph.nodes:
        if node.op not in ("DEQUANTIZE", "DENSIFY"):
            continue
        source, result = subgraph.tensors[node.inputs[0]], subgraph.tensors[node.outputs[0]]
        value = model.data(source) if source.is_constant else known.get(source.index)
        if value is not None and (node.op == "DENSIFY" or source.dtype == "float16"):
            known[result.index] = np.ascontiguousarray(value.astype(np.dtype(result.dtype)))
    return known


def tapped(subject: Subject, unfolded_constants: Mapping[int, Array]) -> Piece:
    """The subject with every inner tensor as an output: what plain kernels compute on the way."""
    known = dict(zip(subject.input_tensors, subject.sets[0], strict=True))
    every = [node.index for node in subject.anatomy.subgraph.nodes]
    order = [tensor for tensor in subject.anatomy.inner_tensors() if tensor not in unfolded_constants]
    return carve(subject.model, subject.anatomy, every, known, outputs=order)


def run_reference(
    subject: Subject, folder: Path, launcher: Launcher, precision: str, *, draws: int = 1
) -> Reference:
    """Run the reference once: keep the value of every inner tensor, and learn how far arithmetic moves it.

    Args:
        subject: What to run.
        folder: Where the values go.
        launcher: Of the reference lane.
        precision: Of the lane that is diagnosed: a key of `assay.numerics.noise.PRECISIONS`.
        draws: How often the noise is drawn for each input set.

    Raises:
        AssayError: The reference cannot run the model.
    """
    from assay.numerics.noise import PRECISIONS, noisy

    constants = unfolded(subject.model, subject.anatomy.subgraph)
    piece = tapped(subject, constants)
    inputs, outputs = piece.specs()
    fed = [dict(zip(subject.input_tensors, arrays, strict=True)) for arrays in subject.sets]
    sets = [[known[tensor] for tensor in piece.inputs] for known in fed]
    every = list(range(len(sets)))
    exact = Trial("the reference's inner values", graph.write(piece.model), inputs, outputs, sets, every)
    noise_model = noisy(piece.model, PRECISIONS[precision], seed=1, resized=bool(subject.resized))
    noise = replace(exact, name="the same with rounding noise", model=graph.write(noise_model))
    result, perturbed = launcher.run([exact, replace(noise, sequence=every * draws)])
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
        values.append(Values({**constants, **fed[index]}, kept, piece.outputs))
    expected: dict[int, float] = {}
    if perturbed.failure is None:
        for position, index in enumerate(every * draws):
            drawn = perturbed.outputs(position)
            for tensor, output in zip(piece.outputs, drawn, strict=True):
                gap = _finite_difference(values[index][tensor], output)
                expected[tensor] = max(expected.get(tensor, 0.0), gap)
    return Reference(launcher.lane, values, expected)


def _finite_difference(right: Array, drawn: Array) -> float:
    """Largest difference where both are finite: what overflows in the noise is no measure of it."""
    if right.shape != drawn.shape or right.dtype.kind not in "fiu":
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(right.astype(np.float64) - drawn.astype(np.float64))
    return float(gap[np.isfinite(gap)].max(initial=0.0))
