"""Rewrites of finished graphs leave the results as they are, to the last bit on plain kernels."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from assay import graph
from assay.convert.graph_rewrites import REWRITES, apply, fold_weights


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


@pytest.mark.parametrize("name", [rewrite.name for rewrite in REWRITES if rewrite.name != "fold-weights"])
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
