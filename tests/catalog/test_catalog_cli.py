import json
import sys
from pathlib import Path

import pytest

from assay import records
from assay.cli import main
from record_data import SEED, SEED_ID, device_entry


def assay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["assay", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    return lambda *words: assay(capsys, monkeypatch, *words)


def test_build_check_and_show(run, root: Path) -> None:
    code, out, _ = run("card", "build", "--dir", root)
    assert code == 0 and out.splitlines() == [str(root / f"cards/{name}/card.json") for name in "ab"]
    assert run("card", "check", "--dir", root)[0] == 0
    path = root / "cards/a/card.json"
    path.write_text(path.read_text().replace("10.0", "1.0"))
    code, out, _ = run("card", "check", "--dir", root)
    assert code == 1 and "latency_p50_ms: got 1.0, the records make 10.0" in out
    code, out, _ = run("card", "check", "a", "--dir", root, "--json")
    assert code == 1 and json.loads(out)["findings"][0]["expected"] == "10.0"
    code, out, _ = run("card", "show", "b", "--dir", root)
    assert code == 0 and "**no: wrong outputs**" in out


def test_show(run, seed_root: Path) -> None:
    code, out, _ = run("show", "sam2", "--dir", seed_root)
    assert code == 0 and "WRONG OUTPUTS" in out and "npu_qnn" in out
    code, out, _ = run("show", SEED_ID, "--dir", seed_root, "--json")
    assert json.loads(out) == json.loads(SEED.read_text())
    code, _, err = run("show", "nothing", "--dir", seed_root)
    assert code == 2 and SEED_ID in err


def test_show_finds_the_model_of_a_file(run, tmp_path: Path) -> None:
    import hashlib

    model = tmp_path / "model.tflite"
    model.write_bytes(b"a model")
    entry = device_entry(sha=hashlib.sha256(b"a model").hexdigest())
    records.append_device_run(tmp_path, "m", "desk", entry)
    assert run("card", "build", "--dir", tmp_path)[0] == 0
    assert run("show", model, "--dir", tmp_path)[1].startswith("m\n")


def test_query(run, root: Path) -> None:
    code, out, _ = run("query", "SELECT model_id, status FROM cells ORDER BY 1, 2", "--dir", root, "--json")
    assert code == 0 and len(json.loads(out)) == 5
    code, out, err = run("query", "wrong", "--dir", root, "--csv")
    assert code == 0 and out.splitlines()[1].startswith("b,,phone,gpu_mldrift,4.5")
    code, _, err = run("query", "SELECT nothing FROM cells", "--dir", root)
    assert code == 2 and "the query failed" in err
    assert run("query", "--list")[0] == 0
    assert run("query", "--dir", root)[0] == 2


def test_a_broken_file_is_named_on_stderr(run, root: Path) -> None:
    (root / "data/device_runs/2.3.0/2026-11-01/x__y.json").write_text("{")
    code, out, err = run("query", "SELECT count(*) AS n FROM runs", "--dir", root, "--json")
    assert code == 0 and json.loads(out) == [{"n": 5}] and "x__y.json" in err


def test_diff_and_stale(run, root: Path) -> None:
    entry = device_entry(date="2026-11-20", env={"runtime_version": "2.4.0"}, latency_p50_ms=30.0)
    records.append_device_run(root, "a", "desk", entry)
    code, out, _ = run("diff", "2.3.0", "2.4.0", "--dir", root, "--json")
    assert code == 1 and len(json.loads(out)["regressions"]) == 1
    code, out, _ = run("diff", "2.3.0", "2.4.0", "--dir", root)
    assert code == 1 and "real, slower" in out
    assert run("diff", "2.4.0", "2.4.0", "--dir", root)[0] == 0
    code, out, _ = run("stale", "--dir", root, "--json")
    assert code == 1 and {cell["newest"] for cell in json.loads(out)} == {"2.4.0"}
    assert run("stale", "--known", "litert", "--dir", root)[0] == 2


def test_catalog_index_and_schema(run, root: Path) -> None:
    code, out, _ = run("catalog", "index", root)
    assert code == 0 and (root / "llms.txt").exists()
    code, out, _ = run("schema", "card")
    assert code == 0 and json.loads(out)["title"] == "Card"
    assert run("schema", "cart")[0] == 2
    assert "device-run" in run("schema")[1]


def test_misuse_of_card_build(run, root: Path) -> None:
    assert run("card", "build", "--keep-cells", "--drop-cells", "--dir", root)[0] == 2
    assert run("card", "build", "--schema", "2.0", "--dir", root)[0] == 2
    assert run("card", "build", "--dir", root / "none")[0] == 2
