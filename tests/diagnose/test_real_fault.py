"""A real fault of a real runtime: sparse weights that XNNPACK never writes for a consumer outside of its part."""

from pathlib import Path

import pytest

from assay.diagnose.engine import Settings, diagnose
from assay.diagnose.kinds import Kind

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "diagnose" / "pose_detection"


def test_weights_lost_between_xnnpack_and_plain_kernels(tmp_path: Path) -> None:
    finding = diagnose(EXAMPLE / "cpu_alone" / "minimized.tflite", "cpu_xnnpack", Settings(out=tmp_path))
    assert [node.op for node in finding.nodes] == ["DENSIFY", "DEQUANTIZE", "CONV_2D"]
    assert finding.kind == Kind.HAND_OVER
    (fix,) = finding.fixes
    assert fix.rewrite == "fold-weights"
    assert fix.right_on_lane


@pytest.mark.gpu
@pytest.mark.slow
def test_weights_lost_between_xnnpack_and_the_gpu(tmp_path: Path) -> None:
    finding = diagnose(EXAMPLE / "minimized.tflite", "gpu_mldrift", Settings(out=tmp_path))
    assert [node.op for node in finding.nodes] == ["DENSIFY", "DEQUANTIZE", "CONV_2D"]
    assert finding.kind == Kind.HAND_OVER
    assert any("cpu_xnnpack alone" in sentence for sentence in finding.because)
    assert finding.delegation is not None
    assert finding.delegation.refused[0].ops == ("DENSIFY", "DEQUANTIZE")
