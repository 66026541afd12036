"""Which dimensions of a graph's tensors must have the same size, and which may be made smaller.

Two axes are the same where an op makes them so (the channels of a convolution's input and of its filter). A size
that an op computes from another one (a strided convolution's height) follows from it. An axis of which nothing is
known is left as it is, so a rule that is missing costs file size, never correctness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.graph import Model, Node, Subgraph

Axis = tuple[int, int]
"""Tensor index and dimension."""

_UNARY = frozenset(
    {
        *(
            "ABS",
            "CAST",
            "CEIL",
            "COS",
            "DEQUANTIZE",
            "ELU",
            "EXP",
            "FLOOR",
            "GELU",
            "HARD_SWISH",
            "L2_NORMALIZATION",
        ),
        *("LEAKY_RELU", "LOG", "LOGISTIC", "LOGICAL_NOT", "LOG_SOFTMAX", "NEG", "QUANTIZE", "RELU", "RELU6"),
        *("RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH"),
        "ZEROS_LIKE",
    }
)
_BROADCASTING = frozenset(
    {
        *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"),
        *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "LOGICAL_AND", "LOGICAL_OR"),
        *("PRELU", "SELECT_V2"),
    }
)
_REDUCING = frozenset({"MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"})
_REGROUPING = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS"})


@dataclass(frozen=True)
class _Follows:
    """A size that an op computes: `result` from `sources`."""

    result: Axis
    sources: tuple[Axis, ...]
    compute: Callable[[list[int]], int]


class Axes:
    """The axes of a subgraph, in groups of equal size.

    Args:
        model: The model.
        subgraph: One of its subgraphs, without control flow.
    """

    def __init__(self, model: Model, subgraph: Subgraph) -> None:
        self._model = model
        self._graph = subgraph
        self._parent: dict[Axis, Axis] = {}
        self._fixed: set[Axis] = set()
        self._least: dict[Axis, int] = {}
        self._follows: list[_Follows] = []
        for node in subgraph.nodes:
            self._rule(node)

    def free(self) -> list[Axis]:
        """One axis of each group whose size may be chosen; sizes above 1 only."""
        taken = {self._root(axis) for axis in self._fixed} | {self._root(rule.result) for rule in self._follows}
        roots = dict.fromkeys(self._root(axis) for axis in self._all())
        return [root for root in roots if root not in taken and self._size(root) > 1]

    def sizes(self, target: int | Mapping[Axis, int]) -> dict[Axis, int]:
        """A size for every axis; what does not fit then keeps its size.

        Args:
            target: What free axes are at most; or that for some of the axes that `free` gives.
        """
        fixed = {self._root(axis) for axis in self._fixed}
        while True:
            chosen, broken = self._choose(target, fixed)
            if broken is None:
                return {axis: chosen[self._root(axis)] for axis in self._all()}
            fixed |= {self._root(axis) for axis in (broken.result, *broken.sources)}

    def _choose(
        self, target: int | Mapping[Axis, int], fixed: set[Axis]
    ) -> tuple[dict[Axis, int], _Follows | None]:
        """Sizes by group, and the first rule that they break, if any."""
        changed = True
        while changed:
            changed = False
            for rule in self._follows:
                sources = {self._root(axis) for axis in rule.sources}
                if self._root(rule.result) in fixed and not sources <= fixed:
                    fixed |= sources
                    changed = True
        computed = {self._root(rule.result) for rule in self._follows} - fixed
        least: dict[Axis, int] = {}
        for axis, size in self._least.items():
            least[self._root(axis)] = max(size, least.get(self._root(axis), 1))
        chosen: dict[Axis, int] = {}
        for axis in self._all():
            root, size = self._root(axis), self._size(axis)
            if root in fixed:
                chosen[root] = size
            elif root not in computed:
                most = target if isinstance(target, int) else target.get(root, size)
                chosen[root] = min(size, max(most, least.get(root, 1)))
        for rule in self._follows:
            sources = [chosen.get(self._root(axis)) for axis in rule.sources]
            known = [size for size in sources if size is not None]
            if len(known) < len(sources):
                return chosen, rule
            size = rule.compute(known)
            if size < 1 or chosen.setdefault(self._root(rule.result), size) != size:
                return chosen, rule
        return chosen, None

    def _all(self) -> list[Axis]:
        return [(t.index, axis) for t in self._graph.tensors for axis in range(len(t.shape))]

    def _size(self, axis: Axis) -> int:
        return self._graph.tensors[axis[0]].shape[axis[1]]

    def _root(self, axis: Axis) -> Axis:
        while axis in self._parent:
            axis = self._parent[axis]
        return axis

    def _same(self, *axes: Axis) -> None:
        """Make axes one group; where their sizes differ, none of them may change."""
        if len({self._size(axis) for axis in axes}) > 1:
            self._fixed.update(axes)
            return
        first = self._root(axes[0])
        for axis in axes[1:]:
            root = self._root(axis)
            if root != first:
                self._parent[root] = first

    def _fix(self, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            if tensor >= 0:
                self._fixed.update((tensor, axis) for axis in range(self._rank(tensor)))

    def _rank(self, tensor: int) -> int:
        return len(self._graph.tensors[tensor].shape)

    def _rule(self, node: Node) -> None:
        read, made = node.inputs, node.outputs
        match node.op:
            case op if op in _UNARY:
                self._alike(read[0], made[0])
            case op if op in _BROADCASTING:
                self._broadcast([tensor for tensor in read if tensor >= 0], made[0])
            case "CONV_2D" | "DEPTHWISE_CONV_2D":
                self._convolution(node)
            case "MAX_POOL_2D" | "AVERAGE_POOL_2D":
                self._same((read[0], 0), (made[0], 0))
                self._same((read[0], 3), (made[0], 3))
                kernel = (int(node.options["filter_height"]), int(node.options["filter_width"]))
                self._window(node, read[0], made[0], kernel)
            case "TRANSPOSE_CONV":
                self._transposed(node)
            case "FULLY_CONNECTED":
                self._fully_connected(node)
            case "BATCH_MATMUL":
                self._matmul(node)
            case "CONCATENATION":
                self._concatenation(node)
            case "TRANSPOSE" if self._graph.tensors[read[1]].is_constant:
                order = self._constant(read[1])
                for axis, source in enumerate(order):
                    self._same((made[0], axis), (read[0], source))
                self._fix(read[1:])
            case "PAD" | "PADV2" if self._graph.tensors[read[1]].is_constant:
                self._pad(node)
            case op if op in _REDUCING and self._graph.tensors[read[1]].is_constant:
                self._reduction(node)
            case op if op in _REGROUPING:
                self._regroup(node)
            case _:
                self._fix([*read, *made])

    def _constant(self, tensor: int) -> list[int]:
        return [int(value) for value in self._model.data(self._graph.tensors[tensor]).reshape(-1)]

    def _alike(self, source: int, result: int) -> None:
        if self._rank(source) != self._rank(result):
            self._fix([source, result])
            return
        for axis in range(self._rank(result)):
            self._same((source, axis), (result, axis))

    def _broadcast(self, sources: list[int], result: int) -> None:
        rank = self._rank(result)
        for source in sources:
            for axis in range(self._rank(source)):
                into = axis + rank - self._rank(source)
                if into < 0:
                    self._fix([source, result])
                elif self._size((source, axis)) == 1 != self._size((result, into)):
                    self._fixed.add((source, axis))
                else:
                    self._same((source, axis), (result, into))

    def _convolution(self, node: Node) -> None:
        (source, weights), (result,) = node.inputs[:2], node.outputs
        depthwise = node.op == "DEPTHWISE_CONV_2D"
        into, out = ((weights, 3), (weights, 3)) if depthwise else ((weights, 3), (weights, 0))
        self._same((source, 0), (result, 0))
        self._same((source, 3), into)
        self._same((result, 3), out)
        if depthwise:
            self._fixed.add((weights, 0))
        if len(node.inputs) > 2 and node.inputs[2] >= 0:
            self._same((node.inputs[2], 0), (result, 3))
        self._fixed.update({(weights, 1), (weights, 2)})
        height, width = self._size((weights, 1)), self._size((weights, 2))
        down, across = int(node.options["dilation_h_factor"]), int(node.options["dilation_w_factor"])
        self._window(node, source, result, ((height - 1) * down + 1, (width - 1) * across + 1))

    def _window(self, node: Node, source: int, result: int, kernel: tuple[int, int]) -> None:
        strides = (int(node.options["stride_h"]), int(node.options["stride_w"]))
        same = node.options["padding"] == "SAME"
        for axis, (extent, stride) in enumerate(zip(kernel, strides, strict=True), start=1):
            if stride == 1 and (same or extent == 1):
                self._same((source, axis), (result, axis))
                continue
            if not same:
                self._least[(source, axis)] = max(extent, self._least.get((source, axis), 1))
            self._follow((result, axis), [(source, axis)], _window_size(extent, stride, same))

    def _follow(self, result: Axis, sources: list[Axis], compute: Callable[[list[int]], int]) -> None:
        """The size follows from others, if the rule says what the file says."""
        if compute([self._size(axis) for axis in sources]) == self._size(result):
            self._follows.append(_Follows(result, tuple(sources), compute))
        else:
            self._fixed.update({result, *sources})

    def _transposed(self, node: Node) -> None:
        spelled, weights, source = node.inputs[:3]
        result = node.outputs[0]
        self._fix([spelled])
        self._fixed.update({(weights, 1), (weights, 2)})
        self._same((source, 0), (result, 0))
        self._same((source, 3), (weights, 3))
        self._same((result, 3), (weights, 0))
        if len(node.inputs) > 3 and node.inputs[3] >= 0:
            self._same((node.inputs[3], 0), (result, 3))
        strides = (int(node.options["stride_h"]), int(node.options["stride_w"]))
        for axis, stride in enumerate(strides, start=1):
            self._follow((result, axis), [(source, axis)], _times(stride))

    def _fully_connected(self, node: Node) -> None:
        (source, weights), result = node.inputs[:2], node.outputs[0]
        last = (source, self._rank(source) - 1)
        self._same(last, (weights, 1))
        self._same((result, self._rank(result) - 1), (weights, 0))
        if len(node.inputs) > 2 and node.inputs[2] >= 0:
            self._same((node.inputs[2], 0), (weights, 0))
        if self._rank(source) == self._rank(result):
            for axis in range(self._rank(source) - 1):
                self._same((source, axis), (result, axis))
        else:
            self._fix([source, result])

    def _matmul(self, node: Node) -> None:
        (left, right), result = node.inputs[:2], node.outputs[0]
        ranks = {self._rank(left), self._rank(right), self._rank(result)}
        if len(ranks) > 1:
            self._fix([left, right, result])
            return
        rank = ranks.pop()
        rows, inner = (rank - 1, rank - 2) if node.options.get("adj_x") else (rank - 2, rank - 1)
        depth, columns = (rank - 1, rank - 2) if node.options.get("adj_y") else (rank - 2, rank - 1)
        self._same((left, rows), (result, rank - 2))
        self._same((left, inner), (right, depth))
        self._same((right, columns), (result, rank - 1))
        for axis in range(rank - 2):
            self._same((left, axis), (right, axis), (result, axis))

    def _concatenation(self, node: Node) -> None:
        result = node.outputs[0]
        rank = self._rank(result)
        along = int(node.options["axis"]) % rank
        for axis in range(rank):
            axes = [(tensor, axis) for tensor in node.inputs]
            if axis == along:
                self._follow((result, axis), axes, sum)
            else:
                self._same((result, axis), *axes)

    def _pad(self, node: Node) -> None:
        source, result = node.inputs[0], node.outputs[0]
        amounts = self._constant(node.inputs[1])
        self._fix(node.inputs[1:])
        for axis in range(self._rank(result)):
            added = amounts[2 * axis] + amounts[2 * axis + 1]
            if added == 0:
                self._same((source, axis), (result, axis))
            else:
                self._follow((result, axis), [(source, axis)], _plus(added))

    def _reduction(self, node: Node) -> None:
        source, result = node.inputs[0], node.outputs[0]
        rank = self._rank(source)
        gone = {axis % rank for axis in self._constant(node.inputs[1])}
        self._fix(node.inputs[1:])
        kept = [axis for axis in range(rank) if node.options.get("keep_dims") or axis not in gone]
        for into, axis in enumerate(kept):
            if axis not in gone:
                self._same((source, axis), (result, into))

    def _regroup(self, node: Node) -> None:
        """Axes that pass through a RESHAPE unchanged; those that are merged or split stay as they are."""
        source, result = node.inputs[0], node.outputs[0]
        self._fix(node.inputs[1:])
        left, right = self._graph.tensors[source].shape, self._graph.tensors[result].shape
        if math.prod(left) != math.prod(right):
            self._fix([source, result])
            return
        for group, into in _groups(left, right):
            if len(group) == 1 and len(into) == 1:
                self._same((source, group[0]), (result, into[0]))
            else:
                self._fixed.update({*((source, axis) for axis in group), *((result, axis) for axis in into)})


def _groups(left: tuple[int, ...], right: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of axes with equal products on both sides; axes of size 1 belong to no run."""
    groups: list[tuple[list[int], list[int]]] = []
    lefts = [axis for axis, size in enumerate(left) if size != 1]
    rights = [axis for axis, size in enumerate(right) if size != 1]
    while lefts and rights:
        group, into = [lefts.pop(0)], [rights.pop(0)]
        while (a := math.prod(left[i] for i in group)) != (b := math.prod(right[i] for i in into)):
            if a < b:
                group.append(lefts.pop(0))
            else:
                into.append(rights.pop(0))
        groups.append((group, into))
    return groups


def _window_size(extent: int, stride: int, same: bool) -> Callable[[list[int]], int]:
    def compute(sizes: list[int]) -> int:
        return -(-sizes[0] // stride) if same else (sizes[0] - extent) // stride + 1

    return compute


def _times(factor: int) -> Callable[[list[int]], int]:
    return lambda sizes: sizes[0] * factor


def _plus(added: int) -> Callable[[list[int]], int]:
    return lambda sizes: sizes[0] + added
