"""Signatures: what must tell two nodes apart does, what must not does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.graph import GraphBuilder, read, write
from assay.linting.signature import NodeSignature, signature_of
from assay.linting.traits import pattern


def signature(graph: GraphBuilder, node: int = -1) -> NodeSignature:
    model = graph.model
    subgraph = model.subgraphs[0]
    return signature_of(model, subgraph, subgraph.nodes[node])


def conv(
    stride: int = 1, name: str = "x", side: int = 8, half: bool = False, activation: str = "NONE"
) -> GraphBuilder:
    graph = GraphBuilder()
    x = graph.input(name, (1, side, side, 4))
    if half:
        stored = graph.constant(np.ones((2, 3, 3, 4), np.float16))
        weights = graph.op("DEQUANTIZE", [stored], (2, 3, 3, 4), "float32", version=3)
    else:
        weights = graph.constant(np.ones((2, 3, 3, 4), np.float32))
    options = {
        "padding": "SAME",
        "stride_w": stride,
        "stride_h": stride,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "fused_activation_function": activation,
    }
    out = graph.op("CONV_2D", [x, weights, None], (1, side, side, 2), options=options)
    graph.finish([out])
    return graph


def test_names_and_sizes_do_not_matter():
    assert signature(conv()) == signature(conv(name="other", side=16))


@pytest.mark.parametrize("change", [{"stride": 2}, {"half": True}, {"activation": "RELU"}])
def test_stride_constness_and_activation_do(change):
    assert signature(conv()) != signature(conv(**change))


def test_a_float16_weight_is_seen_through_its_dequantize():
    assert "const float16[4]" in str(signature(conv(half=True)))


def test_the_signature_of_a_built_graph_is_that_of_its_file():
    graph = conv(half=True)
    model = read(write(graph.model))
    subgraph = model.subgraphs[0]
    again = signature_of(model, subgraph, subgraph.nodes[-1])
    assert again == signature(graph)


def test_text_form_round_trips():
    one = signature(conv())
    assert NodeSignature.parse("CONV_2D", str(one)) == one


def test_axes_are_counted_from_the_front():
    texts = []
    for axis in (-1, 2):
        graph = GraphBuilder()
        x = graph.input("x", (1, 4, 8))
        graph.finish(
            [
                graph.op(
                    "MEAN", [x, graph.constant(np.array([axis], np.int32))], (1, 4), options={"keep_dims": False}
                )
            ]
        )
        texts.append(str(signature(graph)))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("shape", "out", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), "same"),
        ((), (1, 2, 3), "scalar"),
        ((3,), (1, 2, 3), "--="),
        ((2, 1), (5, 2, 3), "-=1"),
        ((1, 2, 3), (4, 2, 3), "1=="),
    ],
)
def test_broadcast_patterns(shape, out, expected):
    assert pattern(shape, out) == expected


@given(st.lists(st.integers(1, 4), max_size=5), st.lists(st.integers(1, 4), max_size=5))
def test_a_pattern_has_a_mark_for_each_axis(shape, out):
    marks = pattern(shape, out)
    assert marks in ("same", "scalar", "longer") or len(marks) == len(out)
