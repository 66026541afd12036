"""What the reader says of a file is what the runtime says of it."""

import struct
import subprocess
import sys
from pathlib import Path

import interpreter as runtime
import made_models
import numpy as np
import pytest

from assay.graph import GraphBuilder, GraphError, Quantization, read, write
from assay.graph.encoder import Encoder
from assay.graph.flatbuffer import Decoder
from assay.graph.values import encode

#: Their custom ops have no kernel here.
UNRUNNABLE = {"face_landmark_with_attention", "selfie_segmentation", "selfie_segmentation_landscape"}


def test_real_models_as_the_runtime_sees_them(real_models: dict[str, Path]) -> None:
    for name, path in real_models.items():
        if name in UNRUNNABLE:
            continue
        model = read(path)
        interpreter = runtime.load(path.read_bytes(), keep_inner=True)
        graph = model.subgraphs[0]
        assert [d["index"] for d in interpreter.get_input_details()] == graph.inputs
        assert [d["index"] for d in interpreter.get_output_details()] == graph.outputs
        ops = interpreter._get_ops_details()
        assert [op["op_name"] for op in ops] == [node.op for node in graph.nodes]
        assert [[int(i) for i in op["inputs"]] for op in ops] == [node.inputs for node in graph.nodes]
        details = {d["index"]: d for d in interpreter.get_tensor_details()}
        for tensor in graph.tensors:
            seen = details[tensor.index]
            # The runtime itself densifies, under a name of its own.
            assert seen["name"] in {tensor.name, "Densify_output"}
            assert tuple(seen["shape"]) == tensor.shape
            assert np.dtype(seen["dtype"]).name == tensor.dtype


def test_constants_are_the_runtimes(real_models: dict[str, Path]) -> None:
    for name in ("face_landmark", "hand_landmark_lite", "pose_detection"):
        model = read(real_models[name])
        interpreter = runtime.load(real_models[name].read_bytes(), keep_inner=True)
        runtime.feed(interpreter)
        graph = model.subgraphs[0]
        sparse = 0
        for tensor in graph.tensors:
            if not tensor.is_constant:
                continue
            index = tensor.index
            if tensor.sparsity is not None:
                # The runtime shows the dense values only behind the DENSIFY.
                index = graph.nodes[graph.consumers()[tensor.index][0]].outputs[0]
                sparse += 1
            values = model.data(tensor)
            assert not values.flags.writeable
            assert runtime.same([values], [interpreter.get_tensor(index)])
        assert sparse == (38 if name == "pose_detection" else 0)


def test_options_signatures_and_metadata_by_name(real_models: dict[str, Path]) -> None:
    model = read(real_models["pose_detection"])
    conv = next(node for node in model.subgraphs[0].nodes if node.op == "CONV_2D")
    assert conv.options["padding"] in {"SAME", "VALID"}
    assert conv.options["fused_activation_function"] == "RELU6"
    assert conv.options_type == "Conv2DOptions"
    (signature,) = model.signatures
    assert signature.key is None
    assert [entry.name for entry in signature.outputs] == ["Identity", "Identity_1"]
    assert [entry.name for entry in model.metadata] == ["min_runtime_version", "TFLITE_METADATA"]


def test_labels_in_the_zip_at_the_end(real_models: dict[str, Path]) -> None:
    from assay.graph import summarize

    assert summarize(read(real_models["selfie_segmentation"])).associated_files == ["labels.txt"]
    assert summarize(read(real_models["face_landmark"])).associated_files == []


def test_a_signature_by_its_key() -> None:
    model = read(write(made_models.conv()))
    signature = model.signature("serving_default")
    assert [entry.name for entry in signature.inputs] == ["image"]
    assert [entry.tensor.name for entry in signature.outputs] == ["block/prelu", "mean"]
    with pytest.raises(GraphError, match=r"no signature 'other'.*'serving_default'"):
        model.signature("other")


def test_quantization() -> None:
    graph = read(write(made_models.quantized())).subgraphs[0]
    first = graph.tensors[0].quantization
    assert first is not None
    assert (tuple(first.scales), tuple(first.zero_points), first.per_channel) == ((0.5,), (3,), False)
    weights = graph.tensors[1].quantization
    assert weights is not None
    assert weights.axis == 0
    assert np.allclose(weights.scales, [0.1, 0.2, 0.3])


def test_long_vectors_stay_in_the_file() -> None:
    g = GraphBuilder()
    scales = np.linspace(0.1, 1, 1000).astype(np.float32).tolist()
    x = g.input("x", (1000, 2), "int8", quantization=Quantization(scales, [0] * 1000))
    model = read(write(g.finish([g.op("DEQUANTIZE", [x], (1000, 2), "float32")])))
    quantization = model.subgraphs[0].tensors[0].quantization
    assert quantization is not None
    read_scales = quantization.scales
    assert not isinstance(read_scales, tuple)
    assert read_scales == scales
    assert len(read_scales) == 1000
    assert read_scales[3:5] == tuple(scales[3:5])
    assert np.array_equal(np.asarray(read_scales, np.float32), np.float32(scales))
    assert repr(read_scales).startswith("<1000 numbers: 0.1")
    assert quantization.zero_points != scales


def test_dynamic_dimensions_and_custom_ops() -> None:
    graph = read(write(made_models.dynamic())).subgraphs[0]
    assert graph.tensors[0].shape == (1, 4)
    assert graph.tensors[0].shape_signature == (-1, 4)
    assert graph.tensors[0].is_dynamic
    node = graph.nodes[1]
    assert (node.op, node.is_custom, node.custom_options) == ("Unheard", True, b"\1\2\3")


def test_a_file_from_before_2020_has_only_the_old_op_number() -> None:
    root = {
        "version": 3,
        "buffers": [{}],
        "operator_codes": [{"deprecated_builtin_code": 19}, {"builtin_code": 206, "deprecated_builtin_code": 127}],
        "subgraphs": [
            {
                "tensors": [{"shape": (2,), "name": name} for name in "abc"],
                "inputs": (0,),
                "outputs": (2,),
                "operators": [
                    {"opcode_index": 0, "inputs": (0,), "outputs": (1,)},
                    {"opcode_index": 1, "inputs": (1,), "outputs": (2,)},
                ],
            }
        ],
    }
    model = read(b"".join(Encoder().file("Model", root, b"TFL3")))
    assert [node.op for node in model.subgraphs[0].nodes] == ["RELU", "STABLEHLO_COMPOSITE"]


def test_fields_and_ops_newer_than_the_schema_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.graph import schema

    newer = {"Tensor": (*schema.TABLES["Tensor"], schema.Field("mood", "i", 0, None))}
    monkeypatch.setattr("assay.graph.encoder.TABLES", schema.TABLES | newer)
    tensors = [{"shape": (2,), "name": "a", "mood": 5}, {"shape": (2,), "name": "b", "type": 77}]
    node = {"opcode_index": 0, "inputs": (0,), "outputs": (1,)}
    graph = {"tensors": tensors, "inputs": (0,), "outputs": (1,), "operators": [node]}
    root = {"buffers": [{}], "operator_codes": [{"builtin_code": 300}], "subgraphs": [graph]}
    model = read(b"".join(Encoder().file("Model", root, b"TFL3")))
    assert model.unknown == ("Tensor.11",)
    assert model.subgraphs[0].nodes[0].op == "BUILTIN_300"
    assert model.subgraphs[0].tensors[1].dtype == "type_77"
    again = read(write(model))
    assert again.subgraphs[0].nodes[0].op == "BUILTIN_300"
    assert again.subgraphs[0].tensors[1].dtype == "type_77"


def test_reading_imports_no_runtime(real_models: dict[str, Path]) -> None:
    code = f"""
import sys
from assay.graph import read
model = read({str(real_models["face_landmark"])!r})
assert "ai_edge_litert" not in sys.modules
print(len(model.subgraphs[0].nodes))
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.stdout.strip() == "210", child.stderr


def test_a_model_that_was_read_can_be_changed(real_models: dict[str, Path]) -> None:
    from assay.linting import lint

    model = read(real_models["face_landmark"])
    graph = model.subgraphs[0]
    assert lint(model).delegated == 210
    # What is read from the file stays in arrays until somebody asks for objects; from then on the objects count.
    node = graph.nodes[-1]
    node.op, node.options, node.options_type = "ZEROS_LIKE", {}, None
    # The refused node keeps the DEQUANTIZE of the 113 float16 weights on the CPU as well.
    assert lint(model).delegated == 210 - 1 - 113
    assert read(write(model)).subgraphs[0].nodes[-1].op == "ZEROS_LIKE"


def test_what_a_file_has_in_arrays_is_what_its_objects_say(real_models: dict[str, Path]) -> None:
    for path in [*real_models.values()]:
        model = read(path)
        for subgraph in model.subgraphs:
            kept = model.outline(subgraph)
            assert subgraph.tensors
            made = model.outline(subgraph)
            assert made is not kept
            assert (made.shape, made.dtypes, made.op) == (kept.shape, kept.dtypes, kept.op)
            assert (made.read, made.written, made.is_constant) == (kept.read, kept.written, kept.is_constant)
            assert (made.scales.tolist(), made.sparse.tolist()) == (kept.scales.tolist(), kept.sparse.tolist())
            assert (made.inputs, made.outputs, made.custom) == (kept.inputs, kept.outputs, kept.custom)
            for node, (one, other) in enumerate(zip(made.option_ids, kept.option_ids, strict=True)):
                assert made.options[one] == kept.options[other], node
            for index in range(len(made.dtypes)):
                assert made.name(index) == kept.name(index)
                if made.is_constant[index]:
                    assert made.constant_bytes(index) == kept.constant_bytes(index)


def test_a_file_that_is_not_aligned_reads_the_same(real_models: dict[str, Path]) -> None:
    """Nothing makes a stranger's builder align: the same tables at odd places say the same."""
    root = {
        "version": 3,
        "buffers": [{}, {"data": b"1234"}],
        "operator_codes": [{"builtin_code": 0}],
        "subgraphs": [
            {
                "tensors": [{"shape": (1, 2), "name": name, "buffer": n} for n, name in enumerate(("in", "c"))],
                "inputs": (0,),
                "outputs": (0,),
                "operators": [],
            }
        ],
    }
    data = b"".join(Encoder().file("Model", root, b"TFL3"))
    for by in (1, 2, 3):
        (first,) = struct.unpack_from("<I", data)
        moved = struct.pack("<I", first + by) + data[4:8] + bytes(by) + data[8:]
        assert str(read(moved).subgraphs[0]) == str(read(data).subgraphs[0])


def test_a_small_table_may_be_the_last_thing_in_a_file() -> None:
    """Whatever larger tables of its kind there are: its own size counts."""
    graph = {"tensors": [{"shape": (2,), "name": "a", "has_rank": True}, {}], "inputs": (0,), "outputs": (1,)}
    root = {"version": 3, "buffers": [{}], "operator_codes": [{"builtin_code": 0}], "subgraphs": [graph]}
    data = b"".join(Encoder().file("Model", root, b"TFL3"))
    decoder = Decoder(memoryview(data), apart=frozenset({"Tensor"}))
    small = decoder.root("Model")["subgraphs"][0]["tensors"][1]
    (vtable,) = struct.unpack_from("<i", data, small)
    moved = bytearray(data + struct.pack("<i", len(data) - (small - vtable)))
    (place,) = [at for at in range(0, len(data), 4) if at + struct.unpack_from("<I", data, at)[0] == small]
    struct.pack_into("<I", moved, place, len(data) - place)
    assert [str(tensor) for tensor in read(bytes(moved)).subgraphs[0].tensors] == [
        str(tensor) for tensor in read(data).subgraphs[0].tensors
    ]


def test_objects_print_well() -> None:
    model = read(write(made_models.conv()))
    graph = model.subgraphs[0]
    assert str(graph.nodes[3]) == "%9 = MEAN(%7, %8) {keep_dims=False}"
    assert str(graph.tensors[0]) == "%0 'image' float32[1,8,8,3]"
    assert str(model.signatures[0]).startswith("serving_default(image: float32[1, 8, 8, 3]) -> (features:")
    assert "Node(index=3, op='MEAN', version=1, inputs=[7, 8], outputs=[9]" in repr(graph.nodes[3])
    assert repr(model) == "Model(in memory, 1 subgraphs, 4 nodes, 7 buffers)"
    assert str(graph).splitlines()[1] == "  input  %0 'image' float32[1,8,8,3]"


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int4", np.int8([[-8, 7, 0], [1, -1, 3]])),
        ("uint4", np.uint8([15, 0, 9])),
        ("int2", np.int8([-2, 1, 0, -1, 1])),
        ("bfloat16", np.float32([1.0, -2.5, 2.0**100, 1 + 2**-7])),
        ("string", np.array([b"", b"assay", "\u00e9".encode()], object)),
        ("bool", np.array([True, False])),
        ("float16", np.float16([0.1, -3])),
        ("complex64", np.complex64([1 + 2j])),
        ("float64", np.array(2.5)),
    ],
)
def test_values_of_every_type_come_back(dtype: str, values: np.ndarray) -> None:
    g = GraphBuilder()
    constant = g.constant(values, "c", dtype)
    model = g.finish([])
    data = model.data(constant)
    assert data.shape == values.shape
    assert (data == values).all()
    assert encode(data, dtype) == bytes(model.buffers[constant.buffer].data)


def test_bfloat16_is_rounded_to_the_nearest_halves_to_even() -> None:
    halves = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20])
    codes = np.frombuffer(encode(halves, "bfloat16"), np.uint16)
    assert codes.tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_float8_values() -> None:
    g = GraphBuilder()
    constant = g.constant(np.uint8([0x38, 0xC0, 0x7E, 0x01, 0x7F]), "c")
    model = g.finish([])
    constant.dtype = "float8_e4m3fn"
    assert np.array_equal(model.data(constant), np.float32([1, -2, 448, 2**-9, np.nan]), equal_nan=True)
    constant.dtype = "float8_e5m2"
    assert np.array_equal(model.data(constant), np.float32([0.5, -2, np.nan, 2**-16, np.nan]), equal_nan=True)


def test_a_buffer_that_does_not_fit_the_shape() -> None:
    model = made_models.conv()
    weights = next(tensor for tensor in model.subgraphs[0].tensors if tensor.name == "weights")
    model.buffers[weights.buffer].data = b"1234"
    with pytest.raises(GraphError, match=r"'weights'.*needs 432 bytes and its buffer has 4"):
        read(write(model)).data(weights)
    with pytest.raises(GraphError, match="is not a constant"):
        model.data(model.subgraphs[0].tensors[0])


def test_unsound_sparsity() -> None:
    model = made_models.sparse()
    stored = model.subgraphs[0].tensors[1]
    assert stored.sparsity is not None
    assert model.data(stored).tolist() == [[0, 1, 0], [2, 0, 3]]
    level = stored.sparsity["dim_metadata"][1]
    for wrong in ((1, 0, 9), (1, 0, -1), (1,)):
        level["array_indices"]["values"] = wrong
        with pytest.raises(GraphError, match="unsound sparsity"):
            model.data(stored)


def test_sparsity_of_a_scalar_and_of_an_absurd_shape() -> None:
    g = GraphBuilder()
    scalar = g.constant(np.float32([7]), "scalar")
    model = g.finish([])
    scalar.sparsity = {"traversal_order": None, "block_map": None, "dim_metadata": []}
    scalar.shape = ()
    assert model.data(scalar) == 7
    scalar.shape = (1 << 20, 1 << 20)
    with pytest.raises(GraphError, match="as a dense tensor"):
        model.data(scalar)


def test_a_file_over_2_gb(tmp_path: Path) -> None:
    """Constants behind the flatbuffer, at offsets that need 64 bits; the file is a hole but for its ends."""
    model = made_models.half()
    data = bytearray(write(model))
    buffer = next(buffer for buffer in model.buffers if buffer.external)
    place = data.index(bytes(buffer.data))
    far = 5 << 30
    fields = [i for i in range(0, len(data) - 8, 4) if struct.unpack_from("<Q", data, i)[0] == place]
    assert len(fields) == 1
    struct.pack_into("<Q", data, fields[0], far)
    path = tmp_path / "big.tflite"
    with path.open("wb") as file:
        file.write(data[:place])
        file.seek(far)
        file.write(buffer.data)
    big = read(path)
    stored = next(tensor for tensor in big.subgraphs[0].tensors if tensor.is_constant)
    assert path.stat().st_size > far
    assert np.array_equal(big.data(stored), model.data(model.subgraphs[0].tensors[1]))
