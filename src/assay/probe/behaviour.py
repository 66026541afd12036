"""How a delegate behaves, measured on graphs made for it: how many parts of a graph it takes, what it does with
float16 weights, and how large weights may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.graph.build import GraphBuilder
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Node, Tensor

#: An op that the lanes here refuse and that keeps its input's shape; each lane's own refusals confirm it.
_REFUSED = "ZEROS_LIKE"


@dataclass(frozen=True)
class Experiment:
    """A graph whose delegated count tells how the delegate behaves.

    Attributes:
        name: What it decides.
        model: The graph.
        meanings: Delegated nodes -> what that means; None for a graph that is taken whole.
    """

    name: str
    model: Model
    meanings: dict[int | None, Any]


def _chain(ops: list[str], half_weights: bool = False) -> Model:
    model = Model(description="assay probe", buffers=[Buffer()])
    shape = (1, 4, 4, 8)
    tensors = [Tensor(0, "input0", "float32", shape, has_rank=True)]
    nodes: list[Node] = []
    if half_weights:
        model.buffers.append(Buffer(np.ones(8, np.float16).tobytes()))
        tensors.append(Tensor(1, "weight_half", "float16", (8,), buffer=1, is_constant=True, has_rank=True))
        tensors.append(Tensor(2, "weight", "float32", (8,), has_rank=True))
        nodes.append(Node(0, "DEQUANTIZE", 3, [1], [2]))
    last = 0
    for op in ops:
        tensors.append(Tensor(len(tensors), f"value{len(tensors)}", "float32", shape, has_rank=True))
        inputs = [last, 2] if op == "MUL" and half_weights else [last]
        if op == "ADD":
            inputs = [last, 0]
        nodes.append(Node(len(nodes), op, 1, inputs, [tensors[-1].index]))
        if op in ("MUL", "ADD"):
            nodes[-1].options, nodes[-1].options_type = (
                {"fused_activation_function": "NONE"},
                f"{op.title()}Options",
            )
        last = tensors[-1].index
    model.subgraphs.append(Subgraph(0, "main", tensors, nodes, [0], [last]))
    return model


def experiments() -> list[Experiment]:
    """The graphs: two runs of nodes around a refused one; float16 weights in a whole and in a split graph."""
    return [
        Experiment("max_partitions", _chain(["ABS", "COS", "SIN", _REFUSED, "ABS", "COS"]), {3: 1, 5: None}),
        Experiment("folds_float16_constants", _chain(["ABS", "MUL", "COS"], half_weights=True), {None: True}),
        Experiment(
            "leaves_folded_constants_in_split_graphs",
            _chain(["ABS", "MUL", "COS", _REFUSED], half_weights=True),
            {3: True, 4: False},
        ),
    ]


@dataclass(frozen=True)
class WideLayer:
    """A 1x1 convolution whose weights make a texture that is one texel wider than a limit.

    Attributes:
        limit: The limit in texels, of four channels each.
        model: The graph.
        given: Its input.
        expected: What the layer gives.
    """

    limit: int
    model: Model
    given: np.ndarray[Any, Any]
    expected: np.ndarray[Any, Any]


def wide_layers() -> Iterator[WideLayer]:
    """Layers for the limits that graphics adapters have, from the smallest."""
    rng = np.random.default_rng(3)
    for limit in (2048, 4096, 8192, 16384, 32768):
        count = 4 * (limit + 1)
        weights = rng.normal(size=(count, 1, 1, 8)).astype(np.float32)
        given = rng.normal(size=(1, 4, 4, 8)).astype(np.float32)
        graph = GraphBuilder()
        source = graph.input("input0", given.shape)
        window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "NONE"}
        kernel, bias = graph.constant(weights), graph.constant(np.zeros(count, np.float32))
        out = graph.op("CONV_2D", [source, kernel, bias], (1, 4, 4, count), options=window)
        expected = given.astype(np.float64) @ weights[:, 0, 0].T.astype(np.float64)
        yield WideLayer(limit, graph.finish([out]), given, expected)
