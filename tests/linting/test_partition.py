"""Partitions follow the graph: counts as the GPU engine's log gave them, and properties on random graphs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from assay.graph import GraphBuilder, read
from assay.graph.outline import Outline
from assay.linting.partition import crossings, delegated, epochs, partitions
from assay.linting.signature import folded_halves

SHAPE = (1, 2, 2, 4)


def outlined(graph: GraphBuilder, outputs: list[int]) -> Outline:
    model = graph.finish(outputs)
    return model.outline(model.subgraphs[0])


def chain(ops: list[str]) -> Outline:
    graph = GraphBuilder()
    value = graph.input("x", SHAPE)
    for op in ops:
        value = graph.op(op, [value], SHAPE)
    return outlined(graph, [value])


def taken(outline: Outline) -> list[bool]:
    return [op != "ZEROS_LIKE" for op in outline.op]


def test_only_the_largest_run_is_delegated():
    graph = chain(["ABS", "COS", "SIN", "ZEROS_LIKE", "ABS", "COS"])
    assert delegated(graph, taken(graph), ()) == [0, 1, 2]
    assert delegated(graph, taken(graph), (), None) == [0, 1, 2, 4, 5]


def test_of_equal_runs_the_first():
    graph = chain(["ABS", "COS", "ZEROS_LIKE", "SIN", "EXP"])
    assert delegated(graph, taken(graph), ()) == [0, 1]


def test_a_branch_around_a_refused_node_stays_in_one_partition():
    graph = GraphBuilder()
    x = graph.op("ABS", [graph.input("x", SHAPE)], SHAPE)
    refused = graph.op("ZEROS_LIKE", [x], SHAPE)
    side = graph.op("SIN", [graph.op("EXP", [x], SHAPE)], SHAPE)
    both = graph.op("ADD", [refused, side], SHAPE, options={"fused_activation_function": "NONE"})
    outline = outlined(graph, [both])
    # In the order of the file the refused node stands between them; by dependencies ABS, EXP and SIN are one run.
    assert delegated(outline, taken(outline), ()) == [0, 2, 3]
    parts = partitions(outline, [0, 2, 3])
    assert [part.accelerated for part in parts] == [True, False]
    assert len(crossings(parts)) == 2


def test_counts_of_the_engine_on_real_models(real_models):
    # (GPU, CPU) as the log of ai-edge-litert 2.3.0 gives them; DENSIFY and what follows it is refused.
    expected = {"pose_detection": (108, 183), "face_detection_full_range_sparse": (159, 229)}
    for name, counts in expected.items():
        model = read(real_models[name])
        subgraph = model.subgraphs[0]
        outline = model.outline(subgraph)
        halves = folded_halves(outline)
        folded = {node.index for node in subgraph.nodes if node.op == "DEQUANTIZE" and node.outputs[0] in halves}
        sparse = {index for node in subgraph.nodes if node.op == "DENSIFY" for index in node.outputs}
        accepted = [node.op != "DENSIFY" and node.inputs[0] not in sparse for node in subgraph.nodes]
        gpu = delegated(outline, accepted, folded)
        assert (len(gpu), len(subgraph.nodes) - len(gpu)) == counts


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_partitions_cover_the_graph_and_respect_dependencies(seed, size):
    rng = random.Random(seed)
    graph = GraphBuilder()
    values = [graph.input("x", SHAPE)]
    for _ in range(size):
        op = rng.choice(["ABS", "ZEROS_LIKE", "ADD"])
        sources = [rng.choice(values) for _ in range(2 if op == "ADD" else 1)]
        options = {"fused_activation_function": "NONE"} if op == "ADD" else None
        values.append(graph.op(op, sources, SHAPE, options=options))
    outline = outlined(graph, [values[-1]])
    flags = taken(outline)
    numbers = epochs(outline, flags)
    producers = outline.producers()
    for node, reads in enumerate(outline.read):
        for index in reads:
            if index in producers:
                assert numbers[producers[index]] <= numbers[node]
    gpu = delegated(outline, flags, ())
    assert all(flags[index] for index in gpu)
    parts = partitions(outline, gpu)
    assert sorted(index for part in parts for index in part.nodes) == list(range(size))
    assert sorted(index for part in parts if part.accelerated for index in part.nodes) == sorted(gpu)
