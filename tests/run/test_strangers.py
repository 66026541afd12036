"""Any model a stranger has: it runs, or there is one clear line that says why not."""

from pathlib import Path

import pytest
import strangers
from strangers import write

from assay import build_card
from assay.graph import Model
from assay.measure.run import Report, run_models
from assay.measure.settings import Settings

CPU = ("cpu_reference", "cpu_xnnpack")


def run(path: Path, tmp_path: Path, lanes: tuple[str, ...] = CPU, **settings: object) -> Report:
    return run_models([path], Settings(lanes=lanes, runs=3, out=tmp_path / "out", **settings), card=build_card)


def all_run(report: Report) -> None:
    assert report.errors == []
    assert report.results
    for result in report.results:
        assert (result.entry.run.failure_class, result.entry.run.error) == (None, None), result.lane
        assert result.entry.run.runs
        assert result.entry.run.latency_p50_ms is not None


@pytest.mark.parametrize(
    "dtype", ["float32", "int8", "uint8", "int16", "int32", "int64", "bool", "float16", "float64", "uint32"]
)
def test_every_type_that_can_be_fed(dtype: str, tmp_path: Path):
    report = run(write(strangers.plain(dtype), tmp_path, "m"), tmp_path)
    all_run(report)
    assert report.results[1].entry.run.max_abs_diff == 0


def test_each_signature_is_a_run(tmp_path: Path):
    report = run(write(strangers.several_signatures(), tmp_path, "m"), tmp_path)
    all_run(report)
    assert [(r.signature, r.lane) for r in report.results] == [
        (key, lane) for key in ("negate", "multiply") for lane in CPU
    ]


def test_one_signature_can_be_chosen(tmp_path: Path):
    path = write(strangers.several_signatures(), tmp_path, "m")
    report = run(path, tmp_path, signatures=("multiply",))
    assert {r.signature for r in report.results} == {"multiply"}
    report = run(path, tmp_path, signatures=("divide",))
    assert report.exit_code == 2
    assert "no signature 'divide'" in report.errors[0]
    assert "negate, multiply" in report.errors[0]


def test_names_decide_not_positions(tmp_path: Path):
    all_run(run(write(strangers.swapped_signature(), tmp_path, "m"), tmp_path))


def test_dynamic_shapes_are_resolved_as_the_record_says(tmp_path: Path):
    path = write(strangers.dynamic(), tmp_path, "m")
    report = run(path, tmp_path)
    all_run(report)
    assert report.results[0].entry.inputs["shapes"] == {"images": [1, 4]}
    report = run(path, tmp_path, shapes={"images": (5, 4)})
    all_run(report)
    assert report.results[0].entry.inputs["shapes"] == {"images": [5, 4]}


def test_a_shape_that_the_file_forbids(tmp_path: Path):
    path = write(strangers.dynamic(), tmp_path, "m")
    assert "fixed at 4" in run(path, tmp_path, shapes={"images": (1, 5)}).errors[0]
    assert "no input 'pictures'" in run(path, tmp_path, shapes={"pictures": (1, 4)}).errors[0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantized_inputs(dtype: str, tmp_path: Path):
    all_run(run(write(strangers.quantized(dtype), tmp_path, "m"), tmp_path))


def test_ids_stay_in_the_table(tmp_path: Path):
    all_run(run(write(strangers.embedding(10), tmp_path, "m"), tmp_path))


def test_a_model_without_nodes(tmp_path: Path):
    report = run(write(strangers.no_nodes(), tmp_path, "m"), tmp_path)
    assert report.errors == []
    for result in report.results:
        assert result.entry.run.runs or result.entry.run.error


@pytest.mark.parametrize("name", ["FlexErf", "OnlyAtHome"])
def test_an_op_that_no_lane_has(name: str, tmp_path: Path):
    report = run(write(strangers.custom(name), tmp_path, "m"), tmp_path)
    assert report.exit_code == 1
    for result in report.results:
        assert result.entry.run.failure_class == "unsupported_op"
        assert name in str(result.entry.run.error) + str(result.entry.run.evidence)
        assert result.entry.run.loads is False


def test_text_is_not_supported(tmp_path: Path):
    report = run(write(strangers.strings(), tmp_path, "m"), tmp_path)
    assert report.exit_code == 1
    for result in report.results:
        assert result.entry.run.failure_class == "unsupported_dtype"
        assert "'words' is of type string" in str(result.entry.run.error)


def test_mediapipe_custom_ops_run_where_a_lane_has_them(real_models: dict[str, Path], tmp_path: Path):
    report = run(real_models["selfie_segmentation"], tmp_path)
    plain, fast = [result.entry.run for result in report.results]
    assert (plain.failure_class, fast.failure_class) == ("unsupported_op", None)
    assert "Convolution2DTransposeBias" in str(plain.error)
    # The fast lane is then the only one there is, so nothing was compared.
    assert fast.max_abs_diff is None


def problem(path: Path, tmp_path: Path) -> str:
    report = run(path, tmp_path)
    assert report.exit_code == 2
    assert report.results == []
    assert len(report.errors) == 1
    assert "\n" not in report.errors[0]
    assert str(path) in report.errors[0]
    return report.errors[0]


def test_a_truncated_file(real_models: dict[str, Path], tmp_path: Path):
    whole = real_models["hand_recrop"].read_bytes()
    for keep in (4, 8, 100, len(whole) // 2, len(whole) - 1000):
        path = tmp_path / f"cut{keep}.tflite"
        path.write_bytes(whole[:keep])
        problem(path, tmp_path)


def test_a_file_that_is_something_else(tmp_path: Path):
    path = tmp_path / "photo.tflite"
    path.write_bytes(b"\x89PNG\r\n" + bytes(range(256)) * 40)
    problem(path, tmp_path)


def test_an_empty_file_a_folder_a_url_and_nothing(tmp_path: Path):
    (tmp_path / "empty.tflite").touch()
    assert "is empty" in problem(tmp_path / "empty.tflite", tmp_path)
    assert "is a directory" in problem(tmp_path, tmp_path)
    assert "is a URL" in problem(Path("https://example.com/model.tflite"), tmp_path)
    assert "does not exist" in problem(tmp_path / "missing.tflite", tmp_path)


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path):
    good = write(strangers.plain(), tmp_path, "good")
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"nonsense")
    report = run_models([bad, good], Settings(lanes=CPU, runs=3, out=tmp_path / "out"))
    assert len(report.errors) == 1
    assert [result.model_id for result in report.results] == ["good", "good"]
    assert report.exit_code == 2


@pytest.mark.slow
def test_a_model_over_one_gigabyte(tmp_path: Path):
    path = write(strangers.large(1100), tmp_path, "large")
    assert path.stat().st_size > 2**30
    report = run(path, tmp_path, budget_s=2.0)
    all_run(report)
    assert report.results[0].entry.artifact.size_bytes == path.stat().st_size


def test_weights_outside_of_the_flatbuffer(tmp_path: Path):
    all_run(run(write(strangers.large(8), tmp_path, "m"), tmp_path))


@pytest.mark.parametrize(
    "model", [strangers.plain(), strangers.dynamic(), strangers.several_signatures(), strangers.no_nodes()]
)
def test_the_gpu_lane_takes_them_or_says_why_not(model: Model, tmp_path: Path):
    report = run(write(model, tmp_path, "m"), tmp_path, lanes=("gpu_mldrift",), shapes={})
    for result in report.results:
        run_ = result.entry.run
        assert run_.runs or (run_.failure_class and run_.error)
        if run_.runs:
            assert run_.metrics["adapter"]
            assert run_.max_abs_diff == pytest.approx(0, abs=1e-6)


def test_random_weights_are_an_example_whoever_measures_them(tmp_path: Path):
    report = run(write(strangers.example(), tmp_path, "m"), tmp_path)
    assert {result.entry.run.provenance for result in report.results} == {"example"}


def test_a_meta_file_beside_the_model_is_taken(tmp_path: Path):
    path = write(strangers.plain(), tmp_path, "m")
    (tmp_path / "m.meta.yaml").write_text("task: image-segmentation\nprovenance: example\n")
    report = run(path, tmp_path)
    assert {result.entry.run.provenance for result in report.results} == {"example"}
    assert '"task": "image-segmentation"' in report.cards[0].read_text()


def test_a_card_that_cannot_be_built_is_a_warning_and_the_runs_stay(tmp_path: Path):
    path = write(strangers.plain(), tmp_path, "m")
    card = run(path, tmp_path).cards[0]
    card.write_text("{ broken")
    report = run(path, tmp_path)
    assert report.cards == []
    assert str(card) in report.warnings[0]
    assert len(report.results) == 2
    assert all(result.record.is_file() for result in report.results)
