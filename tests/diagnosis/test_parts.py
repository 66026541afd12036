"""Cutting, judging, the log of steps, and what refusals cost, on graphs small enough to count by hand."""

from pathlib import Path

import numpy as np

from assay import graph
from assay.diagnosis import delegation
from assay.diagnosis.journal import Journal, Step, digest
from assay.diagnosis.launch import split_log
from assay.diagnosis.pieces import Anatomy, carve
from assay.diagnosis.session import Limits, difference_of, judge


def anatomy_of(path: Path) -> tuple[graph.Model, Anatomy, dict[str, int]]:
    model = graph.read(path)
    anatomy = Anatomy(model.subgraphs[0])
    return model, anatomy, {tensor.name: tensor.index for tensor in model.subgraphs[0].tensors}


def test_weights_travel_with_their_op(small_model: Path) -> None:
    model, anatomy, names = anatomy_of(small_model)
    assert anatomy.constant_nodes == {anatomy.producers[names["w1"]]}
    first = anatomy.units[0]
    assert [model.subgraphs[0].nodes[node].op for node in first.nodes] == ["DEQUANTIZE", "CONV_2D"]
    image = np.zeros((1, 8, 8, 4), np.float32)
    piece = carve(model, anatomy, first.nodes, {names["image"]: image})
    assert piece.inputs == (names["image"],)
    assert piece.outputs == (names["conv1"],)


def test_left_out_weights_are_written_in(small_model: Path) -> None:
    model, anatomy, names = anatomy_of(small_model)
    value = np.arange(8 * 3 * 3 * 4, dtype=np.float32).reshape(8, 3, 3, 4)
    image = np.zeros((1, 8, 8, 4), np.float32)
    piece = carve(model, anatomy, [anatomy.units[0].node], {names["image"]: image, names["w1"]: value})
    (weights,) = [tensor for tensor in piece.model.subgraphs[0].tensors if tensor.name == "w1"]
    assert weights.is_constant
    np.testing.assert_array_equal(piece.model.data(weights), value)
    again = graph.write(
        carve(model, anatomy, [anatomy.units[0].node], {names["image"]: image, names["w1"]: value}).model
    )
    assert again == graph.write(piece.model)


def test_judging() -> None:
    right = {5: np.array([1.0, -2.0, 4.0], np.float32)}
    limits = Limits({5: 0.01}, margin=8)
    assert judge([right[5] + np.float32(0.05)], [5], right, limits).worst < 1
    assert judge([right[5] + np.float32(0.2)], [5], right, limits).worst > 1
    assert judge([np.array([1.0, np.nan, 4.0], np.float32)], [5], right, limits).worst == np.inf
    assert limits.of(7, np.array([3, 4], np.int8)) == 1.0
    assert difference_of(np.array([np.inf, np.nan]), np.array([np.inf, np.nan])) == 0.0
    assert difference_of(np.zeros(3), np.zeros(4)) == np.inf


def test_log_is_read_back_and_a_broken_line_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    journal = Journal(path)
    journal.add(Step("a", "search", (1, 2), "wrong", worst=2.5))
    journal.add(Step("b", "search", (3,), "right"))
    path.write_text(path.read_text() + '{"key": "c", "what')
    again = Journal(path)
    found = again.find("a")
    assert found is not None
    assert found.nodes == (1, 2)
    assert found.wrong
    assert again.find("c") is None
    assert Journal(path, resume=False).find("a") is None


def test_digest_tells_shapes_and_types_apart() -> None:
    zeros = np.zeros(4, np.float32)
    texts = {
        digest(zeros),
        digest(zeros.reshape(2, 2)),
        digest(zeros.view(np.int32)),
        digest("x"),
        digest("x", ""),
    }
    assert len(texts) == 5


def test_log_is_split_by_job() -> None:
    log = "start\n[assay] job /a/0\none\n[assay] job /a/1\ntwo\nthree\n"
    assert split_log(log) == {"/a/0": "\none\n", "/a/1": "\ntwo\nthree\n"}


def test_crossings_and_partitions(small_model: Path) -> None:
    _, anatomy, names = anatomy_of(small_model)
    softmax = anatomy.producers[names["rows"]]
    assert delegation.crossings(anatomy, {softmax}) == 2
    assert delegation.partitions(anatomy, {softmax}) == 3
    assert delegation.crossings(anatomy, set()) == 0
    depthwise = anatomy.producers[names["depthwise0"]]
    # Its input is read on both sides, its output on the other: two crossings.
    assert delegation.crossings(anatomy, {depthwise, softmax}) == 4
