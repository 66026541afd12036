"""A small catalog to ask things of."""

from pathlib import Path

import pytest

from assay import records
from record_data import SEED, SEED_ID, browser_entry, device_entry


@pytest.fixture
def seed_root(tmp_path: Path) -> Path:
    """An output folder with the seed card alone."""
    path = tmp_path / "cards" / SEED_ID / "card.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(SEED.read_bytes())
    return tmp_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An output folder with records of two models."""
    ci = {"latency_ci95_low_ms": 9.9, "latency_ci95_high_ms": 10.1}
    records.append_device_run(tmp_path, "a", "desk", device_entry(metrics=ci))
    gpu = {"accelerator": "gpu_mldrift", "full_delegation": False, "delegated_ops": 3, "total_ops": 5}
    records.append_device_run(tmp_path, "a", "phone", device_entry(**gpu, latency_p50_ms=5.0))
    wrong = {"accelerator": "gpu_mldrift", "full_delegation": True, "output_match": False, "max_abs_diff": 4.5}
    records.append_device_run(tmp_path, "b", "phone", device_entry(sha="cd" * 32, **wrong, latency_p50_ms=2.0))
    failed = {"loads": True, "runs": True, "failure_class": "silent_cpu_fallback", "latency_p50_ms": None}
    entry = device_entry(sha="cd" * 32, accelerator="npu_qnn", **failed)
    records.append_device_run(tmp_path, "b", "phone", entry)
    records.append_browser_run(tmp_path, "b", browser_entry(sha="cd" * 32, output_match=True))
    return tmp_path
