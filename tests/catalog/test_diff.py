import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import records
from assay.catalog.difference import ChangeThresholds, diff, ratio_interval
from assay.errors import AssayError
from record_data import device_entry


def add(
    root: Path, latency: float | None, version: str = "2.3.0", spread: float | None = 0.01, **more: Any
) -> None:
    metrics = dict(more.pop("metrics", {}))
    if latency is not None and spread is not None:
        metrics |= {"latency_ci95_low_ms": latency * (1 - spread), "latency_ci95_high_ms": latency * (1 + spread)}
    device = more.pop("device", "desk")
    more.setdefault("date", "2026-11-01" if version < "2.3.0" else "2026-11-20")
    entry = device_entry(latency_p50_ms=latency, metrics=metrics, env={"runtime_version": version}, **more)
    records.append_device_run(root, "m", device, entry)


@pytest.mark.parametrize(
    ("after", "spread", "metrics", "reality", "regressions"),
    [
        (10.2, 0.001, {}, "noise", 0),  # sure, and too small to matter
        (12.0, 0.01, {}, "real", 1),
        (8.0, 0.01, {}, "real", 0),
        (12.0, 0.3, {}, "noise", 0),  # within the spread
        (12.0, 0.01, {"unstable": True}, "unknown", 0),
        (12.0, None, {}, "unknown", 0),  # no spread known, small
        (20.0, None, {}, "real", 1),  # no spread known, large
    ],
)
def test_whether_a_change_is_real(
    tmp_path: Path, after: float, spread: float | None, metrics: dict[str, Any], reality: str, regressions: int
) -> None:
    add(tmp_path, 10.0, "2.2.0", spread)
    add(tmp_path, after, "2.3.0", spread, metrics=metrics)
    result = diff("2.2.0", "2.3.0", root=tmp_path)
    assert len(result.regressions) == regressions
    if reality == "real":
        (speed,) = result.changed[0].speeds
        assert speed.reality == "real" and speed.ratio == pytest.approx(after / 10)
    else:
        assert result.changed == [] and result.same == 1


def test_ranges_that_do_not_touch_are_a_real_change(tmp_path: Path) -> None:
    add(tmp_path, 10.0, "2.2.0", None, metrics={"latency_min_ms": 9.5, "latency_max_ms": 10.5})
    add(tmp_path, 12.0, "2.3.0", None, metrics={"latency_min_ms": 11.5, "latency_max_ms": 13.0})
    assert len(diff("2.2.0", "2.3.0", root=tmp_path).regressions) == 1


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ({"output_match": True}, {"output_match": False}, True),
        ({"output_match": True}, {"failure_class": "crashed", "runs": False}, True),
        ({"output_match": True, "full_delegation": True}, {"output_match": True, "full_delegation": False}, True),
        ({"output_match": False}, {"output_match": True}, False),
        ({"output_match": True}, {"output_match": None}, False),
    ],
)
def test_a_worse_status_is_a_regression(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], worse: bool
) -> None:
    add(tmp_path, 10.0, "2.2.0", accelerator="gpu_mldrift", **before)
    add(tmp_path, 10.0, "2.3.0", accelerator="gpu_mldrift", **after)
    result = diff("2.2.0", "2.3.0", root=tmp_path)
    assert result.changed[0].status_changed
    assert bool(result.regressions) == worse


def test_a_wrong_output_is_never_faster(tmp_path: Path) -> None:
    add(tmp_path, 10.0, "2.2.0", output_match=True)
    add(tmp_path, 1.0, "2.3.0", output_match=False)
    assert diff("2.2.0", "2.3.0", root=tmp_path).changed[0].speeds == []


def test_cells_gained_and_lost(tmp_path: Path) -> None:
    add(tmp_path, 10.0, "2.2.0", accelerator="npu_qnn")
    add(tmp_path, 10.0, "2.3.0", accelerator="gpu_mldrift")
    result = diff("2.2.0", "2.3.0", root=tmp_path)
    assert [cell["accelerator"] for cell in result.gained] == ["gpu_mldrift"]
    assert [cell["accelerator"] for cell in result.lost] == ["npu_qnn"]
    assert result.regressions == []
    strict = ChangeThresholds(fail_on_lost=True)
    assert len(diff("2.2.0", "2.3.0", root=tmp_path, thresholds=strict).regressions) == 1


def test_dates_compare_what_was_known_then(tmp_path: Path) -> None:
    add(tmp_path, 10.0, date="2026-10-01")
    add(tmp_path, 20.0, date="2026-11-01")
    assert len(diff("2026-10-15", "2026-12-01", root=tmp_path).regressions) == 1
    assert diff("2026-11-01", "2026-12-01", root=tmp_path).same == 1
    with pytest.raises(AssayError, match="no run of date 2026-09-01"):
        diff("2026-09-01", "2026-12-01", root=tmp_path)


def test_devices_and_folders(tmp_path: Path) -> None:
    add(tmp_path / "a", 10.0)
    add(tmp_path / "a", 30.0, device="phone")
    add(tmp_path / "b", 10.0, sha="cd" * 32)
    result = diff("desk", "phone", root=tmp_path / "a")
    assert result.changed[0].speeds[0].ratio == pytest.approx(3)
    sides = str(tmp_path / "a"), str(tmp_path / "b")
    assert (len(diff(*sides, root=tmp_path).gained), len(diff(*sides, root=tmp_path).lost)) == (1, 2)
    assert diff(*sides, root=tmp_path, thresholds=ChangeThresholds(across_files=True)).same == 1


def test_language_models_are_compared_by_their_speeds(tmp_path: Path) -> None:
    add(tmp_path, None, "2.2.0", decode_tokens_per_s=30.0, ttft_ms=100.0)
    add(tmp_path, None, "2.3.0", decode_tokens_per_s=15.0, ttft_ms=101.0)
    (text,) = diff("2.2.0", "2.3.0", root=tmp_path).regressions
    assert "decode_tokens_per_s 30 before, 15 now" in text


def test_names_that_are_nothing_or_two_things(tmp_path: Path) -> None:
    add(tmp_path, 10.0, device="2.3.0")
    with pytest.raises(AssayError, match="no date, runtime version, device"):
        diff("9.9", "2.3.0", root=tmp_path)
    with pytest.raises(AssayError, match="a version and a device"):
        diff("2.3.0", "2.3.0", root=tmp_path)
    assert diff("version:2.3.0", "version:2.3.0", root=tmp_path).same == 1
    with pytest.raises(AssayError, match="two of a kind"):
        diff("version:2.3.0", "device:2.3.0", root=tmp_path)


POSITIVE = st.floats(0.01, 1e4)


def test_the_interval_of_a_ratio() -> None:
    # Equal relative widths w on the log scale join to w * sqrt(2) (Zou and Donner 2008, for log-symmetric limits).
    low, high = ratio_interval((10, 10 / 1.1, 10 * 1.1), (20, 20 / 1.1, 20 * 1.1)) or (0, 0)
    width = math.log(1.1) * math.sqrt(2)
    assert (low, high) == pytest.approx((2 * math.exp(-width), 2 * math.exp(width)))
    assert ratio_interval((10, None, 11), (20, 19, 21)) is None
    assert ratio_interval((10, 0, 11), (20, 19, 21)) is None


@given(POSITIVE, POSITIVE, st.floats(1, 2), st.floats(1, 2), st.floats(1, 2), st.floats(1, 2))
def test_the_interval_holds_the_ratio_and_turns_with_it(
    a: float, b: float, p: float, q: float, r: float, s: float
) -> None:
    left, right = (a, a / p, a * q), (b, b / r, b * s)
    low, high = ratio_interval(left, right) or (0, 0)
    assert low <= b / a * (1 + 1e-9) and b / a <= high * (1 + 1e-9)
    back = ratio_interval(right, left) or (0, 0)
    assert back == pytest.approx((1 / high, 1 / low))


def test_a_broken_file_is_named_with_its_side(tmp_path: Path) -> None:
    for side in ("old", "new"):
        add(tmp_path / side, 10.0)
    broken = tmp_path / "new/data/device_runs/2.3.0/2026-11-20/broken.json"
    broken.write_text("{")
    (problem,) = diff(str(tmp_path / "old"), str(tmp_path / "new"), root=tmp_path).problems
    assert problem.startswith(f"in {tmp_path / 'new'}: {broken.relative_to(tmp_path / 'new')} is not JSON")
