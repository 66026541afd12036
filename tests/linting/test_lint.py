"""Lint from end to end with the matrix that ships: findings, the gate, the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from assay.cli._app import app
from assay.errors import AssayError
from assay.graph import GraphBuilder, save
from assay.linting import for_lane, lint, load
from assay.linting.gate import Gate
from assay.linting.source import module_path

SHAPE = (1, 4, 4, 8)


@pytest.fixture(scope="module")
def matrix():
    return for_lane("gpu_mldrift")


def chain(*ops: str, shape=SHAPE):
    graph = GraphBuilder()
    value = graph.input("x", shape)
    for op in ops:
        value = graph.op(op, [value], shape)
    return graph.finish([value])


def rules(report):
    return {finding.rule: finding for finding in report}


def test_the_shipped_matrix_is_measured_and_says_on_what(matrix):
    assert matrix.header["provenance"] == "measured"
    assert "SwiftShader" in matrix.header["adapter"]
    assert matrix.header["behaviour"]["max_partitions"] == 1
    assert sum(matrix.header["cases"].values()) > 10_000
    assert len(matrix.ops()) > 130


@pytest.mark.parametrize(
    ("name", "delegated", "total"),
    [
        ("selfie_segmentation", 246, 246),
        ("hand_landmark_full", 165, 165),
        ("pose_detection", 108, 291),
        ("face_detection_full_range_sparse", 159, 388),
    ],
)
def test_predictions_are_what_the_engine_does(real_models, matrix, name, delegated, total):
    report = lint(real_models[name], matrix)
    assert (report.delegated, report.total) == (delegated, total)
    assert report.count("unknown") == 0


def test_a_float16_weight_is_no_fallback(real_models, matrix):
    report = lint(real_models["selfie_segmentation"], matrix)
    assert sum(node.place == "folded" for node in report.subgraphs[0].nodes) > 50
    assert not report.fallback
    assert report.partitions == 1


def test_sparse_weights_in_a_split_graph_are_warned_of(real_models, matrix):
    found = rules(lint(real_models["pose_detection"], matrix))
    assert found["densify"].severity == "fallback"
    assert found["sparse_split"].severity == "warning"
    assert found["one_partition"].severity == "fallback"


def test_a_refused_node_in_the_middle_strands_the_smaller_side(matrix):
    report = lint(chain("ABS", "COS", "ZEROS_LIKE", "SIN", "EXP", "TANH"), matrix)
    assert report.delegated == 3
    assert [node.place for node in report.subgraphs[0].nodes] == ["cpu"] * 3 + ["accelerator"] * 3
    assert [node.stranded for node in report.subgraphs[0].nodes] == [True, True, False, False, False, False]
    assert report.subgraphs[0].crossings == 1


def test_broadcast_to_names_the_rewrite_and_the_public_report(matrix):
    graph = GraphBuilder()
    x = graph.input("net/block/x", (1, 1, 4, 8))
    target = graph.constant(np.array([1, 3, 4, 8], np.int32))
    y = graph.op("BROADCAST_TO", [x, target], (1, 3, 4, 8), name="net/block/expand/BroadcastTo", version=2)
    finding = rules(lint(graph.finish([y]), matrix))["broadcast_to"]
    assert finding.severity == "fallback"
    assert "Operation is not supported" in finding.message
    assert finding.modules == ("net.block.expand",)
    assert finding.rewrite == "constants-baked"


def test_batch_collapsed_attention_is_warned_of_with_its_source(matrix):
    graph = GraphBuilder()
    q, k, v = (graph.input(name, (4, 16, 8)) for name in "qkv")
    scores = graph.op("BATCH_MATMUL", [q, k], (4, 16, 16), options={"adj_x": False, "adj_y": True})
    weights = graph.op("SOFTMAX", [scores], (4, 16, 16), options={"beta": 1.0})
    out = graph.op("BATCH_MATMUL", [weights, v], (4, 16, 8), options={"adj_x": False, "adj_y": False})
    found = rules(lint(graph.finish([out]), matrix))["batch_collapsed_sdpa"]
    assert found.severity == "warning"
    assert "0.265" in found.evidence[0]


def test_a_broadcast_add_on_a_matrix_product_is_warned_of(matrix):
    graph = GraphBuilder()
    q, k, mask = graph.input("q", (1, 4, 16, 8)), graph.input("k", (1, 4, 8, 16)), graph.input("m", (1, 1, 16, 16))
    scores = graph.op("BATCH_MATMUL", [q, k], (1, 4, 16, 16), options={"adj_x": False, "adj_y": False})
    out = graph.op("ADD", [scores, mask], (1, 4, 16, 16), options={"fused_activation_function": "NONE"})
    assert "8593" in rules(lint(graph.finish([out]), matrix))["broadcast_add_on_batch_matmul"].evidence[0]


def test_a_window_larger_than_its_input_cannot_be_prepared(matrix):
    graph = GraphBuilder()
    x = graph.input("x", (1, 1, 1, 4), shape_signature=(1, 1, -1, 4))
    weights = graph.constant(np.ones((2, 1, 5, 4), np.float32))
    options = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
    y = graph.op("CONV_2D", [x, weights, None], (1, 1, 1, 2), options=options)
    report = lint(graph.finish([y]), matrix)
    assert report.delegated == 0
    assert "larger than its input" in (report.subgraphs[0].whole_refusal or "")
    assert "dynamic_input" in rules(report)


def test_an_empty_matrix_never_passes(tmp_path, matrix):
    header = {**matrix.header, "ops": {}, "measured": ["", ""]}
    (tmp_path / "matrix.json").write_text(json.dumps(header))
    report = lint(chain("ABS", "COS"), load(tmp_path))
    assert report.count("unknown") == 2
    assert report.delegated is None
    assert Gate.parse(["fallback"]).reasons(report)
    assert Gate.parse(["partitions:1"]).reasons(report)
    assert not Gate.parse(["fallback"], allow_unknown=True).reasons(report)


def test_conditions_that_are_none_are_named():
    with pytest.raises(AssayError, match="fallbacks"):
        Gate.parse(["fallbacks"])
    with pytest.raises(AssayError, match="partitions:x"):
        Gate.parse(["partitions:x"])


def test_the_command_line_fails_a_build(tmp_path):
    path = tmp_path / "m.tflite"
    save(chain("ABS", "ZEROS_LIKE", "COS"), path)
    run = CliRunner().invoke
    assert run(app, ["lint", str(path)]).exit_code == 0
    failed = run(app, ["lint", str(path), "--fail-on", "fallback", "--json"])
    assert failed.exit_code == 1
    document = json.loads(failed.stdout)
    assert document["counts"]["refused"] == 1
    assert document["failed"][0].startswith("fallback")
    assert run(app, ["lint", str(path), "--fail-on", "partitions:1"]).exit_code == 0
    assert run(app, ["lint", str(path), "--fail-on", "partitions:0"]).exit_code == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("model/block_1/conv/BiasAdd;model/block_1/conv/Conv2D", "model.block_1.conv"),
        ("app.Net/app.Attention_0/torch.nn.modules.linear.Linear_q;;app.Net", "Net.0.q"),
        ("arith.constant12", ""),
        ("", ""),
        ("serving_default_output_0_output", ""),
    ],
)
def test_module_paths_come_from_tensor_names(name, path):
    assert module_path(name) == path


def layer(outputs: int, rows: int = 16, half: bool = False):
    graph = GraphBuilder()
    x = graph.input("x", (1, rows, 8))
    values = np.zeros((outputs, 8), np.float16 if half else np.float32)
    weights = graph.constant(values)
    if half:
        weights = graph.op("DEQUANTIZE", [weights], values.shape, version=3)
    options = {"keep_num_dims": True, "fused_activation_function": "NONE"}
    return graph.finish([graph.op("FULLY_CONNECTED", [x, weights, None], (1, rows, outputs), options=options)])


@pytest.mark.parametrize("half", [False, True])
def test_weights_over_the_adapters_largest_texture_give_zeros(matrix, half):
    assert "weights_texture" not in rules(lint(layer(32768, half=half), matrix))
    # Few rows: the engine keeps the weights in a buffer.
    assert "weights_texture" not in rules(lint(layer(32772, rows=8, half=half), matrix))
    report = lint(layer(32772, half=half), matrix)
    finding = rules(report)["weights_texture"]
    assert "8194 x 2 texels where the adapter allows 8192" in finding.message
    assert any("exceeded maximum texture size" in line for line in finding.evidence)
    # It is taken all the same: that is the trouble.
    assert report.delegated == report.total
    assert report.count("wrong") == 1
    assert Gate.parse(["fallback"]).reasons(report) == []
    (reason,) = Gate.parse(["wrong"]).reasons(report)
    assert reason == "wrong: 1 node runs on the accelerator with numbers that were measured to be wrong"


def test_the_layouts_of_weights():
    from assay.linting.limits import weights_texture

    def texture(op, source, weights, out, **options):
        graph = GraphBuilder()
        x, kernel = graph.input("x", source), graph.constant(np.zeros(weights, np.float32))
        model = graph.finish([graph.op(op, [x, kernel], out, options=options)])
        return weights_texture(model.outline(model.subgraphs[0]), 0)

    # As the engine's validation messages give them for layers of these sizes.
    assert texture("CONV_2D", (1, 16, 16, 3644), (64, 3, 3, 3644), (1, 16, 16, 64)) == (16, 8199)
    assert texture("CONV_2D", (1, 16, 16, 1024), (64, 16, 16, 1024), (1, 16, 16, 64)) == (16, 65536)
    assert texture("DEPTHWISE_CONV_2D", (1, 16, 16, 32), (1, 101, 101, 32), (1, 16, 16, 32)) == (10201, 8)
    assert texture("FULLY_CONNECTED", (1, 8, 8, 40000), (64, 40000), (1, 8, 8, 64)) == (16, 10000)
    assert texture("BATCH_MATMUL", (1, 16, 64), (1, 64, 40000), (1, 16, 40000)) == (10000, 16)
    assert texture("FULLY_CONNECTED", (1, 16, 64), (50257, 64), (1, 16, 50257)) == (12566, 16)
    assert texture("CONV_2D", (1, 1, 8, 8), (40000, 1, 1, 8), (1, 1, 8, 40000)) is None


@pytest.mark.parametrize(("scale", "warned"), [(None, True), (0.0625, False), (0.5, True)])
def test_a_norm_that_is_scaled_before_its_square_is_no_risk(matrix, scale, warned):
    graph = GraphBuilder()
    value, plain = graph.input("x", (1, 16, 256)), {"fused_activation_function": "NONE"}
    if scale is not None:
        factor = graph.op(
            "DEQUANTIZE", [graph.constant(np.array([scale], np.float16))], (1,), "float32", version=3
        )
        value = graph.op("MUL", [value, factor], (1, 16, 256), options=plain)
    squares = graph.op("MUL", [value, value], (1, 16, 256), options=plain)
    mean = graph.op(
        "MEAN", [squares, graph.constant(np.array([2], np.int32))], (1, 16, 1), options={"keep_dims": True}
    )
    assert ("layer_norm_fp16" in rules(lint(graph.finish([mean]), matrix))) is warned
