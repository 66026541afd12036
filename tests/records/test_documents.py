import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import records
from assay.records import DocumentError
from assay.records.schemas import FORMS, json_schema
from assay.records.store import parse_browser_sweep, parse_device_runs
from record_data import SEED, browser_run, device_entry, device_run, plain_device_file, plain_sweep_file

SCHEMAS = Path(records.__file__).parent / "schemas_json"


def seed() -> dict[str, Any]:
    return json.loads(SEED.read_text())


def card(value: Any) -> records.Card:
    return records.parse(json.dumps(value).encode(), records.Card, "card.json")


def error_of(value: Any) -> str:
    with pytest.raises(DocumentError) as caught:
        card(value)
    return str(caught.value)


def test_the_seed_card_loads_and_comes_back_as_the_same_value() -> None:
    assert records.read(SEED, records.Card).to_value() == seed()


def test_canonical_text_is_the_same_bytes_every_time() -> None:
    text = records.read(SEED, records.Card).to_json()
    assert records.parse(text.encode(), records.Card, "x").to_json() == text
    assert text.endswith("}\n")
    assert list(json.loads(text)) == sorted(seed())


def test_older_versions_are_read_and_come_back_as_they_were() -> None:
    old = seed()
    del old["device"]
    old["schema_version"] = "1.1"
    assert card(old).to_value() == old
    del old["browser"]
    old["schema_version"] = "1.0"
    assert card(old).to_value() == old


def test_a_field_of_a_later_version_is_named() -> None:
    value = seed() | {"schema_version": "1.1"}
    text = error_of(value)
    assert "$.device" in text and "1.2" in text and "card.json" in text


def test_unknown_fields_are_errors_up_to_the_known_version_and_ignored_above() -> None:
    value = seed()
    value["device"]["records"][0]["run"]["colour"] = "red"
    text = error_of(value)
    assert "$.device.records[0].run.colour" in text and '"red"' in text
    value["schema_version"] = "1.9"
    assert card(value).to_value() == seed() | {"schema_version": "1.9"}


def test_another_major_version_is_refused() -> None:
    assert "expected major version 1" in error_of(seed() | {"schema_version": "2.0"})
    assert "$.schema_version" in error_of(seed() | {"schema_version": 1.2})


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("device", "records", 0, "run", "latency_p50_ms"), "fast", ["run.latency_p50_ms", '"fast"', "number"]),
        (("device", "records", 0, "run", "latency_p50_ms"), -1, ["latency_p50_ms", "-1"]),
        (("device", "records", 0, "run", "loads"), 1, ["run.loads", "got 1", "true or false"]),
        (("device", "records", 0, "run", "date"), "2026-02-31", ["run.date", "2026-02-31"]),
        (("device", "records", 0, "run", "date"), "31.12.2026", ["run.date", "31.12.2026"]),
        (("device", "records", 0, "run", "total_ops"), 10**30, ["run.total_ops"]),
        (("device", "records", 0, "run", "metrics", "n"), [1], ["run.metrics.n", "[1]"]),
        (("artifacts", 0, "sha256"), "abc", ["$.artifacts[0].sha256", '"abc"']),
        (("model", "id"), "../up", ["$.model.id", "../up"]),
        (("browser", "backends", 1, "env", "headless"), None, ["$.browser.backends[1].env.headless", "null"]),
    ],
)  # fmt: skip
def test_errors_name_file_path_value_and_expectation(path: tuple[Any, ...], value: Any, words: list[str]) -> None:
    document = seed()
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    text = error_of(document)
    assert text.startswith("card.json")
    for word in words:
        assert word in text


def test_a_missing_field_is_named() -> None:
    value = seed()
    del value["model"]["license"]
    assert "$.model.license" in error_of(value)


@pytest.mark.parametrize("data", [b"", b"  ", b"{", b"[1]", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_document_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"card\.json"):
        records.parse(data, records.Card, "card.json")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(DocumentError, match="larger than 32 MiB"):
        records.read(path, records.Card)


def test_a_file_full_of_wrong_items_is_one_error_and_not_a_million() -> None:
    value = seed()
    value["benchmarks"] = [{}] * 200_000
    value["pitfalls"] = [1] * 200_000
    text = error_of(value)
    assert "$.benchmarks[0].device" in text and "$.benchmarks[1]" not in text and len(text) < 2000


def test_a_file_full_of_unknown_names_is_refused() -> None:
    value = seed()
    value["model"] |= {f"name_{number}": number for number in range(30_000)}
    assert "has an object with 30005 names, more than 10000" in error_of(value)


def test_a_byte_order_mark_is_passed_over_and_utf_16_named() -> None:
    text = SEED.read_text()
    assert records.parse(text.encode("utf-8-sig"), records.Card, "x").to_value() == seed()
    with pytest.raises(DocumentError, match=r"card\.json is UTF-16"):
        records.parse(text.encode("utf-16"), records.Card, "card.json")


def test_what_a_later_version_added_to_every_item_is_passed_over() -> None:
    value = seed() | {"schema_version": "1.9", "later": 1}
    for place, cell in enumerate(value["device"]["records"]):
        cell["run"]["later"] = {"a": [place]}
        if place:
            cell["later_too"] = place
    assert card(value).to_value() == seed() | {"schema_version": "1.9"}
    value["device"]["records"][1]["run"]["loads"] = "yes"
    assert "$.device.records[1].run.loads" in error_of(value)


def test_words_of_other_producers_are_read() -> None:
    failures = ["engine_create_failed", "zero_throughput", "aot_compile_failed"]
    runs = [
        device_run(
            accelerator="gpu",
            loads=False,
            runs=False,
            failure_class=name,
            env={"runtime": "litert-lm", "runtime_version": "gallery-1.0.15"},
            signature=None,
        )
        for name in failures
    ]
    value = plain_device_file("m", "pixel-8a", runs)
    document = parse_device_runs(json.dumps(value).encode(), "x")
    assert [run.failure_class for run in document.results] == failures  # type: ignore[union-attr]
    assert document.to_value() == value


def test_a_plain_sweep_is_read() -> None:
    run = browser_run(
        loads=False,
        runs=False,
        latency_p50_ms=None,
        failure_class="wasm_memory_ceiling",
        error="Aborted(out of memory)",
        max_abs_diff=None,
        delegation_evidence=["a line"],
    )
    value = plain_sweep_file("m", [run])
    assert parse_browser_sweep(json.dumps(value).encode(), "x").to_value() == value


def test_language_model_and_vendor_fields_are_kept() -> None:
    value = seed()
    run = value["device"]["records"][0]["run"]
    run |= {"context_length": 4096, "decode_tokens_per_s": 28.1, "prefill_tokens_per_s": 388, "ttft_ms": 580.0}
    run["env"]["vendor_sdk"] = "QNN 2.40"
    record = {
        "device": "Desk",
        "backend": "cpu",
        "harness": "bench",
        "date": "2026-01-02",
        "provenance": "vendor_doc",
    }
    value["benchmarks"] = [record | {"latency_p50_ms": 3, "metrics": {"stage": "encode", "power_w": 2.5}}]
    value["cross_runtime"] = [record | {"runtime": "onnxruntime", "soc": None, "runs": 50, "statistic": "median"}]
    value["delegation"] = {
        "backend": "gpu_mldrift",
        "blocking_ops": ["GATHER_ND"],
        "coverage_ops_pct": 98.5,
        "lint_report_version": "1.0",
        "litert_version": "2.3.0",
        "matched_provenance_counts": {"measured": 3, "unmatched": 1},
        "partitions": 2,
    }
    assert card(value).to_value() == value


def test_values_that_are_not_finite_become_null() -> None:
    run = records.DeviceRun(**device_run(max_abs_diff=float("inf"), metrics={"correlation": float("nan")}))
    assert run.max_abs_diff is None
    assert run.to_value()["metrics"]["correlation"] is None


def test_entries_made_in_python_become_plain_json() -> None:
    entry = device_entry()
    entry["inputs"] = {"shapes": {"x": (1, 2)}, "scale": np.float32(0.5), "worst": float("inf")}
    value = records.DeviceEntry(**entry).to_value()
    assert value["inputs"] == {"shapes": {"x": [1, 2]}, "scale": 0.5, "worst": None}


def test_canonical_text_keeps_unicode_and_escapes_lone_surrogates() -> None:
    assert records.dumps({"b": "é", "a": "\ud800"}) == '{\n  "a": "\\ud800",\n  "b": "é"\n}\n'
    with pytest.raises(ValueError):
        records.dumps(float("nan"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_canonical_text_reads_back_and_is_stable(value: Any) -> None:
    text = records.dumps(value)
    assert json.loads(text) == value
    assert records.dumps(json.loads(text)) == text


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_broken_place_is_an_error_and_never_a_crash(data: st.DataObject) -> None:
    value = copy.deepcopy(seed())
    place: Any = value
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    try:
        read = card(value)
    except DocumentError as error:
        assert str(error).startswith("card.json")
    else:
        assert read.to_value() == value


@pytest.mark.parametrize("name", sorted(FORMS))
def test_shipped_schemas_are_those_of_the_models(name: str) -> None:
    assert (SCHEMAS / f"{name}.schema.json").read_text() == records.dumps(json_schema(name))


def test_the_lanes_need_no_pydantic() -> None:
    import subprocess
    import sys

    code = "import sys, assay.records.failure, assay.records.files; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
