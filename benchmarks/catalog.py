"""Catalog of 100,000 records: cold index, warm query, one-file update, with memory.

The peer in the same run is DuckDB reading the JSON files itself, with no index: what a query costs without a
catalog. Usage: python benchmarks/catalog.py [--records 100000] [--models 1000] [--dir FOLDER]

Processor seconds stand beside wall seconds: on a busy machine only they mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Cost:
    """What one command cost: wall and processor seconds, and peak memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float

    def __str__(self) -> str:
        return f"{self.wall_s:8.2f} s wall {self.cpu_s:8.2f} s CPU {self.peak_mib:6.0f} MiB peak"


def run(code: str) -> Cost:
    """Cost of one Python process, helpers included."""
    tail = (
        "\nimport resource, sys\n"
        "usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)\n"
        "print('cost', cpu, max(usage.ru_maxrss for usage in usages) / 1024, file=sys.stderr)\n"
    )
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begin
    cpu, peak = done.stderr.rsplit("cost ", 1)[1].split()
    return Cost(wall, float(cpu), float(peak))


def assay(root: Path, query: str) -> Cost:
    """Cost of `assay query` as a user runs it."""
    return run(
        "import sys\nfrom assay.cli import main\n"
        f"sys.argv = ['assay', 'query', {query!r}, '--dir', {str(root)!r}, '--json']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
    )


def peer(root: Path) -> Cost:
    """Cost of the same count with DuckDB on the JSON files themselves."""
    return run(
        'import duckdb\nprint(duckdb.sql("SELECT count(*) FROM (SELECT unnest(entries) AS e FROM read_json('
        f"'{root}/data/device_runs/*/*/*.json', columns={{entries: 'JSON[]'}}))\").fetchall())\n"
    )


def middle(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda cost: cost.cpu_s)[len(costs) // 2]


def measure(root: Path, records: int, models: int, seed: int, repeats: int) -> None:
    if not (root / "data").exists():
        begin = time.perf_counter()
        generate(root, records, models, seed)
        print(f"{records} records of {models} models generated in {time.perf_counter() - begin:.1f} s")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    shutil.rmtree(root / ".assay", ignore_errors=True)
    cold = assay(root, QUERIES["count"])
    print(f"cold index and first query  {cold}   {records / cold.cpu_s:.0f} records per CPU second")
    warm = {name: middle([assay(root, query) for _ in range(repeats)]) for name, query in QUERIES.items()}
    for name, cost in warm.items():
        print(f"warm query, {name:<16}{cost}")
    plain = peer(root)
    ratio = plain.cpu_s / warm["count"].cpu_s
    print(f"count, DuckDB on the files  {plain}   {ratio:.1f} times the warm query's CPU")
    updates: dict[str, list[Cost]] = {"new": [], "changed": [], "removed": []}
    for number in range(repeats):
        path, value = make_record(0, 10_000 + number, seed)
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        for change, costs in updates.items():
            if change == "removed":
                file.unlink()
            else:
                value["entries"][0]["run"]["error"] = change
                file.write_text(json.dumps(value))
            costs.append(assay(root, QUERIES["count"]))
    for change, costs in updates.items():
        update = middle(costs)
        more = (update.wall_s - warm["count"].wall_s, update.cpu_s - warm["count"].cpu_s)
        print(f"one {change + ' file:':<23}{update}   the update: {more[0]:.2f} s wall, {more[1]:.2f} s CPU")
    start = middle([run("import duckdb, pydantic.main, typer; duckdb.connect()") for _ in range(repeats)])
    print(f"of each, Python and imports {start}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="folder that keeps the records for the next run")
    options = parser.parse_args()
    root = options.dir or Path(tempfile.mkdtemp(prefix="assay-catalog-"))
    try:
        measure(root, options.records, options.models, options.seed, options.repeats)
    finally:
        if options.dir is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
