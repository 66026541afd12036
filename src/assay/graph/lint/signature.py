"""The signature of a node: all that an accelerator may decide on, and nothing else.

Two nodes with one signature are treated alike by a delegate, so a measurement of one speaks for the other. A
signature holds the op, each tensor's dtype, quantization kind, rank and constness, and `traits`: the options
by name, and what else of shapes and constant values a kernel looks at (which axes are reduced, how an operand
broadcasts, whether a window strides). Sizes themselves are left out: that they are free, once those traits are
the same, is what the probe's repeated shapes and the truth benchmark check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.graph.lint.traits import traits_of

if TYPE_CHECKING:
    from assay.graph import Model, Node, Subgraph, Tensor

_MANY = (2, 4, 8, 16)
_VARIADIC = frozenset({"CONCATENATION", "PACK", "ADD_N", "SPLIT", "SPLIT_V", "UNPACK", "STABLEHLO_CONCATENATE"})


@dataclass(frozen=True, slots=True)
class Signature:
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
    def parse(cls, op: str, text: str) -> Signature:
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


def folded_halves(model: Model, subgraph: Subgraph) -> dict[int, int]:
    """Outputs of DEQUANTIZE of a float16 constant -> that constant.

    A delegate that knows float16 reads the constant itself, so the node that uses it has a float16 constant
    for input and the DEQUANTIZE is folded away.
    """
    tensors = subgraph.tensors
    return {
        node.outputs[0]: node.inputs[0]
        for node in subgraph.nodes
        if node.op == "DEQUANTIZE"
        and len(node.inputs) == 1
        and len(node.outputs) == 1
        and node.inputs[0] >= 0
        and tensors[node.inputs[0]].dtype == "float16"
        and tensors[node.inputs[0]].is_constant
    }


def signature_of(
    model: Model, subgraph: Subgraph, node: Node, halves: Mapping[int, int] | None = None
) -> Signature:
    """The signature of one node.

    Args:
        model: The model, for constant values.
        subgraph: The node's subgraph.
        node: The node.
        halves: What `folded_halves` says of the subgraph; None to see every DEQUANTIZE as a node of its own.

    Returns:
        The signature; it never depends on names, nor on sizes except through the traits.
    """
    tensors = subgraph.tensors
    folded = halves or {}
    inputs = [None if index < 0 else tensors[folded.get(index, index)] for index in node.inputs]
    outputs = [None if index < 0 else tensors[index] for index in node.outputs]
    while inputs and inputs[-1] is None:
        # An absent trailing input (a bias) is the same to every kernel as one that is not listed.
        inputs.pop()
    read = _reader(model, inputs)
    traits = traits_of(node, inputs, outputs, read)
    runtime = [index for index in node.inputs if index >= 0 and not tensors[index].is_constant]
    if len(set(runtime)) < len(runtime):
        traits["same_input"] = "yes"
    traits["version"] = str(node.version)
    many = node.op in _VARIADIC
    described = f"{_list(inputs, traits, 'inputs', many)} -> {_list(outputs, traits, 'outputs', many)}"
    return Signature(node.op, described, tuple(sorted(traits.items())))


class Alike:
    """Tells nodes apart quickly: nodes with equal keys have equal signatures, and most of a model's are alike.

    Args:
        model: The model.
        subgraph: The nodes' subgraph.
        halves: As in `signature_of`.
    """

    def __init__(self, model: Model, subgraph: Subgraph, halves: Mapping[int, int]) -> None:
        self._model = model
        self._tensors = subgraph.tensors
        self._halves = halves
        self._seen: dict[int, Any] = {-1: None}

    def key(self, node: Node) -> Any:
        """A hashable value for a node."""
        inputs = [self._halves.get(index, index) for index in node.inputs] if self._halves else node.inputs
        same = len(set(node.inputs)) < len(node.inputs)
        return (
            node.op,
            node.version,
            tuple([self._of(index) for index in inputs]),
            tuple([self._of(index) for index in node.outputs]),
            str(node.options),
            bytes(node.custom_options),
            tuple(node.inputs) if same else None,
        )

    def _of(self, index: int) -> Any:
        found = self._seen.get(index)
        if found is None and index >= 0:
            tensor = self._tensors[index]
            # Small constants of whole numbers are parameters of the op: axes, sizes, indices.
            small = tensor.is_constant and tensor.dtype in ("int32", "int64") and tensor.elements <= 64
            values = bytes(self._model.constant_bytes(tensor)) if small else None
            found = self._seen[index] = (describe(tensor), tensor.shape, values)
        return found


def _reader(model: Model, inputs: Sequence[Tensor | None]) -> Callable[[int], Any]:
    def read(position: int) -> Any:
        """The constant value of an input, or None where it is not constant or not there."""
        if position >= len(inputs):
            return None
        tensor = inputs[position]
        if tensor is None or not tensor.is_constant:
            return None
        return model.data(tensor)

    return read


def describe(tensor: Tensor | None) -> str:
    """A tensor as signatures have it: `const int8@c[4]`."""
    if tensor is None:
        return "absent"
    quantization = tensor.quantization
    kind = ""
    if quantization is not None and len(quantization.scales):
        kind = "@c" if len(quantization.scales) > 1 else "@t"
    constant = "const " if tensor.is_constant else "variable " if tensor.is_variable else ""
    if not tensor.elements:
        # Nothing is in it, so it has no bytes in the file, and kernels take it for known all the same.
        constant = "empty "
    sparse = " sparse" if tensor.sparsity is not None else ""
    return f"{constant}{tensor.dtype}{kind}[{len(tensor.shape)}]{sparse}"


def _list(tensors: Sequence[Tensor | None], traits: dict[str, str], what: str, many: bool) -> str:
    texts = [describe(tensor) for tensor in tensors]
    if len(texts) < 4 or not many:
        return ", ".join(texts)
    # Long lists (concatenation, pack, split) by their kinds and a bucket of their length: a delegate's answer
    # does not depend on whether there are five or six of a kind, and it may on whether there are many.
    kinds = list(dict.fromkeys(texts))
    if len(kinds) > 2:
        return ", ".join(texts)
    traits[f"n_{what}"] = next((f"<={limit}" for limit in _MANY if len(texts) <= limit), f">{_MANY[-1]}")
    return "many " + " and ".join(sorted(kinds))
