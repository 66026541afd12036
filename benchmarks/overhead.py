"""What Assay costs on top of what it measures, as ratios taken in one run.

    python benchmarks/overhead.py [MODEL.tflite ...]

(a) Assay's p50 over that of a bare interpreter loop: same model, same threads, same number of runs, the two in
    turn, the median of the pairs. Aim: within 3 %.
(b) Wall time of the whole `assay run` command over the time spent inside models (load, warm-up, runs, and the
    runs with noise that the verdict needs).
    Aim: at most 1.5 for runs over 10 s.
(c) `assay --help` over `python -c pass`, in turn. Aim: at most 10.

Without arguments the models are those that scripts/fetch_models.py fetches.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import fetch

from assay import graph
from assay.devices.local import LocalDevice
from assay.lanes.job import Job
from assay.lanes.native import save_arrays
from assay.numerics.inputs import make_inputs, resolve_shapes

THREADS = 2
RUNS = 200
ASSAY = str(Path(sys.executable).parent / "assay")

BARE = """
import statistics, sys, time
import numpy as np
from ai_edge_litert.interpreter import Interpreter
model, inputs, threads, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
interpreter = Interpreter(model_path=model, num_threads=threads)
interpreter.allocate_tensors()
arrays = np.load(inputs)
ins = [(d["index"], arrays[str(k)]) for k, d in enumerate(interpreter.get_input_details())]
outs = [d["index"] for d in interpreter.get_output_details()]
def once():
    for index, array in ins:
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in outs]
for _ in range(10):
    once()
samples = []
for _ in range(runs):
    start = time.perf_counter()
    once()
    samples.append((time.perf_counter() - start) * 1e3)
print(statistics.median(samples))
"""


def latency_ratio(path: Path, pairs: int = 7) -> float:
    """Median over pairs of our p50 over the bare loop's."""
    model = graph.read(path)
    signature = model.signatures[0]
    shapes = resolve_shapes(signature)
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_arrays(folder / "inputs.npz", make_inputs(model, signature, shapes, "uniform", 0))
        for pair in range(pairs):
            command = [sys.executable, "-c", BARE, str(path), str(folder / "inputs.npz")]
            command += [str(THREADS), str(RUNS)]
            inputs = [folder / "inputs.npz"]
            settings = {"warmup": 9, "runs": RUNS, "threads": THREADS}
            job = Job.of(path, signature, folder / str(pair), inputs, shapes=shapes, **settings)

            def bare(command: list[str] = command) -> float:
                return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

            def ours(job: Job = job) -> float:
                observation = LocalDevice().run_job("cpu_xnnpack", job).observation
                assert observation is not None
                return statistics.median(observation.samples_ms)

            # Each goes first every other time, so that a drift of the machine favours neither.
            first, second = (bare, ours) if pair % 2 else (ours, bare)
            values = {first.__name__: first(), second.__name__: second()}
            ratios.append(values["ours"] / values["bare"])
    return statistics.median(ratios)


def command_ratio(paths: list[Path]) -> tuple[float, float]:
    """Wall time of `assay run` over the time inside the models, and that wall time in seconds."""
    with tempfile.TemporaryDirectory() as out:
        command = [ASSAY, "run", *map(str, paths), "--out", out, "--threads", str(THREADS), "--json"]
        command += ["--lane", "cpu_xnnpack", "--lane", "cpu_reference", "--budget", "5"]
        start = time.perf_counter()
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        wall = time.perf_counter() - start
    return wall / json.loads(result.stdout)["model_time_s"], wall


def start_ratio(pairs: int = 15) -> float:
    """Median over pairs of `assay --help` over `python -c pass`."""

    def timed(command: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    ratios = [timed([ASSAY, "--help"]) / timed([sys.executable, "-c", "pass"]) for _ in range(pairs)]
    return statistics.median(ratios)


def main() -> None:
    models = [Path(argument) for argument in sys.argv[1:]] or sorted(fetch().glob("*.tflite"))
    for name in ("face_landmark", "hand_landmark_full", "selfie_segmentation"):
        for path in models:
            if path.stem == name:
                print(f"(a) p50 over a bare loop's, {name}, {THREADS} threads: {latency_ratio(path):.3f}")
    ratio, wall = command_ratio(models)
    print(f"(b) wall time over time inside {len(models)} models: {ratio:.2f} (wall {wall:.1f} s)")
    print(f"(c) assay --help over python -c pass: {start_ratio():.1f}")


if __name__ == "__main__":
    main()
