"""Documents for tests, in our form and in the plain form of other producers."""

import json
from pathlib import Path
from typing import Any

SEED = Path(__file__).parent / "data" / "sam2_mask_decoder_v2.card.json"
SEED_ID = "sam2.1-hiera-tiny-mask-decoder__sam2_tiny_mask_decoder_v2_fp16"
SHA = "ab" * 32


def device_run(**changes: Any) -> dict[str, Any]:
    """A device run with every field; `env` and `metrics` are merged."""
    env = {
        "device": "Desk",
        "machine_label": "desk",
        "os_build": "Debian 12",
        "runtime": "litert",
        "runtime_version": "2.3.0",
        "soc": None,
        "vendor_sdk": None,
    }
    run = {
        "accelerator": "cpu_xnnpack",
        "context_length": None,
        "date": "2026-11-01",
        "decode_tokens_per_s": None,
        "delegated_ops": None,
        "env": env | changes.pop("env", {}),
        "error": None,
        "evidence": ["a line of the log"],
        "failure_class": None,
        "full_delegation": None,
        "latency_p50_ms": 10.0,
        "loads": True,
        "max_abs_diff": None,
        "max_rel_diff": None,
        "metrics": {"iterations": 50} | changes.pop("metrics", {}),
        "output_match": None,
        "peak_mem_mb": None,
        "prefill_tokens_per_s": None,
        "provenance": "measured",
        "runs": True,
        "total_ops": None,
        "ttft_ms": None,
    }
    return run | changes


def device_entry(sha: str = SHA, signature: str | None = None, **changes: Any) -> dict[str, Any]:
    """An entry of a device-run record."""
    started = changes.pop("started_at", None)
    return {
        "run": device_run(**changes),
        "artifact": {"file": "model.tflite", "sha256": sha, "size_bytes": 1000, "size_mb": 0.001},
        "signature": signature,
        "command": ["assay", "run", "model.tflite"],
        "started_at": started,
        "host": {"cpu_model": "Desk", "cores": 2},
        "samples_ms": [9.9, 10.0, 10.1],
        "refused_ops": [],
        "verdict": None,
        "inputs": {"kind": "uniform", "seed": 0},
    }


def browser_run(**changes: Any) -> dict[str, Any]:
    """A browser run as a card has it."""
    env = {
        "browser": "chromium",
        "browser_version": "151.0",
        "headless": True,
        "jspi": True,
        "litertjs_core_version": "2.5.3",
        "machine_label": "desk",
        "os": "Linux",
        "os_version": "6.1",
        "webgpu_adapter": None,
    }
    run = {
        "backend": "wasm_xnnpack",
        "date": "2026-11-02",
        "env": env | changes.pop("env", {}),
        "full_delegation": None,
        "latency_p50_ms": 40.0,
        "loads": True,
        "max_rel_diff": None,
        "output_match": None,
        "provenance": "measured",
        "runs": True,
    }
    return run | changes


def browser_entry(sha: str = SHA, **changes: Any) -> dict[str, Any]:
    """An entry of a browser-sweep record."""
    entry = device_entry(sha)
    return {**entry, "run": browser_run(**changes)}


def plain_device_file(model_id: str, device: str, runs: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A device-run file as other producers write it."""
    head = {"schema_version": "1.0", "model_id": model_id, "device": device, "artifact": "m.litertlm"}
    return {**head, "quantization": "int4", "results": runs, **changes}


def plain_sweep_file(model_id: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A browser-sweep file as other producers write it."""
    config = {"warmup_runs": 3, "timed_runs": 10, "tolerance_abs": 1e-5, "tolerance_rel": 1e-3, "input_seed": 42}
    return {
        "schema_version": "1.0",
        "model_id": model_id,
        "source": "https://example.org/m.tflite",
        "license": "apache-2.0",
        "input_spec": "1x64:float32",
        "notes": "",
        "config": config,
        "results": runs,
    }


def write_json(path: Path, value: Any) -> Path:
    """Write a document as it is, checked by nobody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path
