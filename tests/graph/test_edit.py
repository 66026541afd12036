"""Cuts and taps give the values that the whole model has inside."""

import random
from pathlib import Path

import interpreter as runtime
import made_models
import numpy as np
import pytest

from assay.devices.local import LocalDevice
from assay.graph import GraphBuilder, GraphError, Model, cut, read, save, tap, write
from assay.lanes.job import Job
from assay.lanes.registry import find

REAL = ("face_detection_full_range_sparse", "face_landmark", "hand_landmark_lite", "iris_landmark")
PREPARING = {"DENSIFY", "DEQUANTIZE"}


def inner_values(model: Model) -> dict[str, runtime.Array]:
    """Tensor name -> value, of one run with seeded inputs."""
    interpreter = runtime.load(write(model), keep_inner=True)
    runtime.feed(interpreter)
    graph = model.subgraphs[0]
    return {
        t.name: interpreter.get_tensor(t.index) for t in graph.tensors if t.dtype != "resource" and not t.sparsity
    }


def run_cut(part: Model, values: dict[str, runtime.Array]) -> None:
    """Run a part on the whole model's inner values and compare what comes out."""
    (signature,) = part.signatures
    outputs = runtime.run(runtime.load(write(part)), [values[entry.name] for entry in signature.inputs])
    assert runtime.same(outputs, [values[entry.name] for entry in signature.outputs])


@pytest.mark.parametrize("name", REAL)
def test_any_part_of_a_real_model_computes_what_the_whole_does(name: str, real_models: dict[str, Path]) -> None:
    model = read(real_models[name])
    values = inner_values(model)
    rng = random.Random(name)
    count = len(model.subgraphs[0].nodes)
    first, last = sorted(rng.sample(range(count), 2))
    choices = [range(first, last + 1), rng.sample(range(count), count // 3), [count - 1], range(count)]
    for nodes in choices:
        run_cut(cut(model, nodes), values)


@pytest.mark.parametrize("name", REAL)
def test_taps_have_the_inner_values_and_change_nothing(name: str, real_models: dict[str, Path]) -> None:
    model = read(real_models[name])
    values = inner_values(model)
    graph = model.subgraphs[0]
    inner = [t for node in graph.nodes for t in node.outputs if node.op not in PREPARING]
    chosen = random.Random(name).sample(inner, 5)
    tapped = tap(model, chosen)
    outputs = runtime.feed(runtime.load(write(tapped)))
    names = [graph.tensors[index].name for index in [*graph.outputs, *chosen]]
    assert runtime.same(outputs, [values[name] for name in names])
    assert [entry.name for entry in tapped.signatures[0].outputs[-5:]] == [f"tap_{i}" for i in chosen]
    assert len(graph.nodes) + 5 == len(tapped.subgraphs[0].nodes)


def test_weights_come_along_unless_told_otherwise() -> None:
    model = made_models.half()
    part = cut(model, [1])
    assert [node.op for node in part.subgraphs[0].nodes] == ["DEQUANTIZE", "FULLY_CONNECTED"]
    assert [entry.name for entry in part.signatures[0].inputs] == ["x"]
    assert [entry.name for entry in part.signatures[0].outputs] == ["y"]
    bare = cut(model, [1], with_weights=False)
    assert [entry.name for entry in bare.signatures[0].inputs] == ["x", "w_float"]
    run_cut(bare, inner_values(model))


def test_outputs_are_what_is_read_outside() -> None:
    model = made_models.conv()
    assert [e.name for e in cut(model, [1, 2]).signatures[0].outputs] == ["block/prelu"]
    assert [e.name for e in cut(model, [0, 2]).signatures[0].outputs] == ["padded", "block/prelu"]
    assert [e.name for e in cut(model, [0, 2]).signatures[0].inputs] == ["image", "block/conv"]
    assert [entry.name for entry in cut(model, [3]).metadata] == ["min_runtime_version"]


def test_a_cut_shares_bytes_and_drops_the_rest() -> None:
    model = made_models.conv()
    part = cut(model, [3])
    assert len(part.subgraphs[0].tensors) == 3
    assert len(part.buffers) == 3
    assert part.buffers[1].data is model.buffers[5].data


def test_subgraphs_come_along() -> None:
    model = made_models.loop()
    part = cut(model, [0])
    assert len(part.subgraphs) == 3
    outputs = runtime.run(runtime.load(write(part)), [np.int32(3), np.float32([1, 2])])
    assert [output.tolist() for output in outputs] == [[4, 8]]
    assert len(cut(model, [1]).subgraphs) == 1


def test_handles_are_not_fed_but_made() -> None:
    model = made_models.state()
    graph = model.subgraphs[0]
    add = next(node.index for node in graph.nodes if node.op == "ADD")
    assert [e.name for e in cut(model, [add]).signatures[0].inputs] == ["before", "x"]
    read_only = cut(model, [node.index for node in graph.nodes if node.op == "READ_VARIABLE"])
    assert {node.op for node in read_only.subgraphs[0].nodes} == {"CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE"}
    assert runtime.run(runtime.load(write(read_only)), [])[0].tolist() == [0]
    handle = next(node.index for node in graph.nodes if node.op == "VAR_HANDLE")
    with pytest.raises(GraphError, match="no value"):
        cut(model, [handle])


def test_what_cannot_be_cut_or_tapped() -> None:
    model = made_models.conv()
    with pytest.raises(GraphError, match="no node is given"):
        cut(model, [])
    with pytest.raises(GraphError, match="no node 4; the subgraph has 4"):
        cut(model, [0, 4])
    with pytest.raises(GraphError, match="no subgraph 1"):
        cut(model, [0], subgraph=1)
    weights = next(tensor.index for tensor in model.subgraphs[0].tensors if tensor.name == "weights")
    with pytest.raises(GraphError, match=r"'weights'.*no value that a run computes"):
        tap(model, [weights])
    with pytest.raises(GraphError, match="no tensor 99"):
        tap(model, [99])
    with pytest.raises(GraphError, match="subgraph 2 is run by a node"):
        tap(made_models.loop(), [0], subgraph=2)


def test_taps_of_other_types_and_open_shapes() -> None:
    model = made_models.quantized()
    tapped = tap(model, [0, 3])
    outputs = runtime.feed(runtime.load(write(tapped)))
    assert outputs[1].dtype == np.int8
    assert runtime.same([outputs[0]], [outputs[2]])
    assert tapped.subgraphs[0].tensors[-1 - 1].quantization == model.subgraphs[0].tensors[3].quantization

    g = GraphBuilder()
    x = g.input("x", (1, 2), "int32", shape_signature=(-1, 2))
    y = g.op("NEG", [x], (1, 2), shape_signature=(-1, 2), name="y")
    z = g.op("ABS", [y], (1, 2), shape_signature=(-1, 2), name="z")
    interpreter = runtime.load(write(tap(g.finish([z]), [y.index])))
    interpreter.resize_tensor_input(0, [3, 2])
    interpreter.allocate_tensors()
    outputs = runtime.run(interpreter, [np.arange(6).reshape(3, 2)])
    assert outputs[1].tolist() == [[0, -1], [-2, -3], [-4, -5]]


def test_the_signature_of_a_tapped_model_runs() -> None:
    model = made_models.conv()
    tapped = read(write(tap(model, [2])))
    interpreter = runtime.load(write(tapped))
    runner = interpreter.get_signature_runner("serving_default")
    image = np.ones((1, 8, 8, 3), np.float32)
    result = runner(image=image)
    assert set(result) == {"features", "mean", "tap_2"}
    assert np.array_equal(result["tap_2"][:, 1:-1, 1:-1], image)


def test_a_copy_is_its_own() -> None:
    model = made_models.conv()
    before = write(model)
    copy = model.copy()
    copy.subgraphs[0].nodes[1].options["padding"] = "SAME"
    copy.subgraphs[0].nodes[1].inputs[0] = 0
    copy.subgraphs[0].tensors[0].name = "other"
    copy.signatures[0].inputs.clear()
    assert write(model) == before
    assert model.copy().signatures[0].inputs[0].tensor is not model.signatures[0].inputs[0].tensor


@pytest.mark.gpu
def test_taps_survive_the_gpu_delegate(real_models: dict[str, Path], tmp_path: Path) -> None:
    """The whole graph on the accelerator, and yet each inner value comes out."""
    model = read(real_models["face_landmark"])
    values = inner_values(model)
    graph = model.subgraphs[0]
    inner = [t for node in graph.nodes for t in node.outputs if node.op not in PREPARING]
    chosen = random.Random(1).sample(inner, 4)
    tapped = tap(model, chosen)
    path = tmp_path / "tapped.tflite"
    save(tapped, path)
    (signature,) = tapped.signatures
    np.savez(tmp_path / "inputs.npz", **{str(i): values[e.name] for i, e in enumerate(signature.inputs)})
    job = Job.of(path, signature, tmp_path / "work", [tmp_path / "inputs.npz"], runs=0)
    outcome = LocalDevice().run_job("gpu_mldrift", job)
    facts = find("gpu_mldrift").read(outcome.log, outcome.observation)
    assert facts.full_delegation, outcome.log[-2000:]
    with np.load(outcome.output_files()[0]) as outputs:
        for position, index in enumerate(chosen, start=len(graph.outputs)):
            expected = values[graph.tensors[index].name]
            difference = np.abs(outputs[str(position)].reshape(expected.shape) - expected).max()
            assert difference <= 1e-3 * max(1.0, float(np.abs(expected).max()))
