"""Does lint predict what the GPU engine then does? Every model is linted, then loaded on GPU and CPU together.

What is compared is what the engine's log says: for each subgraph that it takes in part, how many nodes run on
the GPU and how many on the CPU; for models that it takes whole, that it says nothing of the kind and the API
calls them fully accelerated; for those it cannot load, that lint says so.

Usage: python benchmarks/lint_truth.py [--no-convert] [--matrix FOLDER] [NAME ...]
Exit code 0 if every prediction is exact, 1 if not.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lint_models
from assay.lanes import registry
from assay.linting import LintReport, lint
from assay.linting.matrix import for_lane, load

_LOAD = """
import sys
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator as H
model = CompiledModel.from_file(sys.argv[1], hardware_accel=H.GPU | H.CPU)
print("loaded", model.is_fully_accelerated())
"""
_COUNTS = re.compile(
    r"(\d+|No) operations will run on the GPU, and (?:the remaining|all) (\d+) operations will run on the CPU"
)


@dataclass(frozen=True)
class Seen:
    """What the engine did: `(GPU, CPU)` of each subgraph taken in part; None where it did not load."""

    parts: list[tuple[int, int]]
    whole: bool
    error: str | None

    def __str__(self) -> str:
        if self.error:
            return f"does not load: {self.error[:60]}"
        return (
            "whole"
            if not self.parts and self.whole
            else " + ".join(f"{gpu}/{gpu + cpu}" for gpu, cpu in self.parts)
        )


def observe(path: Path, environment: dict[str, str]) -> Seen:
    """Load a model in a process of its own and read the log."""
    command = [sys.executable, "-c", _LOAD, str(path)]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=600,
        errors="replace",
    )
    parts = [(0 if gpu == "No" else int(gpu), int(cpu)) for gpu, cpu in _COUNTS.findall(done.stderr)]
    if done.returncode != 0:
        lines = [
            line for line in done.stderr.splitlines() if re.match(r"^(ERROR: [^\[]|WARNING: Att|F\d{4})", line)
        ]
        return Seen(parts, False, (lines or [f"exit code {done.returncode}"])[-1].partition(": ")[2] or "crash")
    return Seen(parts, "loaded True" in done.stdout, None)


def predicted(report: LintReport) -> Seen | None:
    """The same, as lint foretells it; None where it says that it does not know."""
    whole = next((subgraph.whole_refusal for subgraph in report.subgraphs if subgraph.whole_refusal), None)
    if whole is not None:
        return Seen([], False, whole)
    if report.delegated is None:
        return None
    if report.count("failed", "crash"):
        return Seen([], False, "a node that is taken and cannot be built")
    parts = [
        (subgraph.delegated or 0, subgraph.total - (subgraph.delegated or 0))
        for subgraph in report.subgraphs
        if subgraph.total and subgraph.delegated != subgraph.total
    ]
    return Seen(parts, not parts, None)


def same(a: Seen, b: Seen) -> bool:
    """Whether prediction and observation agree."""
    if a.error or b.error:
        return bool(a.error) == bool(b.error)
    # Of a split graph the API may still say "fully accelerated": the CPU's own delegate counts for it.
    return a.parts == b.parts and (bool(a.parts) or a.whole == b.whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only models whose name contains one of these")
    parser.add_argument("--no-convert", action="store_true", help="leave out the models converted from PyTorch")
    parser.add_argument("--matrix", type=Path, help="a matrix folder instead of the one that ships")
    arguments = parser.parse_args()
    models = {**lint_models.real(), **lint_models.from_wheels(), **lint_models.built()}
    if not arguments.no_convert:
        models |= lint_models.converted()
    matrix = load(arguments.matrix) if arguments.matrix else for_lane("gpu_mldrift")
    environment = registry.find("gpu_mldrift").child_env({})
    print(f"matrix: {matrix.lane} {matrix.runtime_version}, {sum(matrix.header['cases'].values())} cases measured")
    print(f"{'model':44} {'nodes':>6} {'predicted':>20} {'log':>20}  verdict")
    exact = misses = unknown = 0
    for name, path in models.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        report = lint(path, matrix)
        foretold, seen = predicted(report), observe(path, environment)
        if foretold is None:
            unknown += 1
            verdict = f"UNKNOWN ({report.count('unknown')} nodes not measured)"
        elif same(foretold, seen):
            exact += 1
            verdict = "exact"
        else:
            misses += 1
            verdict = "MISS"
        shown = str(foretold) if foretold else "unknown"
        print(f"{name:44} {report.total:>6} {shown[:20]:>20} {str(seen)[:20]:>20}  {verdict}", flush=True)
    print(f"{exact} exact, {misses} missed, {unknown} unknown, of {exact + misses + unknown}")
    return 0 if misses == unknown == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
