"""Catalog of 100,000 records: cold index, warm query, one-file update, with memory.

The peer in the same run is DuckDB reading the JSON files itself, with no index: what a query costs without a
catalog. Usage: python benchmarks/catalog.py [--records 100000] [--models 1000] [--dir FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LANES = ("cpu_xnnpack", "cpu_reference", "gpu_mldrift", "npu_qnn")
DEVICES = ("pixel-8a", "galaxy-s26", "raspberry-pi-5", "desk", "mac-studio-m4-max")
VERSIONS = ("2.1.6", "2.2.0.dev20260804", "2.2.0", "2.3.0")
QUERIES = {
    "count": "SELECT count(*) FROM runs",
    "fastest": "SELECT model_id, accelerator, min(latency_p50_ms) FROM cells WHERE status = 'match' GROUP BY ALL",
    "wrong": "SELECT model_id, device, accelerator, date FROM cells WHERE status = 'wrong'",
    "evidence": "SELECT count(*) FROM evidence WHERE line LIKE '%thermal=SEVERE%'",
}


def make_record(model: int, number: int, seed: int) -> tuple[str, dict[str, Any]]:
    """One device-run record with one run, the same for the same numbers: its path and its content."""
    rng = random.Random(f"{seed}/{model}/{number}")
    version = rng.choice(VERSIONS)
    date = f"2026-{rng.randint(1, 11):02d}-{rng.randint(1, 28):02d}"
    device = rng.choice(DEVICES)
    lane = rng.choice(LANES)
    model_id = f"model-{model:04d}"
    median = round(rng.lognormvariate(3, 1), 3)
    failed = rng.random() < 0.05
    accelerated = lane != "cpu_xnnpack" and not failed
    match = None if failed or rng.random() < 0.3 else rng.random() > 0.03
    heat = "SEVERE" if rng.random() < 0.02 else "NONE"
    sha = f"{model:064x}"
    run = {
        "accelerator": lane,
        "context_length": None,
        "date": date,
        "decode_tokens_per_s": None,
        "delegated_ops": 400 if accelerated else None,
        "env": {
            "device": device.title(),
            "machine_label": device,
            "os_build": "Android 16",
            "runtime": "litert",
            "runtime_version": version,
            "soc": "SoC",
            "vendor_sdk": None,
        },
        "error": "Failed to compile model" if failed else None,
        "evidence": [
            f"mode=jit thermal=NONE->{heat} headroom={rng.random():.6f} attempt=0",
            f"Replacing {rng.randint(1, 400)} out of 400 node(s) with delegate",
        ],
        "failure_class": "load_failed" if failed else None,
        "full_delegation": rng.random() > 0.1 if accelerated else None,
        "latency_p50_ms": None if failed else median,
        "loads": not failed,
        "max_abs_diff": None if match is None else rng.random() * 1e-4,
        "max_rel_diff": None if match is None else rng.random() * 1e-5,
        "metrics": {
            "file_sha256": sha,
            "iterations": 50,
            "latency_ci95_high_ms": round(median * 1.02, 3),
            "latency_ci95_low_ms": round(median * 0.98, 3),
            "latency_max_ms": round(median * 1.2, 3),
            "latency_min_ms": round(median * 0.9, 3),
            "load_ms": round(rng.random() * 1000, 1),
            "threads": 4,
        },
        "output_match": match,
        "peak_mem_mb": round(rng.random() * 200, 2),
        "prefill_tokens_per_s": None,
        "provenance": "example",
        "runs": not failed,
        "total_ops": 400 if accelerated else None,
        "ttft_ms": None,
    }
    entry = {
        "run": run,
        "artifact": {"file": f"{model_id}.tflite", "sha256": sha, "size_bytes": 1000, "size_mb": 0.001},
        "signature": None,
        "command": ["assay", "run", f"{model_id}.tflite"],
        "started_at": f"{date}T12:00:00+00:00",
        "host": {"cpu_model": device, "cores": 8},
        "samples_ms": [round(median * rng.uniform(0.9, 1.2), 4) for _ in range(50)],
        "refused_ops": [],
        "verdict": None,
        "inputs": {"kind": "uniform", "seed": 0},
    }
    # A number in the name keeps apart what would be runs of one file: here one record is one file.
    path = f"data/device_runs/{version}/{date}/{model_id}__{device}.{number}.json"
    head = {"schema_version": "1.2", "kind": "device_run", "model_id": model_id, "device": device}
    return path, {**head, "entries": [entry]}


def generate(root: Path, records: int, models: int, seed: int = 0) -> None:
    """Write `records` records of `models` models."""
    for index in range(records):
        path, value = make_record(index % models, index // models, seed)
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def assay(root: Path, query: str) -> tuple[float, float]:
    """Wall time of `assay query` as a user runs it, in seconds, and its peak memory in MiB."""
    code = (
        "import resource,sys\nfrom assay.cli import main\n"
        f"sys.argv = ['assay', 'query', {query!r}, '--dir', {str(root)!r}, '--json']\n"
        "try:\n    main()\nfinally:\n"
        "    kib = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\n"
        "    print(f'peak {kib / 1024:.0f}', file=sys.stderr)\n"
    )
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begin
    return wall, float(done.stderr.rsplit("peak ", 1)[1])


def peer(root: Path) -> float:
    """Wall time of the same count with DuckDB on the JSON files themselves."""
    code = (
        "import duckdb\nprint(duckdb.sql(\"SELECT count(*) FROM (SELECT unnest(entries) AS e FROM read_json("
        f"'{root}/data/device_runs/*/*/*.json', columns={{entries: 'JSON[]'}}))\").fetchall())\n"
    )
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return time.perf_counter() - begin


def measure(root: Path, records: int, models: int, seed: int) -> None:
    begin = time.perf_counter()
    generate(root, records, models, seed)
    print(f"{records} records of {models} models generated in {time.perf_counter() - begin:.1f} s")
    cold, memory = assay(root, QUERIES["count"])
    print(f"cold index and first query   {cold:8.2f} s   {memory:6.0f} MiB peak   {records / cold:8.0f} records/s")
    plain = peer(root)
    for name, query in QUERIES.items():
        warm = [assay(root, query) for _ in range(5)]
        median = statistics.median(wall for wall, _ in warm)
        peak = max(peak for _, peak in warm)
        ratio = f"   DuckDB on the files: {plain:.2f} s, {plain / median:.1f}x" if name == "count" else ""
        print(f"warm query, {name:<10}       {median:8.2f} s   {peak:6.0f} MiB peak{ratio}")
    updates: list[float] = []
    empty = statistics.median(assay(root, QUERIES["count"])[0] for _ in range(3))
    for number in range(5):
        path, value = make_record(0, 10_000 + number, seed)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(value))
        updates.append(assay(root, QUERIES["count"])[0])
    update = statistics.median(updates)
    print(f"query after one new file     {update:8.2f} s   of it the update: {update - empty:.2f} s")
    start = statistics.median(_startup() for _ in range(3))
    print(f"of each: starting Python, the command line and DuckDB {start:.2f} s")
    print(f"memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def _startup() -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import duckdb, typer, rich.console; duckdb.connect()"], check=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=Path, help="folder for the records; a temporary one by default")
    options = parser.parse_args()
    root = options.dir or Path(tempfile.mkdtemp(prefix="assay-catalog-"))
    try:
        measure(root, options.records, options.models, options.seed)
    finally:
        if options.dir is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
