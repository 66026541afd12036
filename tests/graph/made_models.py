"""Small models that cover what a file can hold, made here."""

import numpy as np

from assay.graph import GraphBuilder, Metadata, Model, Quantization, Tensor
from assay.graph.parts import Buffer


def conv(external: bool = False) -> Model:
    """Float32: PAD, CONV_2D, PRELU, MEAN with options, constants and a signature."""
    rng = np.random.default_rng(0)
    g = GraphBuilder()
    x = g.input("image", (1, 8, 8, 3))
    pads = g.constant(np.int32([[0, 0], [1, 1], [1, 1], [0, 0]]), "pads")
    padded = g.op("PAD", [x, pads], (1, 10, 10, 3), name="padded")
    weights = g.constant(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "weights", external=external)
    bias = g.constant(rng.normal(size=4).astype(np.float32), "bias")
    options = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "fused_activation_function": "NONE"}
    y = g.op("CONV_2D", [padded, weights, bias], (1, 8, 8, 4), options=options, name="block/conv")
    alpha = g.constant(rng.normal(size=(1, 1, 4)).astype(np.float32), "alpha")
    y = g.op("PRELU", [y, alpha], (1, 8, 8, 4), name="block/prelu")
    axes = g.constant(np.int32([1, 2]), "axes")
    mean = g.op("MEAN", [y, axes], (1, 4), options={"keep_dims": False}, name="mean")
    model = g.finish([y, mean])
    g.signature("serving_default", {"image": x}, {"features": y, "mean": mean})
    model.metadata.append(Metadata("min_runtime_version", len(model.buffers)))
    model.buffers.append(Buffer(b"1.5.0\0\0\0"))
    return model


def half() -> Model:
    """Float16 weights behind a DEQUANTIZE, outside of the flatbuffer."""
    g = GraphBuilder()
    x = g.input("x", (2, 16))
    stored = g.constant(np.linspace(-1, 1, 64).reshape(4, 16).astype(np.float16), "w", external=True)
    weights = g.op("DEQUANTIZE", [stored], (4, 16), "float32", name="w_float")
    y = g.op("FULLY_CONNECTED", [x, weights, None], (2, 4), name="y")
    return g.finish([y])


def quantized() -> Model:
    """Int8 with one scale for each channel."""
    g = GraphBuilder()
    x = g.input("x", (1, 4, 4, 2), "int8", quantization=Quantization((0.5,), (3,)))
    per_channel = Quantization((0.1, 0.2, 0.3), (0, 0, 0), axis=0)
    weights = g.constant(np.arange(6, dtype=np.int8).reshape(3, 1, 1, 2), "w", quantization=per_channel)
    scales = Quantization((0.05, 0.1, 0.15), (0, 0, 0))
    bias = g.constant(np.int32([1, 2, 3]), "b", quantization=scales)
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    out = Quantization((0.7,), (-5,))
    y = g.op("CONV_2D", [x, weights, bias], (1, 4, 4, 3), options=options, version=3, quantization=out)
    return g.finish([y])


def loop() -> Model:
    """A WHILE that doubles its value until the counter reaches 5: three subgraphs."""
    g = GraphBuilder()
    counter, value = g.input("counter", (), "int32"), g.input("value", (2,))
    condition, body = g.add_subgraph("condition"), g.add_subgraph("body")
    c, _ = condition.input("counter", (), "int32"), condition.input("value", (2,))
    limit = condition.constant(np.array(5, np.int32), "limit")
    less = condition.op("LESS", [c, limit], (), "bool")
    condition.subgraph.outputs = [less.index]
    c, v = body.input("counter", (), "int32"), body.input("value", (2,))
    one = body.constant(np.array(1, np.int32), "one")
    c, v = body.op("ADD", [c, one], (), "int32"), body.op("ADD", [v, v], (2,))
    body.subgraph.outputs = [c.index, v.index]
    outputs = [g.tensor("counter_out", (), "int32"), g.tensor("value_out", (2,))]
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    g.node("WHILE", [counter, value], outputs, options)
    return g.finish([g.op("NEG", [outputs[1]], (2,), name="negated")])


def state() -> Model:
    """A counter that keeps its value from run to run: resource handles, CALL_ONCE and a second subgraph."""
    g = GraphBuilder()
    x = g.input("x", (1,))
    init = g.add_subgraph("init")
    names = {"container": "", "shared_name": "total"}
    handle = init.op("VAR_HANDLE", [], (), "resource", names)
    zero = init.constant(np.zeros(1, np.float32), "zero")
    init.node("ASSIGN_VARIABLE", [handle, zero], [])
    g.node("CALL_ONCE", [], [], {"init_subgraph_index": 1})
    handle = g.op("VAR_HANDLE", [], (), "resource", names)
    before = g.op("READ_VARIABLE", [handle], (1,), "float32", name="before")
    total = g.op("ADD", [before, x], (1,), name="total")
    g.node("ASSIGN_VARIABLE", [handle, total], [])
    return g.finish([total])


def sparse() -> Model:
    """A DENSIFY of weights in compressed rows: [[0, 1, 0], [2, 0, 3]]."""
    g = GraphBuilder()
    x = g.input("x", (1, 3))
    values = g.constant(np.float32([1, 2, 3]), "values")
    stored = g.subgraph.tensors[values.index]
    stored.shape = (2, 3)
    stored.sparsity = {
        "traversal_order": (0, 1),
        "block_map": None,
        "dim_metadata": [
            {"format": "DENSE", "dense_size": 2},
            {
                "format": "SPARSE_CSR",
                "dense_size": 0,
                "array_segments_type": 3,
                "array_segments": {"values": b"\0\1\3"},
                "array_indices_type": 1,
                "array_indices": {"values": (1, 0, 2)},
            },
        ],
    }
    weights = g.op("DENSIFY", [values], (2, 3), name="dense")
    return g.finish([g.op("FULLY_CONNECTED", [x, weights, None], (1, 2), name="y")])


def dynamic() -> Model:
    """A first dimension that is left open, and a custom op that nothing runs."""
    g = GraphBuilder()
    x = g.input("x", (1, 4), shape_signature=(-1, 4))
    y = g.op("RELU", [x], (1, 4), shape_signature=(-1, 4), name="y")
    z = g.op("Unheard", [y], (1, 4), name="z", custom_options=b"\1\2\3", shape_signature=(-1, 4))
    return g.finish([z])


def chain(length: int) -> Model:
    """A chain of ABS and NEG, for its length."""
    g = GraphBuilder()
    x: Tensor = g.input("x", (4,))
    for index in range(length):
        x = g.op(("ABS", "NEG")[index % 2], [x], (4,), name=f"layer{index}")
    return g.finish([x])


ALL = {
    "conv": conv,
    "conv_external": lambda: conv(external=True),
    "dynamic": dynamic,
    "half": half,
    "loop": loop,
    "quantized": quantized,
    "sparse": sparse,
    "state": state,
}
RUNNABLE = [name for name in ALL if name != "dynamic"]
