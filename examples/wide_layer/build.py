"""A language model's last layers: weights for 50,257 words are larger than a texture of 8,192 texels a side.

Usage: python build.py lm_head.tflite
"""

import sys
from pathlib import Path

import numpy as np

from assay.graph import GraphBuilder, save

ROWS, WIDTH, WORDS = 16, 64, 50257


def build() -> GraphBuilder:
    """Two fully connected layers with a GELU between them, for 16 words at once."""
    rng = np.random.default_rng(0)
    graph = GraphBuilder()
    plain = {"keep_num_dims": True, "fused_activation_function": "NONE"}
    inner = graph.constant((rng.normal(size=(WIDTH, WIDTH)) / 8).astype(np.float32), "block/mlp/weight")
    outer = graph.constant((rng.normal(size=(WORDS, WIDTH)) / 8).astype(np.float32), "lm_head/weight")
    value = graph.input("hidden", (1, ROWS, WIDTH))
    value = graph.op(
        "FULLY_CONNECTED", [value, inner, None], (1, ROWS, WIDTH), options=plain, name="block/mlp/MatMul"
    )
    value = graph.op("GELU", [value], (1, ROWS, WIDTH), name="block/gelu/Gelu")
    value = graph.op(
        "FULLY_CONNECTED", [value, outer, None], (1, ROWS, WORDS), options=plain, name="lm_head/MatMul"
    )
    graph.finish([value])
    return graph


if __name__ == "__main__":
    save(build().model, Path(sys.argv[1]))
