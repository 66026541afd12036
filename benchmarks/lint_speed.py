"""How fast is lint? Against `edge-lint` (PyPI `edge-compat` 0.1.0) on the same files in one run.

Each file is linted in a process of its own, on either side: first call and median of further calls, both in the
process (imports left out) and in CPU time, so that a busy machine does not show; the memory that it takes beyond
what the process had before; and the whole command, start to end, in CPU time too. Both have a matrix of
the same ops; the peer's is made from ours, one entry for each op, type and rank. The peer lives in a virtual
environment under .cache that this script makes.

Usage: python benchmarks/lint_speed.py [--repeats 5] [--matrix FOLDER]
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np

import lint_models
from assay.linting.matrix import Matrix, for_lane, load

CACHE = lint_models.CACHE
PEER = "edge-compat==0.1.0"

_MEASURE = """
import json, statistics, sys, time
path, repeats = sys.argv[1], int(sys.argv[2])
def peak():
    # Not ru_maxrss: a child inherits its parent's.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
before = peak()
times = []
for _ in range(repeats + 1):
    start = time.process_time()
    nodes = once()
    times.append((time.process_time() - start) * 1e3)
print(json.dumps({"first_ms": times[0], "median_ms": statistics.median(times[1:]),
                  "memory_mb": peak() - before, "nodes": nodes}))
"""
_OURS = """
import sys
from pathlib import Path
from assay.graph import read
from assay.linting import lint, load
import assay.linting.check, numpy
matrix = load(Path(sys.argv[3]))
def once():
    return lint(Path(sys.argv[1]), matrix).total
"""
_THEIRS = """
import sys
from pathlib import Path
from litert_compat.lint import build_report, classify_model
from litert_compat.matrix.query import Matrix
from litert_compat.parser import parse_tflite
matrix = Matrix.load(Path(sys.argv[3]))
def once():
    data = Path(sys.argv[1]).read_bytes()
    parsed = parse_tflite(data)
    report = build_report(classify_model(parsed, matrix), matrix, model_path=sys.argv[1], model_bytes=data,
                          subgraph_count=len(parsed.subgraphs), matrix_path=sys.argv[3])
    return sum(len(subgraph.nodes) for subgraph in parsed.subgraphs)
"""


def peer_python() -> Path:
    """The Python of an environment that has the peer; made once."""
    folder = CACHE / "peer"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
        (folder / "ready").touch()
    return python


def peer_matrix(matrix: Matrix) -> Path:
    """Our matrix in the peer's terms: what it can say of an op is its output's type and rank."""
    entries: dict[tuple[str, str, int], str] = {}
    for op in matrix.ops():
        measured = matrix.op(op)
        if measured is None or not re.fullmatch(r"[A-Z][A-Z0-9_]*", op):
            continue
        for signature, answer in measured.parsed:
            found = re.search(r"-> (float32|int8|int32|bool|int64)\S*\[(\d)\]", signature.tensors)
            if found and answer.status in ("supported", "refused"):
                key = (op, found[1], int(found[2]))
                status = "delegated" if answer.status == "supported" else "fallback"
                entries[key] = "delegated" if entries.get(key) == "delegated" else status
    document = {
        "schema_version": "1.3",
        "litert_version": matrix.runtime_version,
        "backend": matrix.lane,
        "generated_at": matrix.header["measured"][1],
        "entries": [
            {
                "op": op,
                "dtypes": [dtype],
                "constraints": {"rank": rank},
                "status": status,
                "provenance": "inferred",
            }
            for (op, dtype, rank), status in sorted(entries.items())
        ],
    }
    path = CACHE / "peer-matrix.json"
    path.write_text(json.dumps(document))
    return path


def big_models() -> dict[str, Path]:
    """A graph of 1,000 nodes, and a file of 500 MB; made once."""
    from assay.graph import GraphBuilder, save

    nodes, weights = CACHE / "nodes_1000.tflite", CACHE / "weights_500mb.tflite"
    if not nodes.exists():
        graph = GraphBuilder()
        value = graph.input("x", (1, 16, 16, 8))
        rng = np.random.default_rng(0)
        for index in range(250):
            window: dict[str, Any] = {
                "padding": "SAME",
                "stride_w": 1,
                "stride_h": 1,
                "fused_activation_function": "NONE",
            }
            kernel = graph.constant(rng.normal(size=(8, 3, 3, 8)).astype(np.float32), f"block_{index}/conv/kernel")
            bias = graph.constant(np.zeros(8, np.float32), f"block_{index}/conv/bias")
            shape = (1, 16, 16, 8)
            conv = graph.op(
                "CONV_2D", [value, kernel, bias], shape, options=window, name=f"block_{index}/conv/Conv2D"
            )
            gate = graph.op("LOGISTIC", [conv], shape, name=f"block_{index}/gate/Sigmoid")
            none = {"fused_activation_function": "NONE"}
            scaled = graph.op("MUL", [conv, gate], shape, options=none, name=f"block_{index}/mul/Mul")
            value = graph.op("ADD", [value, scaled], shape, options=none, name=f"block_{index}/add/AddV2")
        save(graph.finish([value]), nodes)
    if not weights.exists():
        graph = GraphBuilder()
        value = graph.input("x", (1, 8192))
        for _ in range(2):
            weight = graph.constant(np.zeros((8192, 8192), np.float32))
            options = {"keep_num_dims": True, "fused_activation_function": "NONE"}
            value = graph.op("FULLY_CONNECTED", [value, weight, None], (1, 8192), options=options, version=5)
        save(graph.finish([value]), weights)
    return {"nodes_1000": nodes, "weights_500mb": weights}


def measure(python: Path | str, code: str, model: Path, matrix: Path, repeats: int) -> dict[str, float]:
    """Lint a file in a process of its own."""
    command = [str(python), "-c", code + _MEASURE, str(model), str(repeats), str(matrix)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def command_ms(command: list[str]) -> float:
    """CPU time of a whole command, the smaller of two runs, in milliseconds."""
    times: list[float] = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--matrix", type=Path, help="a matrix folder instead of the one that ships")
    arguments = parser.parse_args()
    matrix = load(arguments.matrix) if arguments.matrix else for_lane("gpu_mldrift")
    theirs = peer_matrix(matrix)
    python = peer_python()
    names = ("selfie_segmentation", "hand_landmark_full", "pose_landmark_full", "face_landmark_with_attention")
    models = {name: path for name, path in lint_models.real().items() if name in names} | big_models()
    columns = f"{'first ms':>10} {'median ms':>10} {'memory MiB':>11} {'command ms':>11}"
    print(f"{'model':30} {'nodes':>6} {'':>14} {columns}")
    ratios: list[float] = []
    for name, path in models.items():
        ours = measure(sys.executable, _OURS, path, matrix.folders[0], arguments.repeats)
        peer = measure(python, _THEIRS, path, theirs, arguments.repeats)
        mine = [str(Path(sys.executable).with_name("assay")), "lint", str(path)]
        if arguments.matrix:
            mine += ["--matrix", str(arguments.matrix)]
        ours["command_ms"] = command_ms(mine)
        peer["command_ms"] = command_ms([str(python.with_name("edge-lint")), str(path), "--matrix", str(theirs)])
        for label, row in (("assay lint", ours), ("edge-lint", peer)):
            print(
                f"{name:30} {row['nodes']:>6} {label:>14} {row['first_ms']:>10.1f} {row['median_ms']:>10.2f} "
                f"{row['memory_mb']:>11.1f} {row['command_ms']:>11.0f}"
            )
        first, warm = peer["first_ms"] / ours["first_ms"], peer["median_ms"] / ours["median_ms"]
        ratios.append(warm)
        whole = peer["command_ms"] / ours["command_ms"]
        print(
            f"{'':30} {'':>6} {'times faster':>14} {first:>9.1f}x {warm:>9.1f}x {'':>11} {whole:>10.1f}x",
            flush=True,
        )
    print(f"median ratio: {statistics.median(ratios):.1f}x, smallest {min(ratios):.1f}x")


if __name__ == "__main__":
    main()
