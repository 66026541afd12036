from pathlib import Path

import numpy as np
import pytest

from assay import graph

LANE = "assay.lanes.fault:FaultLane"


def _weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * 0.3).astype(np.float32)


def build_small_model() -> graph.Model:
    """Convolutions with float16 weights, a residual, then rank-3 attention-like arithmetic: 17 nodes."""
    g = graph.GraphBuilder()
    x = g.input("image", (1, 8, 8, 4))
    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "RELU6"}
    half = g.constant(_weights(8, 3, 3, 4).astype(np.float16), "w1_half")
    w1 = g.op("DEQUANTIZE", [half], (8, 3, 3, 4), "float32", name="w1", version=2)
    y = g.op("CONV_2D", [x, w1, g.constant(_weights(8), "b1")], (1, 8, 8, 8), options=window, name="conv1")
    for index in range(4):
        w = g.constant(_weights(1, 3, 3, 8, seed=index + 1), f"dw{index}")
        b = g.constant(_weights(8, seed=index + 9), f"db{index}")
        options = {**window, "depth_multiplier": 1}
        z = g.op("DEPTHWISE_CONV_2D", [y, w, b], (1, 8, 8, 8), options=options, name=f"depthwise{index}")
        y = g.op("ADD", [y, z], (1, 8, 8, 8), name=f"sum{index}")
    shape = g.constant(np.array([1, 64, 8], np.int32), "shape")
    tokens = g.op("RESHAPE", [y, shape], (1, 64, 8), options={"new_shape": (1, 64, 8)}, name="tokens")
    scores = g.op("BATCH_MATMUL", [tokens, tokens], (1, 64, 64), options={"adj_y": True}, name="scores")
    scaled = g.op("MUL", [scores, g.constant(np.float32([0.02]), "scale")], (1, 64, 64), name="scaled")
    rows = g.op("SOFTMAX", [scaled], (1, 64, 64), options={"beta": 1.0}, name="rows")
    mixed = g.op("BATCH_MATMUL", [rows, tokens], (1, 64, 8), name="mixed")
    axis = g.constant(np.array([1], np.int32), "axis")
    mean = g.op("MEAN", [mixed, axis], (1, 1, 8), options={"keep_dims": True}, name="mean")
    out = g.op("SUB", [mixed, mean], (1, 64, 8), name="centered")
    return g.finish([out])


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnose") / "small.tflite"
    graph.save(build_small_model(), path)
    return path
