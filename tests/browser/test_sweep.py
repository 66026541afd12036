"""A sweep: a list of models, an interruption, a failure in the middle, side by side."""

import json
from pathlib import Path

import pytest

from assay import build_card, graph
from assay.errors import AssayError
from assay.measure.settings import Settings
from assay.measure.sweep import find_models, sweep

from .conftest import chromium_processes, double, with_unknown_op

OPTIONS = {"adapter": "swiftshader"}


@pytest.fixture
def catalog(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    graph.save(double(), folder / "a.tflite")
    graph.save(with_unknown_op(), folder / "b.tflite")
    graph.save(double((1, 4)), folder / "c.tflite")
    (folder / "broken.tflite").write_bytes(b"not a model")
    return folder


def test_a_folder_a_file_and_a_list(catalog, tmp_path):
    assert [path.name for path in find_models(catalog)] == ["a.tflite", "b.tflite", "broken.tflite", "c.tflite"]
    assert find_models(catalog / "a.tflite") == [catalog / "a.tflite"]
    (tmp_path / "list.txt").write_text("# two of them\nmodels/c.tflite\n\nmodels/a.tflite\n")
    assert [path.name for path in find_models(tmp_path / "list.txt")] == ["c.tflite", "a.tflite"]


@pytest.mark.parametrize("content", [b"gone.tflite", b"\xff\xfe\x00", b"", None])
def test_lists_that_cannot_be_used(tmp_path, content):
    path = tmp_path / "list.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AssayError):
        find_models(path)


def test_a_folder_that_cannot_be_written_to(catalog, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(AssayError, match="cannot be written to"):
        sweep(find_models(catalog), Settings(out=tmp_path / "out"))


def test_no_timing_side_by_side(catalog, tmp_path):
    with pytest.raises(AssayError, match="disturb"):
        sweep(find_models(catalog), Settings(out=tmp_path / "out", runs=5), jobs=2)


@pytest.mark.browser
def test_goes_on_where_it_was_interrupted_and_a_failure_stops_nothing(catalog, tmp_path):
    before = chromium_processes()
    out = tmp_path / "out"
    settings = Settings(lanes=("wasm_xnnpack",), runs=3, kinds=("uniform",), out=out, options=OPTIONS)
    models = find_models(catalog)

    def interrupt(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(models, settings, done=interrupt, card=build_card)
    assert chromium_processes() == before
    assert list(out.glob(".sweep-*.json"))
    told = []
    report = sweep(models, settings, done=told.append, card=build_card)
    assert [(result.model_id, result.entry.run.failure_class) for result in told] == [
        ("b", "silent_run_failure"),
        ("c", None),
    ]
    assert len(report.errors) == 1 and "broken.tflite" in report.errors[0]
    assert not list(out.glob(".sweep-*.json")), "a complete sweep leaves no journal"
    records = sorted(out.glob("data/sweep/2.5.3/*/*.json"))
    assert [path.stem for path in records] == ["a", "b", "c"]
    for path in records:
        entries = json.loads(path.read_text())["entries"]
        assert [entry["run"]["backend"] for entry in entries] == ["wasm_xnnpack"]
    assert sorted(path.name for path in (out / "cards").iterdir()) == ["b", "c"] or (out / "cards" / "a").is_dir()
    assert chromium_processes() == before


@pytest.mark.browser
def test_side_by_side_for_the_numbers(catalog, tmp_path):
    settings = Settings(lanes=("wasm_xnnpack",), runs=0, kinds=("uniform",), out=tmp_path / "out", options=OPTIONS)
    (catalog / "broken.tflite").unlink()
    report = sweep(find_models(catalog), settings, jobs=2, card=build_card)
    classes = {result.model_id: result.entry.run.failure_class for result in report.results}
    assert classes == {"a": None, "b": "silent_run_failure", "c": None}
    assert all(result.entry.run.latency_p50_ms is None for result in report.results)
    assert Path(tmp_path / "out" / "cards" / "a" / "card.json").is_file()
