"""A real fault of a real runtime: sparse weights that XNNPACK never writes for a consumer outside of its part."""

from pathlib import Path

import numpy as np
import pytest

from assay import graph
from assay.diagnosis.engine import Settings, diagnose
from assay.diagnosis.kinds import Kind

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "diagnose" / "pose_detection"


def test_weights_lost_between_xnnpack_and_plain_kernels(tmp_path: Path) -> None:
    finding = diagnose(EXAMPLE / "cpu_alone" / "minimized.tflite", "cpu_xnnpack", Settings(out=tmp_path))
    assert [node.op for node in finding.nodes] == ["DENSIFY", "DEQUANTIZE", "CONV_2D"]
    assert finding.kind == Kind.HAND_OVER
    (fix,) = finding.fixes
    assert fix.rewrite == "fold-weights"
    assert fix.right_on_lane


@pytest.mark.gpu
def test_weights_lost_between_xnnpack_and_the_gpu(tmp_path: Path) -> None:
    finding = diagnose(EXAMPLE / "minimized.tflite", "gpu_mldrift", Settings(out=tmp_path))
    assert [node.op for node in finding.nodes] == ["DENSIFY", "DEQUANTIZE", "CONV_2D"]
    assert finding.kind == Kind.HAND_OVER
    assert any("cpu_xnnpack alone" in sentence for sentence in finding.because)
    assert finding.delegation is not None
    assert finding.delegation.refused[0].ops == ("DENSIFY", "DEQUANTIZE")


@pytest.mark.gpu
def test_a_layer_whose_weights_are_too_large_for_a_texture(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    g = graph.GraphBuilder()
    hidden = g.input("hidden", (1, 32, 32))
    plain = {"keep_num_dims": True, "fused_activation_function": "NONE"}
    first = g.constant(rng.normal(size=(32, 32)).astype(np.float32), "mlp/weight")
    head = g.constant(rng.normal(size=(40_000, 32)).astype(np.float32), "head/weight")
    value = g.op("FULLY_CONNECTED", [hidden, first, None], (1, 32, 32), options=plain, name="mlp")
    value = g.op("TANH", [value], (1, 32, 32), name="tanh")
    value = g.op("FULLY_CONNECTED", [value, head, None], (1, 32, 40_000), options=plain, name="head")
    path = tmp_path / "head.tflite"
    graph.save(g.finish([value]), path)
    finding = diagnose(path, "gpu_mldrift", Settings(out=tmp_path, fix=True))
    assert [(node.index, node.op) for node in finding.nodes] == [(2, "FULLY_CONNECTED")]
    assert finding.kind == Kind.KERNEL
    assert "exceeded maximum texture size" in finding.because[-1]
    (fix,) = finding.fixes
    assert (fix.rewrite, fix.right_on_lane, fix.full_delegation) == ("split-layer", True, True)
    # Cutting all dimensions hides the fault: it needs the outputs, and more than eight rows.
    small = graph.read(next(tmp_path.rglob("minimized.tflite"))).subgraphs[0]
    rows, outputs = small.tensors[small.outputs[0]].shape[-2:]
    assert 8 < rows <= 16
    assert 4 * 8192 < outputs < 36_000
    assert small.tensors[small.inputs[0]].shape[-1] == 1
