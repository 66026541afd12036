"""Rewrites of finished graphs leave the results as they are, to the last bit on plain kernels."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from assay import graph
from assay.graph.rewrites import REWRITES, apply, fold_weights, split_layer


def run(model: graph.Model, inputs: list[np.ndarray]) -> list[np.ndarray]:
    interpreter = Interpreter(
        model_content=graph.write(model),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize(
    "name", [rewrite.name for rewrite in REWRITES if rewrite.name not in ("fold-weights", "split-layer")]
)
def test_small_model_is_the_same_after(small_model: Path, name: str) -> None:
    model = graph.read(small_model)
    rewrite = next(each for each in REWRITES if each.name == name)
    changed = apply(rewrite, model)
    assert changed is not None
    image = np.random.default_rng(3).normal(size=(1, 8, 8, 4)).astype(np.float32)
    before, after = run(model, [image]), run(changed, [image])
    for left, right in zip(before, after, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-6)
    ops = [node.op for node in changed.subgraphs[0].nodes]
    assert len(ops) != len(model.subgraphs[0].nodes) or name == "expand-broadcast"


def test_sparse_weights_are_stored_dense(real_models: dict[str, Path]) -> None:
    model = graph.read(real_models["pose_detection"])
    changed = fold_weights(model)
    assert changed is not None
    ops = [node.op for node in changed.subgraphs[0].nodes]
    assert "DENSIFY" not in ops
    assert len(ops) == len(model.subgraphs[0].nodes) - 38
    image = np.random.default_rng(3).random((1, 224, 224, 3), dtype=np.float32)
    for left, right in zip(run(model, [image]), run(changed, [image]), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5 * np.abs(left).max())


def test_nothing_to_change_is_none(small_model: Path) -> None:
    assert fold_weights(graph.read(small_model)) is None


def wide(op: str, weights: tuple[int, ...], *, half: bool, bias: bool, activation: str) -> graph.Model:
    """A layer with as many channels as a texture of 4,096 texels cannot hold, and something after it."""
    rng = np.random.default_rng(0)
    builder = graph.GraphBuilder()
    source = builder.input("x", (1, 3, 4, weights[-1]))
    values = rng.normal(size=weights).astype(np.float16 if half else np.float32)
    kernel = builder.constant(values, "kernel")
    if half:
        kernel = builder.op("DEQUANTIZE", [kernel], weights, "float32", version=3)
    shift = builder.constant(rng.normal(size=weights[0]).astype(np.float32), "bias") if bias else None
    options: dict[str, object] = {"fused_activation_function": activation}
    options |= (
        {"keep_num_dims": True} if op == "FULLY_CONNECTED" else {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    )
    shape = (1, 3, 4, weights[0])
    return builder.finish(
        [builder.op("ABS", [builder.op(op, [source, kernel, shift], shape, options=options)], shape)]
    )


@pytest.mark.parametrize(
    ("op", "weights", "half", "bias", "activation", "parts"),
    [
        ("FULLY_CONNECTED", (50_001, 8), False, False, "NONE", 4),
        ("FULLY_CONNECTED", (20_000, 8), True, True, "RELU", 2),
        ("FULLY_CONNECTED", (3, 40_000), False, True, "RELU6", 3),
        ("CONV_2D", (17_000, 1, 1, 4), False, True, "NONE", 2),
        ("CONV_2D", (4, 3, 3, 4_001), True, True, "RELU", 3),
    ],
)
def test_wide_layers_are_computed_in_parts(
    op: str, weights: tuple[int, ...], half: bool, bias: bool, activation: str, parts: int
) -> None:
    from assay.linting.limits import weights_texture
    from assay.linting.signature import folded_halves

    model = wide(op, weights, half=half, bias=bias, activation=activation)
    changed = split_layer(model)
    assert changed is not None
    assert [node.op for node in changed.subgraphs[0].nodes].count(op) == parts
    outline = changed.outline(changed.subgraphs[0])
    halves = folded_halves(outline)
    sizes = [weights_texture(outline, node, halves) for node in outline.nodes_of(op)]
    assert all(size is not None and max(size) <= 4096 for size in sizes)
    image = np.random.default_rng(3).normal(size=(1, 3, 4, weights[-1])).astype(np.float32)
    for left, right in zip(run(model, [image]), run(changed, [image]), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5 * np.abs(left).max())
    assert split_layer(changed) is None
