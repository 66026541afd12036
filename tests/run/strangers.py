"""Models as strangers have them, made by hand: every kind of input, signature and oddity."""

from pathlib import Path

import numpy as np

from assay.graph import GraphBuilder, Model, save
from assay.graph.parts import Buffer, Metadata, Quantization

RNG = np.random.default_rng(3)


def plain(dtype: str = "float32") -> Model:
    """One op that takes the type as it is."""
    g = GraphBuilder()
    x = g.input("x", (1, 4), dtype)
    return g.finish([g.op("RESHAPE", [x, g.constant(np.array([2, 2], np.int32))], (2, 2), name="y")])


def several_signatures() -> Model:
    """Two subgraphs, a signature each."""
    g = GraphBuilder()
    x = g.input("x", (1, 3))
    g.subgraph.outputs = [g.op("NEG", [x], (1, 3), name="negated").index]
    second = g.add_subgraph("other")
    a, b = second.input("a", (2, 2)), second.input("b", (2, 2))
    second.subgraph.outputs = [second.op("MUL", [a, b], (2, 2), name="product").index]
    g.signature("negate")
    second.signature("multiply")
    return g.finish()


def swapped_signature() -> Model:
    """A signature whose names are not in the order of the subgraph's inputs."""
    g = GraphBuilder()
    a, b = g.input("first", (1, 2)), g.input("second", (1, 3))
    left = g.op("NEG", [a], (1, 2), name="left")
    right = g.op("ABS", [b], (1, 3), name="right")
    g.subgraph.outputs = [left.index, right.index]
    g.signature("serving", {"z_second": b, "a_first": a}, {"right": right, "left": left})
    return g.finish()


def dynamic() -> Model:
    """A batch dimension that the file leaves open."""
    g = GraphBuilder()
    x = g.input("images", (1, 4), shape_signature=(-1, 4))
    return g.finish([g.op("NEG", [x], (1, 4), shape_signature=(-1, 4), name="y")])


def quantized(dtype: str) -> Model:
    """A quantized sigmoid."""
    g = GraphBuilder()
    zero = 128 if dtype == "uint8" else 0
    scale = 1 / 32768 if dtype == "int16" else 1 / 256
    steps = Quantization(scales=[0.05], zero_points=[zero])
    low = zero if dtype == "int16" else zero - 128
    result = Quantization(scales=[scale], zero_points=[low])
    x = g.input("x", (1, 16), dtype, quantization=steps)
    return g.finish([g.op("LOGISTIC", [x], (1, 16), dtype, name="y", quantization=result)])


def embedding(rows: int = 10) -> Model:
    """Ids into a small table: one out of range would read foreign memory."""
    g = GraphBuilder()
    ids = g.input("input_ids", (1, 64), "int32")
    table = g.constant(RNG.standard_normal((rows, 4)).astype(np.float32), "table")
    return g.finish([g.op("GATHER", [table, ids], (1, 64, 4), "float32", name="vectors")])


def no_nodes() -> Model:
    """The input is the output."""
    g = GraphBuilder()
    return g.finish([g.input("x", (1, 4))])


def custom(name: str) -> Model:
    """An op that only its author has."""
    g = GraphBuilder()
    x = g.input("x", (1, 4))
    return g.finish([g.op(name, [x], (1, 4), name="y", custom_options=b"")])


def strings() -> Model:
    """Text in, text out."""
    g = GraphBuilder()
    return g.finish([g.input("words", (1,), "string")])


def large(megabytes: int) -> Model:
    """One huge fully connected layer, its weights kept outside of the flatbuffer."""
    g = GraphBuilder()
    width = 1024
    x = g.input("x", (1, width))
    weights = np.zeros((megabytes * 2**20 // (4 * width), width), np.float32)
    weights[:, 0] = 1.0
    w = g.constant(weights, "w", external=True)
    return g.finish([g.op("FULLY_CONNECTED", [x, w, None], (1, len(weights)), "float32", name="y")])


def write(model: Model, folder: Path, name: str) -> Path:
    """Save a model, and say where."""
    path = folder / f"{name}.tflite"
    save(model, path)
    return path


def example() -> Model:
    """A model that says of itself that its weights are random."""
    model = plain()
    model.buffers.append(Buffer(b"example"))
    model.metadata.append(Metadata("assay.provenance", len(model.buffers) - 1))
    return model
