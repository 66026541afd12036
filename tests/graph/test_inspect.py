"""`assay inspect`: counts that can be checked by hand, tables, JSON, and the picture."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import made_models
import numpy as np
import pytest
from test_hostile import graph, root

from assay.graph import GraphBuilder, GraphError, Quantization, read, save, summarize
from assay.report.graph_html import STATUSES, render_graph
from assay.report.graph_layout import layout
from assay.report.inspect_table import printable, quantity


def assay(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from assay.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def macs(op: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], **options: object) -> int | None:
    g = GraphBuilder()
    inputs = [g.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    custom = None if op.isupper() else b""
    y = g.op(op, inputs, out, options=options, custom_options=custom)
    return summarize(g.finish([y])).subgraphs[0].macs


@pytest.mark.parametrize(
    ("op", "shapes", "out", "expected"),
    [
        ("CONV_2D", [(1, 8, 8, 3), (16, 3, 3, 3), (16,)], (1, 8, 8, 16), 8 * 8 * 16 * 27),
        # Grouped: each output channel sees only its group's input channels.
        ("CONV_2D", [(1, 8, 8, 4), (16, 3, 3, 2), (16,)], (1, 8, 8, 16), 8 * 8 * 16 * 18),
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 3), (1, 5, 5, 6), (6,)], (1, 4, 4, 6), 4 * 4 * 6 * 25),
        ("TRANSPOSE_CONV", [(4,), (8, 2, 2, 3), (1, 5, 5, 3)], (1, 10, 10, 8), 5 * 5 * 3 * 8 * 4),
        ("FULLY_CONNECTED", [(7, 32), (10, 32), (10,)], (7, 10), 7 * 10 * 32),
        ("BATCH_MATMUL", [(2, 4, 5), (2, 5, 6)], (2, 4, 6), 2 * 4 * 5 * 6),
        ("CONV_3D", [(1, 4, 4, 4, 2), (3, 3, 3, 2, 5)], (1, 4, 4, 4, 5), 64 * 5 * 27 * 2),
        ("Convolution2DTransposeBias", [(1, 5, 5, 3), (8, 2, 2, 3), (8,)], (1, 10, 10, 8), 25 * 3 * 8 * 4),
        ("ADD", [(4,), (4,)], (4,), 0),
        ("SVDF", [(2, 8), (6, 8), (6, 10)], (2, 3), 2 * (48 + 60)),
        ("Unheard", [(4,)], (4,), None),
        ("STABLEHLO_DOT_GENERAL", [(4, 4), (4, 4)], (4, 4), None),
        ("CONV_2D", [(1, 8, 8, 3)], (1, 8, 8, 16), None),
    ],
)
def test_multiply_accumulates(
    op: str, shapes: list[tuple[int, ...]], out: tuple[int, ...], expected: int | None
) -> None:
    assert macs(op, shapes, out) == expected


def test_multiply_accumulates_of_a_transposed_product() -> None:
    assert macs("BATCH_MATMUL", [(5, 4), (5, 6)], (4, 6), adj_x=True) == 4 * 5 * 6


def test_parameters_and_sizes() -> None:
    summary = summarize(made_models.conv())
    # Pads and axes are no weights.
    assert summary.parameters == 4 * 27 + 4 + 4
    assert summary.constant_bytes == 4 * (4 * 27 + 4 + 4) + 4 * 8 + 4 * 2
    assert summary.min_runtime_version == "1.5.0"
    assert summary.ranks == {2: 1, 4: 4}
    assert {op.op: (op.count, op.macs, op.parameters) for op in summary.ops} == {
        "CONV_2D": (1, 8 * 8 * 4 * 27, 4 * 27 + 4),
        "MEAN": (1, 0, 0),
        "PAD": (1, 0, 0),
        "PRELU": (1, 0, 4),
    }


def test_weights_behind_a_dequantize_belong_to_their_reader() -> None:
    summary = summarize(made_models.half())
    assert summary.parameters == 64
    assert {op.op: op.parameters for op in summary.ops} == {"DEQUANTIZE": 0, "FULLY_CONNECTED": 64}
    assert summary.external_bytes == 128
    assert list(summary.activations) == ["float32"]
    assert summary.activations["float32"].tensors == 2


def test_quantized_biases_are_parameters_and_sparse_ones_count_dense() -> None:
    assert summarize(made_models.quantized()).parameters == 6 + 3
    sparse = summarize(made_models.sparse())
    assert (sparse.parameters, sparse.sparse_tensors) == (6, 1)


def test_shared_constants_count_once() -> None:
    g = GraphBuilder()
    x = g.input("x", (4,))
    first = g.constant(np.ones(4, np.float32), "first")
    second = g.tensor("second", (4,))
    second.buffer, second.is_constant = first.buffer, True
    y = g.op("ADD", [g.op("ADD", [x, first], (4,)), second], (4,))
    assert summarize(g.finish([y])).parameters == 4


def test_most_bytes_alive() -> None:
    g = GraphBuilder()
    x = g.input("x", (100,))
    a = g.op("ABS", [x], (100,))
    b = g.op("NEG", [a], (50,))
    c = g.op("ABS", [b], (10,))
    facts = summarize(g.finish([c])).subgraphs[0]
    assert facts.activations_bytes == 4 * (100 + 100)
    # A long skip keeps its value alive to the end.
    d = g.op("ADD", [c, x], (100,))
    assert summarize(g.finish([d])).subgraphs[0].activations_bytes == 4 * (100 + 100 + 50)
    assert summarize(made_models.dynamic()).subgraphs[0].activations_bytes is None


def test_called_subgraphs_are_in_the_sum() -> None:
    assert [facts.nodes for facts in summarize(made_models.loop()).subgraphs] == [2, 1, 2]
    assert summarize(made_models.loop()).subgraphs[0].macs == 0


def test_json_of_a_real_model(real_models: dict[str, Path]) -> None:
    done = assay("inspect", real_models["selfie_segmentation"], "--json", "--nodes")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (model,) = document["models"]
    assert document["file"] == "selfie_segmentation.tflite"
    assert document["size_bytes"] == model["file_bytes"] == 249505
    assert model["parameters"] == 106401
    assert model["associated_files"] == ["labels.txt"]
    assert model["signatures"][0]["inputs"][0]["shape"] == [1, 256, 256, 3]
    assert {op["op"]: op["count"] for op in model["ops"]}["CONV_2D"] == 43
    assert sum(op["count"] for op in model["ops"]) == len(model["graph"][0]["nodes"]) == 246
    assert model["subgraphs"][0]["macs"] == 59215744


def test_tables_of_a_real_model(real_models: dict[str, Path]) -> None:
    done = assay("inspect", real_models["hand_landmark_lite"], "--nodes")
    assert done.returncode == 0, done.stderr
    for text in ("hand_landmark_lite.tflite", "2,071,597 bytes", "1.01 M parameters", "CONV_2D", "Identity_3"):
        assert text in done.stdout
    assert "input  %0 'input_1' float32[1,224,224,3]" in done.stdout


def test_a_bundle_and_one_part_of_it(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "two.task"
    for name in ("conv", "half"):
        save(made_models.ALL[name](), tmp_path / f"{name}.tflite")
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("conv.tflite", "half.tflite"):
            archive.write(tmp_path / name, name)
        archive.writestr("labels.txt", "a")
    document = json.loads(assay("inspect", path, "--json").stdout)
    assert [model["name"] for model in document["models"]] == ["conv.tflite", "half.tflite"]
    assert [part["kind"] for part in document["parts"]] == ["tflite_model", "tflite_model", "file"]
    assert "labels.txt: file, 1 bytes" in assay("inspect", path).stdout
    refused = assay("inspect", path, "--html", tmp_path / "g.html")
    assert refused.returncode == 2
    assert "--part: conv.tflite, half.tflite" in refused.stderr
    assert assay("inspect", path, "--part", "half.tflite", "--html", tmp_path / "g.html").returncode == 0
    assert "FULLY_CONNECTED" in (tmp_path / "g.html").read_text()
    assert assay("inspect", path, "--part", "none").returncode == 2


def test_bad_files_and_misuse(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no model, only some text")
    for done in (assay("inspect", path), assay("inspect", tmp_path / "none"), assay("inspect", tmp_path)):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "error:" in done.stderr
    save(made_models.conv(), tmp_path / "m.tflite")
    done = assay("inspect", tmp_path / "m.tflite", "--html", tmp_path / "g.html", "--subgraph", "3")
    assert done.returncode == 2
    assert "no subgraph 3" in done.stderr
    assert not (tmp_path / "g.html").exists()


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    g = GraphBuilder()
    evil = "\x1b[31m[bold]\u202e\n</script><b>"
    x = g.input(evil, (1,))
    model = g.finish([g.op(evil, [x], (1,), name=evil, custom_options=b"")])
    model.description = evil
    save(model, tmp_path / "evil.tflite")
    done = assay("inspect", tmp_path / "evil.tflite", "--nodes", "--html", tmp_path / "evil.html")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "[bold]" in done.stdout
    page = (tmp_path / "evil.html").read_text()
    assert "<b>" not in page
    assert page.count("</script>") == 2


def test_a_signature_with_absurdly_many_scales_stays_small() -> None:
    g = GraphBuilder()
    x = g.input("x", (1000,), "int8", quantization=Quantization([0.5] * 1000, [0] * 1000))
    from assay.graph.facts import to_json

    document = to_json(summarize(g.finish([x])))
    assert document["signatures"][0]["inputs"][0]["quantization"]["scales"] is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (34_979_040, "34.98 M"), (5 * 10**12, "5.00 T"), (None, "?")],
)
def test_quantities(number: int | None, text: str) -> None:
    assert quantity(number) == text
    assert printable("a\tb") == "a\\tb"


class Page(HTMLParser):
    """Collects classes of groups, and references to the outside."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "g" and "data-p" in values:
            self.groups.append(values.get("class") or "")
        self.outside += [f"{tag} {key}" for key in ("src", "href", "xlink:href") if key in values]


def test_the_picture_colours_and_stays_at_home(real_models: dict[str, Path]) -> None:
    model = read(real_models["pose_detection"])
    nodes = model.subgraphs[0].nodes
    status = {node.index: "refused" if node.op == "DENSIFY" else "delegated" for node in nodes}
    reasons = dict.fromkeys(status, "because")
    text = render_graph(model, status=status, reasons=reasons, note="a note")
    page = Page()
    page.feed(text)
    assert page.outside == []
    assert "http" not in text.replace("http://www.w3.org", "")
    assert page.groups.count("node refused") == 38
    assert page.groups.count("port") == 3
    # Constants that only pass through a DEQUANTIZE are not drawn; those behind a refused DENSIFY are.
    drawn = sum(group.startswith("node") for group in page.groups)
    plain = sum(node.op not in {"DENSIFY", "DEQUANTIZE"} for node in nodes)
    assert drawn == plain + 38 * 2
    assert "253 taken by the accelerator" in text
    with pytest.raises(GraphError, match="'green' is no status"):
        render_graph(model, status={0: "green"})


def test_every_status_has_a_colour() -> None:
    template = (Path(render_graph.__code__.co_filename).parent / "graph.html").read_text()
    for name in STATUSES:
        assert f".{name} rect" in template
        assert f"--{name}-line" in template


def test_a_picture_of_a_thousand_nodes_is_small() -> None:
    text = render_graph(made_models.chain(1000))
    assert text.count('<g class="node"') == 1000
    assert len(text) < 1_500_000


def test_layout_keeps_order_and_distance() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4)]
    widths = [60.0, 100.0, 80.0, 60.0, 60.0]
    made = layout(widths, edges)
    y = [center[1] for center in made.centers]
    assert y[0] < y[1] == y[2] < y[3] < y[4]
    assert abs(made.centers[1][0] - made.centers[2][0]) >= (100 + 80) / 2
    # The edge that passes a layer goes around its boxes.
    skip = made.paths[4]
    assert len(skip) == 3
    for box in (1, 2):
        assert abs(skip[1][0] - made.centers[box][0]) >= widths[box] / 2
    for center, width in zip(made.centers, widths, strict=True):
        assert center[0] - width / 2 >= 0
        assert center[0] + width / 2 <= made.width


def test_pictures_of_hostile_graphs() -> None:
    import hostile_files

    text = render_graph(read(hostile_files.encoded(root(subgraphs=[graph(outputs=(0, 0, 2, 2))]))))
    assert text.count('class="port"') == 3
    assert layout([], []).centers == []
