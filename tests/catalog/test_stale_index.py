import json
from pathlib import Path

from assay import records, write_index
from assay.catalog import stale
from assay.catalog.database import open_catalog
from record_data import browser_entry, device_entry

GOLDEN = Path(__file__).parent / "golden"


def test_stale_cells_are_on_a_runtime_that_is_not_the_newest(tmp_path: Path) -> None:
    for device, runtime, version in (
        ("old", "litert", "2.2.0.dev20260804"),
        ("new", "litert", "2.2.0"),
        ("nightly", "litert", "2.4.0.dev20261101"),
        ("llm", "litert-lm", "0.16.0"),
        ("gallery", "litert-lm", "gallery-1.0.15"),
    ):
        entry = device_entry(env={"runtime": runtime, "runtime_version": version})
        records.append_device_run(tmp_path, "m", device, entry)
    records.append_browser_run(tmp_path, "m", browser_entry())
    with open_catalog(tmp_path) as catalog:
        assert [(cell.device, cell.newest) for cell in stale(catalog)] == [("old", "2.2.0")]
        found = stale(catalog, {"litert": "2.3.0", "litert-lm": "0.17.0"})
        assert [(cell.device, cell.newest) for cell in found] == [
            ("llm", "0.17.0"),
            ("new", "2.3.0"),
            ("old", "2.3.0"),
        ]


def test_the_index_is_for_programs_people_and_language_models(root: Path) -> None:
    paths, problems = write_index(root)
    assert problems == []
    assert [path.name for path in paths] == ["index.json", "INDEX.md", "llms.txt"]
    index = json.loads(paths[0].read_text())
    assert [model["id"] for model in index["models"]][:2] == ["a", "b"]
    assert [cell["status"] for cell in index["models"][1]["cells"]] == ["match", "wrong", "failed"]
    for path in paths[1:]:
        assert path.read_text() == (GOLDEN / path.name).read_text()


def test_the_index_is_the_same_bytes_and_names_broken_files(root: Path) -> None:
    paths, _ = write_index(root)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write_index(root)[0]] == before
    broken = root / "data/device_runs/2.3.0/2026-11-01/x__y.json"
    broken.write_text("{")
    paths, problems = write_index(root)
    assert "x__y.json" in problems[0]
    assert [path.read_bytes() for path in paths] == before
