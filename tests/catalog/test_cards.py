import json
from pathlib import Path
from typing import Any

import pytest

from assay import build_card, check_card, records
from assay.catalog import add_pitfall
from assay.errors import AssayError
from record_data import (
    SEED,
    SEED_ID,
    SHA,
    browser_entry,
    browser_run,
    device_entry,
    device_run,
    plain_device_file,
    plain_sweep_file,
    write_json,
)


def built(root: Path, model_id: str = "m", **options: Any) -> records.Card:
    return records.read(build_card(root, model_id, **options), records.Card)


def cells(card: records.Card) -> list[tuple[str, str, Any]]:
    return [
        (c.device, c.run.accelerator, c.run.latency_p50_ms) for c in (card.device.records if card.device else ())
    ]


def test_a_card_is_built_from_records(tmp_path: Path) -> None:
    source = records.append_device_run(tmp_path, "m", "desk", device_entry(latency_p50_ms=3.0))
    records.append_browser_run(tmp_path, "m", browser_entry())
    card = built(tmp_path)
    assert card.schema_version == "1.2"
    assert cells(card) == [("desk", "cpu_xnnpack", 3.0)]
    assert card.device is not None and card.browser is not None
    assert card.device.records[0].source == source.relative_to(tmp_path).as_posix()
    assert card.browser.sweep_source == "data/sweep/2.5.3/2026-11-02/m.json"
    assert [artifact.to_value() for artifact in card.artifacts] == [
        {"file": "model.tflite", "sha256": SHA, "size_mb": 0.001}
    ]
    assert set(card.to_value()) == set(json.loads(SEED.read_text()))


def test_the_same_records_make_the_same_bytes(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    path = build_card(tmp_path, "m")
    texts = [file.read_bytes() for file in (path, path.parent / "CARD.md")]
    build_card(tmp_path, "m")
    assert [file.read_bytes() for file in (path, path.parent / "CARD.md")] == texts


def test_the_newest_date_wins_whatever_the_version(tmp_path: Path) -> None:
    new = device_entry(date="2026-11-09", latency_p50_ms=7.0, env={"runtime_version": "2.1.0"})
    records.append_device_run(tmp_path, "m", "desk", device_entry(latency_p50_ms=3.0))
    records.append_device_run(tmp_path, "m", "desk", new)
    card = built(tmp_path)
    assert cells(card) == [("desk", "cpu_xnnpack", 7.0)]
    assert card.device is not None and card.device.records[0].run.env.runtime_version == "2.1.0"


def test_of_one_day_the_later_run_wins(tmp_path: Path) -> None:
    for latency, hour in ((1.0, "09"), (2.0, "17"), (3.0, "12")):
        entry = device_entry(latency_p50_ms=latency, started_at=f"2026-11-01T{hour}:00:00+00:00")
        records.append_device_run(tmp_path, "m", "desk", entry)
    assert cells(built(tmp_path)) == [("desk", "cpu_xnnpack", 2.0)]


def test_an_example_never_hides_a_measurement(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry(latency_p50_ms=3.0))
    example = device_entry(latency_p50_ms=1.0, date="2026-11-30", provenance="example")
    records.append_device_run(tmp_path, "m", "desk", example)
    assert cells(built(tmp_path)) == [("desk", "cpu_xnnpack", 3.0)]


def test_a_newer_failure_replaces_an_older_success(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    failed = {"loads": False, "runs": False, "failure_class": "crashed", "latency_p50_ms": None}
    records.append_device_run(tmp_path, "m", "desk", device_entry(date="2026-11-05", **failed))
    card = built(tmp_path)
    assert card.device is not None and card.device.records[0].run.failure_class == "crashed"


def test_what_makes_a_cell(tmp_path: Path) -> None:
    for entry in (
        device_entry(),
        device_entry(sha="cd" * 32),
        device_entry(signature="decode"),
        device_entry(context_length=4096),
        device_entry(accelerator="gpu_mldrift"),
        device_entry(metrics={"prefill_tokens": 256}),
    ):
        records.append_device_run(tmp_path, "m", "desk", entry)
    assert len(cells(built(tmp_path))) == 6
    # Threads do not make a cell: it is the same question, and the newest answer counts.
    records.append_device_run(tmp_path, "m", "desk", device_entry(date="2026-11-05", metrics={"threads": 1}))
    assert len(cells(built(tmp_path))) == 6


def test_a_card_stands_alone(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry(signature="decode"))
    records.append_browser_run(tmp_path, "m", browser_entry())
    card = built(tmp_path)
    assert card.device is not None and card.browser is not None
    assert card.device.records[0].run.metrics["file_sha256"] == SHA
    assert card.device.records[0].run.metrics["signature"] == "decode"
    assert card.browser.backends[0].metrics == {"file_sha256": SHA}


def test_a_card_of_old_records_names_files_and_no_folders(tmp_path: Path) -> None:
    lines = ["/work/x/m.tflite: no", "/usr/lib/libvulkan.so.1: no", "RESHAPE: /conv1/Conv"]
    entry = device_entry(error="could not open '/home/anna/m.tflite'", evidence=lines)
    command = ["assay", "run", "/home/anna/m.tflite", "--out", "/work/out"]
    records.append_device_run(tmp_path, "m", "desk", entry | {"command": command})
    meta = tmp_path / "meta.yaml"
    meta.write_text("conversion: {command: assay convert m --out /home/anna/m.tflite}")
    card = built(tmp_path, meta=meta, version="1.3")
    assert card.device is not None
    run = card.device.records[0].run
    assert run.error == "could not open 'm.tflite'"
    assert run.evidence == ["m.tflite: no", *lines[1:]]
    assert card.device.records[0].to_value()["command"] == ["assay", "run", "m.tflite", "--out", "out"]
    assert card.conversion.command == "assay convert m --out m.tflite"
    assert not check_card(tmp_path, "m").findings


def test_records_of_other_producers_make_cards(tmp_path: Path) -> None:
    run = device_run(
        accelerator="npu", env={"runtime": "litert-lm", "runtime_version": "0.16.0"}, latency_p50_ms=None
    )
    run |= {"decode_tokens_per_s": 28.14, "failure_class": None}
    value = plain_device_file("m", "pixel-8a", [run], artifact_sha256=SHA)
    write_json(tmp_path / "data/device_runs/0.16.0/2026-11-01/m__pixel-8a.json", value)
    lines = ["a line"]
    sweep = browser_run(delegation_evidence=lines, error=None, failure_class=None, max_abs_diff=None)
    write_json(tmp_path / "data/sweep/2.5.3/2026-11-02/m.json", plain_sweep_file("m", [sweep]))
    card = built(tmp_path)
    assert card.artifacts[0].sha256 == SHA
    assert card.device is not None and card.browser is not None
    assert card.device.records[0].run.decode_tokens_per_s == 28.14
    assert card.browser.backends[0].evidence == lines
    assert not check_card(tmp_path, "m").findings


def test_a_name_that_begins_like_another_is_another_model(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    records.append_device_run(tmp_path, "m__tiny", "desk", device_entry(latency_p50_ms=99.0))
    assert cells(built(tmp_path)) == [("desk", "cpu_xnnpack", 10.0)]


def test_a_rebuild_that_would_drop_a_cell_is_refused_unless_told(tmp_path: Path) -> None:
    path = records.append_device_run(tmp_path, "m", "desk", device_entry())
    records.append_device_run(tmp_path, "m", "phone", device_entry())
    card = build_card(tmp_path, "m")
    before = card.read_bytes()
    path.unlink()
    with pytest.raises(AssayError, match="cpu_xnnpack on desk"):
        build_card(tmp_path, "m")
    assert card.read_bytes() == before
    assert len(cells(built(tmp_path, orphans="keep"))) == 2
    assert len(cells(built(tmp_path, orphans="drop"))) == 1


def test_a_broken_record_is_named_when_its_cell_would_go(tmp_path: Path) -> None:
    path = records.append_device_run(tmp_path, "m", "desk", device_entry())
    records.append_device_run(tmp_path, "m", "phone", device_entry())
    build_card(tmp_path, "m")
    path.write_text("{")
    with pytest.raises(AssayError, match=r"m__desk\.json"):
        build_card(tmp_path, "m")


def test_the_seed_card_survives_a_rebuild(seed_root: Path) -> None:
    with pytest.raises(AssayError, match="7 of its cells"):
        build_card(seed_root, SEED_ID)
    path = build_card(seed_root, SEED_ID, orphans="keep")
    assert json.loads(path.read_text()) == json.loads(SEED.read_text())


META = """
model:
  family: sam2
  task: mask-generation
  license: apache-2.0
  source_url: https://example.org/m
conversion: {tool: litert-torch, tool_version: 0.10.0, command: convert, quantization: fp16}
pitfalls:
  - plain words
  - {text: with evidence, evidence: [a line]}
"""


def test_what_people_say_survives_rebuilds(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    meta = tmp_path / "given.yaml"
    meta.write_text(META)
    for options in ({"meta": meta}, {}):
        card = built(tmp_path, **options)
        assert (card.model.family, card.model.license) == ("sam2", "apache-2.0")
        assert card.conversion.tool_version == "0.10.0"
        assert card.pitfalls == ["plain words", "with evidence"]
    assert (tmp_path / "cards/m/meta.yaml").read_text() == META


def test_meta_may_be_flat(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    meta = tmp_path / "meta.yaml"
    meta.write_text("family: f\ntask: t\nlicense: mit\nsource: https://example.org\n")
    model = built(tmp_path, meta=meta).model
    assert (model.family, model.task, model.source_url) == ("f", "t", "https://example.org")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("famly: x", r"\$\.famly"),
        ("license: 3", r"\$\.license.*got 3"),
        ("a: [", "not YAML at line"),
        ("- a", "got list"),
        ("!!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_a_wrong_meta_is_named_and_changes_nothing(tmp_path: Path, text: str, words: str) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    meta = tmp_path / "meta.yaml"
    meta.write_text(text)
    with pytest.raises(AssayError, match=words):
        build_card(tmp_path, "m", meta=meta)
    assert not (tmp_path / "cards").exists()


def test_found_pitfalls_join_the_card(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    add_pitfall(tmp_path, "m", records.Pitfall(text="wrong on GPU", evidence=["a line"], lane="gpu_mldrift"))
    assert built(tmp_path).pitfalls == ["wrong on GPU"]
    newer = built(tmp_path, version="1.3")
    assert newer.pitfall_details is not None and newer.pitfall_details[0].evidence == ["a line"]
    assert built(tmp_path, version="1.2").pitfall_details is None


def test_schema_1_3_adds_and_1_2_readers_can_ignore_it(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    records.append_browser_run(tmp_path, "m", browser_entry())
    old = built(tmp_path).to_value()
    new = built(tmp_path, version="1.3").to_value()
    assert new["device"]["records"][0]["artifact"]["size_bytes"] == 1000
    assert new["browser"]["backends"][0]["source"] == old["browser"]["sweep_source"]
    assert contains(new, {**old, "schema_version": "1.3"})


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(contains(*pair) for pair in zip(whole, part, strict=True))
    return whole == part


def test_benchmarks_come_from_their_files(tmp_path: Path) -> None:
    record = {"device": "Desk", "backend": "cpu", "harness": "h", "date": "2026-01-02", "provenance": "measured"}
    results = [record | {"latency_p50_ms": 3.5}, record | {"runtime": "onnxruntime"}]
    value = {"schema_version": "1.0", "model_id": "m", "results": results}
    write_json(tmp_path / "data/benchmarks/any.json", value)
    card = built(tmp_path)
    assert [item.latency_p50_ms for item in card.benchmarks] == [3.5]
    assert [item.runtime for item in card.cross_runtime] == ["onnxruntime"]


# --- check -------------------------------------------------------------------------------------------------


def edit(path: Path, *steps: Any, value: Any) -> None:
    document = json.loads(path.read_text())
    place = document
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    path.write_text(records.dumps(document))


@pytest.mark.parametrize(
    ("steps", "value", "where"),
    [
        (("device", "records", 0, "run", "latency_p50_ms"), 1.5, "$.device.records[0].run.latency_p50_ms"),
        (("device", "records", 0, "run", "output_match"), True, "$.device.records[0].run.output_match"),
        (("device", "records", 0, "run", "metrics", "file_sha256"), "cd" * 32, ""),
        (("device", "records", 0, "run", "accelerator"), "npu_qnn", ""),
        (("artifacts", 0, "sha256"), "cd" * 32, "$.artifacts[0].sha256"),
        (("device", "records", 0, "source"), "data/device_runs/2.3.0/2026-11-01/none.json", "$.device.records[0].source"),  # noqa: E501
    ],
)  # fmt: skip
def test_a_hand_edit_is_found(tmp_path: Path, steps: tuple[Any, ...], value: Any, where: str) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    records.append_device_run(tmp_path, "m", "phone", device_entry())
    path = build_card(tmp_path, "m")
    assert not check_card(tmp_path, "m").findings
    edit(path, *steps, value=value)
    findings = check_card(tmp_path, "m").findings
    assert findings
    assert not where or where in [finding.path for finding in findings]


def test_an_invented_cell_is_found(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    path = build_card(tmp_path, "m")
    document = json.loads(path.read_text())
    cell = json.loads(json.dumps(document["device"]["records"][0])) | {"source": "data/device_runs/x/y/z.json"}
    cell["run"]["accelerator"] = "npu_qnn"
    document["device"]["records"].append(cell)
    path.write_text(records.dumps(document))
    assert any("npu_qnn" in finding.text for finding in check_card(tmp_path, "m").findings)


def test_an_edit_of_card_md_or_of_the_form_is_found(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    path = build_card(tmp_path, "m")
    markdown = path.parent / "CARD.md"
    markdown.write_text(markdown.read_text().replace("10", "1"))
    assert [finding.file for finding in check_card(tmp_path, "m").findings] == [markdown]
    build_card(tmp_path, "m")
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert [finding.file for finding in check_card(tmp_path, "m").findings] == [path]
    path.write_text("{")
    assert "not JSON" in check_card(tmp_path, "m").findings[0].text


def test_a_card_that_is_older_than_its_records_is_found(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    build_card(tmp_path, "m")
    records.append_device_run(tmp_path, "m", "desk", device_entry(date="2026-11-20", latency_p50_ms=20.0))
    assert check_card(tmp_path, "m").findings


def test_a_card_from_elsewhere_is_checked_for_its_form(seed_root: Path) -> None:
    result = check_card(seed_root, SEED_ID)
    assert not result.findings
    assert any("records are not here" in note for note in result.notes)


def test_no_record_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="no record of m"):
        build_card(tmp_path, "m")
    with pytest.raises(AssayError):
        build_card(tmp_path, "../m")
    with pytest.raises(AssayError, match="does not exist"):
        check_card(tmp_path, "m")


def test_a_card_of_a_newer_schema_is_not_written_over(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    path = build_card(tmp_path, "m")
    newer = json.loads(path.read_text()) | {"schema_version": "1.9", "new": 1}
    path.write_text(json.dumps(newer))
    with pytest.raises(AssayError, match=r"schema 1\.9"):
        build_card(tmp_path, "m")
    assert json.loads(path.read_text()) == newer
