"""Smaller dimensions give models that still run, on real graphs cut at random places."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay import graph
from assay.diagnosis.axes import Axes
from assay.diagnosis.pieces import Anatomy, Piece, carve
from assay.diagnosis.smallest import resized
from assay.diagnosis.subject import unfolded

MODELS = ("palm_detection_lite", "face_landmark", "hand_recrop", "pose_detection")


class Shapes(dict[int, Any]):
    """Zeros of a tensor's shape, for any tensor; the unpacked weights as they are."""

    def __init__(self, model: graph.Model) -> None:
        super().__init__(unfolded(model, model.subgraphs[0]))
        self.tensors = model.subgraphs[0].tensors

    def __contains__(self, tensor: object) -> bool:
        return True

    def __missing__(self, tensor: int) -> np.ndarray:
        return np.zeros(self.tensors[tensor].shape, self.tensors[tensor].dtype)

    def get(self, tensor: int, default: Any = None) -> Any:
        return self[tensor]


def run(model: graph.Model) -> list[np.ndarray]:
    interpreter = Interpreter(
        model_content=graph.write(model),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def piece_of(path: Path, start: float, length: int) -> Piece:
    model = graph.read(path)
    anatomy = Anatomy(model.subgraphs[0])
    first = int(start * (len(anatomy.units) - 1))
    places = range(first, min(first + length, len(anatomy.units)))
    return carve(model, anatomy, anatomy.nodes_of(places), Shapes(model))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(MODELS), st.floats(0, 1), st.integers(1, 8), st.integers(1, 9))
def test_smaller_pieces_run_and_have_the_shapes_they_say(
    real_models: dict[str, Path], name: str, start: float, length: int, target: int
) -> None:
    piece = piece_of(real_models[name], start, length)
    small = resized(piece.model, Axes(piece.model, piece.model.subgraphs[0]).sizes(target))
    graph_of = small.subgraphs[0]
    assert [array.shape for array in run(small)] == [graph_of.tensors[i].shape for i in graph_of.outputs]
    assert len(graph.write(small)) <= len(graph.write(piece.model)) + 64


@pytest.mark.parametrize("target", [1, 2, 8])
def test_residual_block_shrinks(real_models: dict[str, Path], target: int) -> None:
    model = graph.read(real_models["palm_detection_lite"])
    anatomy = Anatomy(model.subgraphs[0])
    piece = carve(model, anatomy, [184, 187, 188], Shapes(model))
    small = resized(piece.model, Axes(piece.model, piece.model.subgraphs[0]).sizes(target))
    assert len(graph.write(small)) < 10_000
    assert run(small)[0].shape == (1, target, target, target)
