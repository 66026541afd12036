"""Read, write, read again: the same graph, and the same outputs from the real runtime."""

import io
import zipfile
from pathlib import Path

import interpreter as runtime
import made_models
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.graph import GraphBuilder, GraphError, Model, Node, read, save, write
from assay.graph.encoder import MAX_FLATBUFFER

UNRUNNABLE = {"face_landmark_with_attention", "selfie_segmentation", "selfie_segmentation_landscape"}


def assert_same_graph(first: Model, second: Model) -> None:
    for one, other in zip(first.subgraphs, second.subgraphs, strict=True):
        assert other.tensors == one.tensors
        assert other.nodes == one.nodes
        assert (other.inputs, other.outputs, other.name) == (one.inputs, one.outputs, one.name)
    assert second.signatures == first.signatures
    assert second.metadata == first.metadata
    assert second.description == first.description
    assert [(bytes(b.data), b.external) for b in second.buffers] == [
        (bytes(b.data), b.external) for b in first.buffers
    ]


def test_real_models_round_trip(real_models: dict[str, Path]) -> None:
    for name, path in real_models.items():
        model = read(path)
        written = write(model)
        assert_same_graph(model, read(written))
        if name not in UNRUNNABLE:
            before = runtime.feed(runtime.load(path.read_bytes(), xnnpack=True))
            assert runtime.same(before, runtime.feed(runtime.load(written, xnnpack=True))), name


@pytest.mark.parametrize("name", made_models.ALL)
def test_made_models_round_trip(name: str) -> None:
    model = made_models.ALL[name]()
    first = write(model)
    again = read(first)
    assert write(again) == first
    assert_same_graph(again, read(write(again)))
    if name in made_models.RUNNABLE:
        assert all(np.isfinite(o.astype(float)).all() for o in runtime.feed(runtime.load(first)))


def test_values_of_made_models() -> None:
    dense = runtime.load(write(made_models.sparse()))
    assert runtime.run(dense, [np.float32([[1, 10, 100]])])[0].tolist() == [[10, 302]]
    loop = runtime.load(write(made_models.loop()))
    assert runtime.run(loop, [np.int32(2), np.float32([1, -2])])[0].tolist() == [-8, 16]
    counter = runtime.load(write(made_models.state()))
    assert [runtime.run(counter, [np.float32([2])])[0].tolist() for _ in range(3)] == [[2], [4], [6]]


def test_weights_are_where_kernels_want_them() -> None:
    for build in (made_models.conv, made_models.half):
        model = read(write(build()))
        data = write(model)
        for buffer in model.buffers:
            if len(buffer) > 64:
                assert data.index(bytes(buffer.data)) % 16 == 0


def test_save_is_write_and_can_replace_its_own_source(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    save(made_models.conv(external=True), path)
    assert path.read_bytes() == write(made_models.conv(external=True))
    model = read(path)
    model.description = "changed"
    save(model, path)
    assert read(path).description == "changed"
    assert list(tmp_path.iterdir()) == [path]


def test_the_zip_of_labels_still_opens(real_models: dict[str, Path]) -> None:
    source = real_models["selfie_segmentation"]
    written = write(read(source))
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(io.BytesIO(written)) as after:
        assert after.namelist() == before.namelist() == ["labels.txt"]
        assert after.read("labels.txt") == before.read("labels.txt")
        assert after.infolist()[0].header_offset == written.index(b"PK\3\4")


def test_too_much_for_a_flatbuffer_goes_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.graph.writer._MAX_INSIDE", 100)
    again = read(write(made_models.conv()))
    weights = next(tensor for tensor in again.subgraphs[0].tensors if tensor.name == "weights")
    assert again.buffers[weights.buffer].external
    assert runtime.same(
        runtime.feed(runtime.load(write(again))), runtime.feed(runtime.load(write(made_models.conv())))
    )


def test_the_limit_of_a_flatbuffer_is_kept() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_FLATBUFFER

    from assay.graph.encoder import Encoder, Late

    with pytest.raises(GraphError, match="limit is 2,147,483,647"):
        Encoder().file("Model", {"buffers": [{"data": Late(Huge())}]}, b"TFL3")


def broken(change: str) -> Model:
    model = made_models.conv()
    graph = model.subgraphs[0]
    node = graph.nodes[1]
    if change == "tensor":
        node.inputs[0] = 99
    elif change == "option value":
        node.options["padding"] = "ROUND"
    elif change == "option name":
        node.options["colour"] = 1
    elif change == "option range":
        node.options["stride_w"] = 2**40
    elif change == "op":
        node.op = "CONV_9D"
    elif change == "dtype":
        graph.tensors[0].dtype = "float31"
    elif change == "buffer":
        graph.tensors[0].buffer = 99
    elif change == "index":
        graph.tensors[0].index = 3
    elif change == "order":
        graph.nodes.reverse()
    elif change == "compiled":
        graph.nodes.append(Node(4, "DISPATCH_OP", 1, [0], [], is_custom=True, custom_options=b"x"))
    return model


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("tensor", "reads tensor 99"),
        ("option value", "Conv2DOptions.padding cannot be 'ROUND'. Known values: SAME, VALID"),
        ("option name", "Conv2DOptions has no field 'colour'"),
        ("option range", "Conv2DOptions.stride_w cannot hold 1099511627776"),
        ("op", "there is no builtin op 'CONV_9D'"),
        ("dtype", "unknown type 'float31'"),
        ("buffer", "buffer 99"),
        ("index", "tensor 0 has the index 3"),
        ("order", "before it is computed"),
        ("compiled", "compiled for an NPU"),
    ],
)
def test_what_cannot_be_written_is_named(change: str, cause: str) -> None:
    with pytest.raises(GraphError, match=cause):
        write(broken(change))


def test_builder_names_what_is_wrong() -> None:
    g = GraphBuilder()
    x = g.input("x", (1,))
    with pytest.raises(GraphError, match="no builtin op 'NOP'"):
        g.op("NOP", [x], (1,))
    with pytest.raises(GraphError, match="ADD has no option 'axis'"):
        g.op("ADD", [x, x], (1,), options={"axis": 1})
    y = g.tensor("y", (1,))
    g.node("NEG", [y], [y])
    with pytest.raises(GraphError, match=r"not sound.*before it is computed"):
        g.finish([y])


def test_an_edit_through_the_builder() -> None:
    model = read(write(made_models.half()))
    g = GraphBuilder(model.copy())
    y = g.op("RELU", [g.subgraph.tensors[g.subgraph.outputs[0]]], (2, 4), name="positive")
    edited = g.finish([y])
    before, after = (runtime.feed(runtime.load(write(m))) for m in (model, edited))
    assert runtime.same(after, [np.maximum(before[0], 0)])
    assert len(model.subgraphs[0].nodes) == 2


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), max_size=5),
    dtype=st.sampled_from(["float32", "float16", "int8", "int64", "bool", "int4"]),
    name=st.text(max_size=12),
    external=st.booleans(),
)
def test_any_constant_comes_back(shape: list[int], dtype: str, name: str, external: bool) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-8 if dtype != "bool" else 0, 2, shape).astype("int8" if dtype == "int4" else dtype)
    g = GraphBuilder()
    g.constant(values, name, dtype, external=external)
    (tensor,) = read(write(g.finish([]))).subgraphs[0].tensors
    again = read(write(g.model))
    assert tensor.shape == tuple(shape)
    if values.size:
        assert np.array_equal(again.data(tensor), values)
    else:
        assert not tensor.is_constant
