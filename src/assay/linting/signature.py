"""The signature of a node: all that an accelerator may decide on, and nothing else.

Two nodes with one signature are treated alike by a delegate, so a measurement of one speaks for the other. A
signature holds the op, each tensor's dtype, quantization kind, rank and constness, and `traits`: the options
by name, and what else of shapes and constant values a kernel looks at (which axes are reduced, how an operand
broadcasts, whether a window strides). Sizes themselves are left out: that they are free, once those traits are
the same, is what the probe's repeated shapes and the truth benchmark check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.graph.columns import Array, Ragged
from assay.graph.outline import Outline
from assay.linting.traits import TensorKind, option_traits, shape_traits

if TYPE_CHECKING:
    from assay.graph import Model, Node, Subgraph

#: Constants of whole numbers up to this many elements are parameters of an op: axes, sizes, indices.
_PARAMETER = 64
_PARAMETERS = {"int32": 4, "int64": 8}
_MANY = (2, 4, 8, 16)
_VARIADIC = frozenset({"CONCATENATION", "PACK", "ADD_N", "SPLIT", "SPLIT_V", "UNPACK", "STABLEHLO_CONCATENATE"})


@dataclass(frozen=True, slots=True)
class NodeSignature:
    """What a lane's answer for a node may depend on.

    Attributes:
        op: Builtin or custom name.
        tensors: Inputs and outputs as text, `float32[4], const float32[1] -> float32[4]`: dtype, quantization
            kind (`@t` for one scale, `@c` for one a channel, `@b` for blocks), rank; `const` where the value is
            in the file.
        traits: Named facts, sorted by name. `version` is always among them.
    """

    op: str
    tensors: str
    traits: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.tensors} | " + ", ".join(f"{name}={value}" for name, value in self.traits)

    @classmethod
    def parse(cls, op: str, text: str) -> NodeSignature:
        """The signature that `str` wrote.

        Raises:
            ValueError: The text is not of that form.
        """
        tensors, bar, rest = text.partition(" | ")
        if not bar:
            raise ValueError(f"not a signature: {text!r}")
        traits: list[tuple[str, str]] = []
        for part in rest.split(", ") if rest else []:
            name, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"not a signature: {text!r}")
            traits.append((name, value))
        return cls(op, tensors, tuple(traits))


def folded_halves(outline: Outline) -> dict[int, int]:
    """Outputs of DEQUANTIZE of a float16 constant -> that constant.

    A delegate that knows float16 reads the constant itself, so the node that uses it has a float16 constant
    for input and the DEQUANTIZE is folded away.
    """
    found: dict[int, int] = {}
    for node in outline.nodes_of("DEQUANTIZE"):
        reads, writes = outline.read[node], outline.written[node]
        half = len(reads) == len(writes) == 1 and reads[0] >= 0 and outline.dtypes[reads[0]] == "float16"
        if half and outline.is_constant[reads[0]]:
            found[writes[0]] = reads[0]
    return found


def signature_of(model: Model, subgraph: Subgraph, node: Node) -> NodeSignature:
    """The signature of one node, float16 weights seen through their DEQUANTIZE.

    Args:
        model: The model, for constant values.
        subgraph: The node's subgraph.
        node: The node.

    Returns:
        The signature; it never depends on names, nor on sizes except through the traits.
    """
    outline = model.outline(subgraph)
    return NodeSignatures(outline, folded_halves(outline)).of(node.index)


class NodeSignatures:
    """The signatures of a subgraph's nodes.

    Args:
        outline: The subgraph.
        halves: What `folded_halves` says of it; empty to see every DEQUANTIZE as a node of its own.

    Attributes:
        keys: A hashable value for each node. Nodes with equal ones have equal signatures, and most of a model's
            nodes are alike.
    """

    def __init__(self, outline: Outline, halves: Mapping[int, int]) -> None:
        self._outline = outline
        ids, kinds = _kinds(outline)
        # The last one is for -1, an absent input.
        written = np.array([*ids, len(kinds)], np.int32)
        read = written
        if halves:
            read = written.copy()
            read[list(halves)] = written[list(halves.values())]
        every: list[TensorKind | None] = [*kinds, None]
        self._written, self._read = ([every[index] for index in side.tolist()] for side in (written, read))
        self._known: dict[Any, NodeSignature] = {}
        self._codes: list[int] = outline.codes.tolist()
        self.keys = self._all_keys(read, written)

    def _all_keys(self, read: Array, written: Array) -> list[Any]:
        """For each node what its signature depends on, in numbers, as bytes."""
        outline = self._outline
        reads, writes = outline.reads, outline.writes
        heads = np.empty((len(self._codes), 3), np.int32)
        heads[:, 0], heads[:, 1], heads[:, 2] = outline.codes, outline.option_ids, reads.lengths
        head, left, right = heads.tobytes(), read[reads.flat].tobytes(), written[writes.flat].tobytes()
        ends, others = (reads.starts * 4).tolist(), (writes.starts * 4).tolist()
        keys: list[Any] = [
            head[12 * node : 12 * node + 12]
            + left[ends[node] : ends[node + 1]]
            + right[others[node] : others[node + 1]]
            for node in range(len(heads))
        ]
        for node in _repeating(reads):
            keys[node] = (keys[node], outline.read[node])
        for node, options in outline.custom.items():
            keys[node] = (keys[node], options)
        return keys

    def of(self, node: int) -> NodeSignature:
        """The signature of one node."""
        outline = self._outline
        code = outline.ops[self._codes[node]]
        reads = outline.read[node]
        inputs = [self._read[index] for index in reads]
        outputs = [self._written[index] for index in outline.written[node]]
        while inputs and inputs[-1] is None:
            # An absent trailing input (a bias) is the same to every kernel as one that is not listed.
            inputs.pop()
        position = outline.option_ids[node]
        options = outline.options[position]
        traits = shape_traits(code.op, options, outline.custom.get(node, b""), inputs, outputs)
        if len(set(reads)) < len(reads):
            runtime = [index for index in reads if index >= 0 and not outline.is_constant[index]]
            if len(set(runtime)) < len(runtime):
                traits["same_input"] = "yes"
        texts = (
            ["absent" if kind is None else kind.text for kind in inputs],
            ["absent" if kind is None else kind.text for kind in outputs],
        )
        # Nodes whose tensors differ in size alone mostly end here.
        key = (self._codes[node], position, tuple(texts[0]), tuple(texts[1]), tuple(traits.items()))
        found = self._known.get(key)
        if found is None:
            traits = {"version": str(code.version), **option_traits(code.op, options), **traits}
            many = code.op in _VARIADIC
            described = f"{_list(texts[0], traits, 'inputs', many)} -> {_list(texts[1], traits, 'outputs', many)}"
            found = self._known[key] = NodeSignature(code.op, described, tuple(sorted(traits.items())))
        return found


def _repeating(reads: Ragged) -> list[int]:
    """Nodes that read a tensor more than once."""
    places = np.lexsort((reads.flat, reads.owners()))
    flat, owners = reads.flat[places], reads.owners()[places]
    again = (flat[1:] == flat[:-1]) & (owners[1:] == owners[:-1])
    return sorted(set(owners[1:][again].tolist()))


def _kinds(outline: Outline) -> tuple[list[int], list[TensorKind]]:
    """Each tensor's kind, as a position in a list of the kinds that there are."""
    known: dict[Any, int] = {}
    flags = (
        outline.constant * 1 + outline.variable * 2 + outline.sparse * 4 + np.minimum(outline.scales, 2) * 8
    ).tolist()
    ids = [known.setdefault(key, len(known)) for key in zip(outline.dtypes, outline.shape, flags, strict=True)]
    kinds = [_kind(*key) for key in known]
    for index in np.flatnonzero(outline.constant).tolist():
        kind = kinds[ids[index]]
        width = _PARAMETERS.get(kind.dtype)
        if width is None or (count := prod(kind.shape)) > _PARAMETER:
            continue
        data = bytes(outline.constant_bytes(index))
        if len(data) == count * width:
            key = (ids[index], data)
            if key not in known:
                known[key] = len(kinds)
                kinds.append(kind.valued(data))
            ids[index] = known[key]
    return ids, kinds


def _kind(dtype: str, shape: tuple[int, ...], flags: int) -> TensorKind:
    constant = "const " if flags & 1 else "variable " if flags & 2 else ""
    if not prod(shape):
        # Nothing is in it, so it has no bytes in the file, and kernels take it for known all the same.
        constant = "empty "
    quantization = ("", "@t", "@c")[flags // 8]
    sparse = " sparse" if flags & 4 else ""
    return TensorKind(f"{constant}{dtype}{quantization}[{len(shape)}]{sparse}", dtype, shape, bool(flags & 1))


def _list(texts: list[str], traits: dict[str, str], what: str, many: bool) -> str:
    if len(texts) < 4 or not many:
        return ", ".join(texts)
    # Long lists (concatenation, pack, split) by their kinds and a bucket of their length: a delegate's answer
    # does not depend on whether there are five or six of a kind, and it may on whether there are many.
    distinct = list(dict.fromkeys(texts))
    if len(distinct) > 2:
        return ", ".join(texts)
    traits[f"n_{what}"] = next((f"<={limit}" for limit in _MANY if len(texts) <= limit), f">{_MANY[-1]}")
    return "many " + " and ".join(sorted(distinct))
