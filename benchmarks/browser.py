"""How much of a browser sweep is spent on anything but the models: wall time over load + compile + inferences.

Usage: python benchmarks/browser.py [--runs N] [--models N] [--fresh]

Sweeps the real models of scripts/fetch_models.py on both lanes, with one browser for all of them, and prints, for
each run, the time that the page spent on loading LiteRT.js, on compiling and on inferences, and the ratio of the
sweep's whole wall time to their sum. What is around the models is split in two: the browser jobs (starting the
browser, pages, sending inputs and outputs), and the rest (native reference, expected errors, verdicts, records and
cards). With --fresh, every job gets a browser of its own instead, for comparison.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import fetch

from assay.devices.local import LocalDevice
from assay.measure.run import RunResult, run_models
from assay.measure.settings import Settings
from assay.measure.sweep import LANES, sweep

AIM = 1.3


def page_seconds(result: RunResult) -> float:
    metrics = result.entry.run.metrics
    parts = ("runtime_load_ms", "load_ms", "inference_total_ms")
    return sum(metrics.get(part) or 0.0 for part in parts) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--models", type=int, default=14, help="so many of the models, smallest first")
    parser.add_argument("--fresh", action="store_true", help="a browser for each job")
    arguments = parser.parse_args()
    models = sorted(fetch().glob("*.tflite"), key=lambda path: path.stat().st_size)[: arguments.models]
    inside = jobs = 0.0
    begun = 0.0

    def notify(text: str) -> None:
        nonlocal begun, jobs
        if text.endswith(LANES):
            begun = time.perf_counter()
        elif begun:
            jobs += time.perf_counter() - begun
            begun = 0.0

    def done(result: RunResult) -> None:
        nonlocal inside
        seconds = page_seconds(result)
        inside += seconds
        run = result.entry.run
        print(f"{result.model_id:36} {result.lane:15} {seconds:7.2f} s  {run.failure_class or ''}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(lanes=LANES, runs=arguments.runs, budget_s=arguments.budget, out=Path(folder))
        start = time.perf_counter()
        if arguments.fresh:
            run_models(models, settings, notify=notify, done=done, among=[LocalDevice()])
        else:
            sweep(models, settings, notify=notify, done=done)
        wall = time.perf_counter() - start
    print(f"wall {wall:.1f} s; browser jobs {jobs:.1f} s; in load + compile + inferences {inside:.1f} s")
    print(f"browser jobs over load + compile + inferences {jobs / inside:.2f}")
    print(f"ratio {wall / inside:.2f} (aim: at most {AIM})")


if __name__ == "__main__":
    main()
