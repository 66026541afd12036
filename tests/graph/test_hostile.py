"""Files from strangers: an error in bounded time and memory, never a crash, a hang or a traceback."""

import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import hostile_files as hostile
import made_models as models
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.graph import GraphError, read, write
from assay.graph.encoder import Encoder
from assay.graph.flatbuffer import MAX_TABLES

QUICK = 300
LONG = 20_000


def root(**fields: Any) -> dict[str, Any]:
    """A root table with what every model has."""
    base: dict[str, Any] = {"version": 3, "buffers": [{}], "operator_codes": [{"builtin_code": 0}]}
    return base | {"subgraphs": [graph()]} | fields


def graph(**fields: Any) -> dict[str, Any]:
    tensors = [{"shape": (2,), "name": name} for name in "abc"]
    return {"tensors": tensors, "operators": [], "inputs": (0,), "outputs": (1,)} | fields


def node(inputs: tuple[int, ...], outputs: tuple[int, ...], **fields: Any) -> dict[str, Any]:
    return {"opcode_index": 0, "inputs": inputs, "outputs": outputs} | fields


def tensor(**fields: Any) -> dict[str, Any]:
    return graph(tensors=[{"shape": (2,), "name": "a"} | fields, {"shape": (2,), "name": "b"}])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no subgraph": (root(subgraphs=[]), "no subgraph"),
    "input out of range": (root(subgraphs=[graph(inputs=(3,))]), "inputs has tensor 3 of 3"),
    "output negative": (root(subgraphs=[graph(outputs=(-1,))]), "outputs has tensor -1"),
    "node reads nothing": (root(subgraphs=[graph(operators=[node((9,), (1,))])]), "reads tensor 9 of 3"),
    "node reads -2": (root(subgraphs=[graph(operators=[node((-2,), (1,))])]), "reads tensor -2"),
    "node writes nothing": (root(subgraphs=[graph(operators=[node((0,), (3,))])]), "writes tensor 3 of 3"),
    "op code out of range": (root(subgraphs=[graph(operators=[node((0,), (1,), opcode_index=1)])]), "op code 1"),
    "op number negative": (root(operator_codes=[{"builtin_code": -5, "deprecated_builtin_code": -3}]), "-3"),
    "cycle of nodes": (
        root(subgraphs=[graph(operators=[node((0, 2), (1,)), node((1,), (2,))])]),
        "reads tensor 2 before it is computed",
    ),
    "node reads itself": (root(subgraphs=[graph(operators=[node((1,), (1,))])]), "before it is computed"),
    "written twice": (root(subgraphs=[graph(operators=[node((0,), (1,))] * 2)]), "a second time"),
    "writes an input": (root(subgraphs=[graph(operators=[node((1,), (0,))])]), "is an input of the graph"),
    "writes a constant": (
        root(
            buffers=[{}, {"data": bytes(8)}],
            subgraphs=[tensor(buffer=1) | {"operators": [node((1,), (0,))], "inputs": (), "outputs": ()}],
        ),
        "which is a constant",
    ),
    "negative shape": (root(subgraphs=[tensor(shape=(2, -3))]), r"shape \[2, -3\]"),
    "absurd shape": (root(subgraphs=[tensor(shape=(2**31 - 1,) * 3)]), "claims"),
    "absurd rank": (root(subgraphs=[tensor(shape=(1,) * 200)]), "200 dimensions"),
    "absurd rank, long": (root(subgraphs=[tensor(shape=(1,) * 5000)]), "5,000 dimensions"),
    "signature of another rank": (root(subgraphs=[tensor(shape_signature=(-1, 2))]), "shape signature"),
    "signature below -1": (root(subgraphs=[tensor(shape_signature=(-2,))]), "shape signature"),
    "buffer out of range": (root(subgraphs=[tensor(buffer=1)]), "buffer 1 of 1"),
    "external buffer past the end": (root(buffers=[{"offset": 100, "size": 2**40}]), "past the end"),
    "external buffer overflows": (root(buffers=[{"offset": 2**64 - 1, "size": 2**64 - 1}]), "past the end"),
    "large options past the end": (
        root(subgraphs=[graph(operators=[node((0,), (1,), large_custom_options_offset=2**63)])]),
        "past the end",
    ),
    "metadata out of range": (root(metadata=[{"name": "m", "buffer": 7}]), "buffer 7 of 1"),
    "signature of no subgraph": (root(signature_defs=[{"subgraph_index": 1}]), "subgraph 1 of 1"),
    "signature of no tensor": (
        root(signature_defs=[{"inputs": [{"name": "x", "tensor_index": 3}]}]),
        "tensor 3 of 3",
    ),
}


def calls(target: int) -> dict[str, Any]:
    """A subgraph whose node runs another one."""
    options = {"builtin_options_type": 16, "builtin_options": {"subgraph": target}}
    return graph(operators=[node((0,), (1,), **options)])


BAD |= {
    "runs no subgraph": (root(subgraphs=[calls(1)]), "runs subgraph 1 of 1"),
    "runs itself": (root(subgraphs=[calls(0)]), "subgraph 0 runs itself"),
    "runs itself through another": (root(subgraphs=[calls(1), calls(0)]), "runs itself"),
    "runs itself far below": (root(subgraphs=[*(calls(i + 1) for i in range(3000)), calls(7)]), "runs itself"),
}


@pytest.mark.parametrize("name", BAD)
def test_unsound_files_are_refused_with_the_cause(name: str) -> None:
    fields, cause = BAD[name]
    with pytest.raises(GraphError, match=cause):
        read(hostile.encoded(fields))


def test_the_plain_root_is_sound() -> None:
    assert len(read(hostile.encoded(root())).subgraphs) == 1


@pytest.mark.timeout(60)
def test_many_external_buffers_and_many_calls_cost_no_more_each() -> None:
    data = hostile.encoded(root(buffers=[{}] + [{"offset": 8, "size": 4}] * 100_000))
    assert [len(buffer) for buffer in read(data).buffers[:2]] == [0, 4]
    # All different: none of them stands for another.
    pairs = [(1 + i % 149, 1 + i // 149) for i in range(20_000)]
    loops = [{"cond_subgraph_index": cond, "body_subgraph_index": body} for cond, body in pairs]
    nodes = [node((0,), (), builtin_options_type=93, builtin_options=options) for options in loops]
    model = read(hostile.encoded(root(subgraphs=[graph(operators=nodes), *[graph()] * 149])))
    assert [each.options for each in model.subgraphs[0].nodes] == loops
    nodes[-1]["builtin_options"] = {"cond_subgraph_index": 1, "body_subgraph_index": 150}
    with pytest.raises(GraphError, match=r"node 19999 .* runs subgraph 150 of 150"):
        read(hostile.encoded(root(subgraphs=[graph(operators=nodes), *[graph()] * 149])))


def test_a_long_chain_of_calls_is_no_recursion() -> None:
    chain = [*(calls(i + 1) for i in range(1200)), graph()]
    assert hostile.exercise(hostile.encoded(root(subgraphs=chain)))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 12, 100])
def test_cut_short(size: int, tmp_path: Path) -> None:
    path = tmp_path / "short.tflite"
    path.write_bytes(write(models.conv())[:size])
    with pytest.raises(GraphError, match=r"short\.tflite"):
        read(path)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="does not exist"):
        read(tmp_path / "none.tflite")
    with pytest.raises(GraphError, match="cannot be read"):
        read(tmp_path)


class Shared(Encoder):
    """Writes one table and a vector whose every offset leads to it."""

    def __init__(self, kind: str, times: int):
        super().__init__()
        self.kind, self.times = kind, times

    def _references(self, kind: str, values: Any) -> int:
        if kind != self.kind:
            return super()._references(kind, values)
        self._pad(4)
        start = len(self._out)
        self._out += self.times.to_bytes(4, "little") + bytes(4 * self.times)
        child = self._table(kind[1:], values[0])
        for position in range(start + 4, start + 4 + 4 * self.times, 4):
            self._out[position : position + 4] = (child - position).to_bytes(4, "little")
        return start


@pytest.mark.parametrize(
    ("kind", "times", "subgraph", "cause"),
    [
        (":Tensor", MAX_TABLES + 1, tensor(), "tables"),
        (":Tensor", 60_000, tensor(name="x" * 500_000), "string"),
        (":Tensor", 260_000, graph(tensors=[{"shape": (1,) * 60}]), "numbers"),
        (":Operator", 40_000, graph(operators=[node((0,) * 256, ())]), "numbers"),
        (":Operator", 1000, graph(operators=[node((0,) * 100_000, ())]), "numbers"),
        (":Operator", 1000, graph(operators=[node((), (), custom_options=bytes(1 << 20))]), "bytes of options"),
    ],
)
def test_one_table_shared_by_many_is_not_decoded_without_end(
    kind: str, times: int, subgraph: dict[str, Any], cause: str
) -> None:
    encoder = Shared(kind, times)
    with pytest.raises(GraphError, match=cause):
        read(b"".join(encoder.file("Model", root(subgraphs=[subgraph]), b"TFL3")))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile.tables("Model"))
def test_any_tables(fields: dict[str, Any]) -> None:
    hostile.exercise(hostile.encoded(fields))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(hostile.plausible())
def test_any_options_types_and_sparsity(fields: dict[str, Any]) -> None:
    hostile.exercise(hostile.encoded(fields))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    hostile.exercise(data)
    hostile.exercise(b"\x14\0\0\0TFL3" + data)


def seeds(real: dict[str, Path]) -> list[bytes]:
    """Files to wound: all that are made here and two real ones."""
    made = [write(build()) for build in models.ALL.values()]
    return made * 2 + [real[name].read_bytes() for name in ("hand_recrop", "face_detection_short_range")]


def test_wounded_files(real_models: dict[str, Path]) -> None:
    files = seeds(real_models)
    rng = random.Random(0)
    outcomes = [hostile.exercise(hostile.mutate(rng, rng.choice(files))) for _ in range(QUICK)]
    assert any(outcomes)
    assert not all(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_wounded_files_in_bounded_time_and_memory(real_models: dict[str, Path], tmp_path: Path) -> None:
    """In a process of its own, with limits that the kernel keeps: a crash, a hang or a leak ends it."""
    folder = tmp_path / "seeds"
    folder.mkdir()
    for number, data in enumerate(seeds(real_models)):
        (folder / f"{number}.tflite").write_bytes(data)
    code = f"""
import random, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})
import hostile_files as hostile
files = [path.read_bytes() for path in sorted(Path({str(folder)!r}).iterdir())]
rng = random.Random(1)
print(sum(hostile.exercise(hostile.mutate(rng, rng.choice(files))) for _ in range({LONG})))
"""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (1800, 1800))

    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit)
    assert child.returncode == 0, child.stderr[-3000:]
    assert 0 < int(child.stdout) < LONG
