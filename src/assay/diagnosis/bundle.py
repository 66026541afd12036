"""What is handed over: the smallest file, its inputs and outputs, a script that shows the fault, an issue text."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay import graph
from assay.diagnosis.finding import File, Finding
from assay.diagnosis.kinds import MEANING, Kind
from assay.diagnosis.launch import Launcher, Trial
from assay.diagnosis.pieces import specs
from assay.diagnosis.session import difference_of
from assay.diagnosis.smallest import Smallest
from assay.errors import AssayError
from assay.records.files import write_atomic

Array = np.ndarray[Any, np.dtype[Any]]

_COMPILED = """\
import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator as On
model = CompiledModel.from_file("minimized.tflite", hardware_accel=On.GPU | On.CPU)
names, ins, outs = model.get_signature_by_index(0), model.create_input_buffers(0), model.create_output_buffers(0)
for run in {runs}:
    [buffer.write(x) for buffer, x in zip(ins, map(np.load(f"inputs{{run}}.npz").get, names["inputs"]))]
    model.run_by_index(0, ins, outs)
    for buffer, y in zip(outs, map(np.load(f"expected{{run}}.npz").get, names["outputs"])):
        print("max abs difference", abs(buffer.read(y.size, y.dtype.type).reshape(y.shape) - y.astype("d")).max())
"""

_INTERPRETER = """\
import numpy as np
from ai_edge_litert.interpreter import Interpreter
model = Interpreter("minimized.tflite", num_threads={threads})
model.allocate_tensors()
for run in {runs}:
    x, y = np.load(f"inputs{{run}}.npz"), np.load(f"expected{{run}}.npz")
    [model.set_tensor(detail["index"], x[detail["name"]]) for detail in model.get_input_details()]
    model.invoke()
    for detail in model.get_output_details():
        print("max abs difference", abs(model.get_tensor(detail["index"]) - y[detail["name"]].astype(float)).max())
"""

_LANE = """\
# The lane {lane} has no call of the runtime's own; this uses the tool that found the fault.
from pathlib import Path
import numpy as np
from assay.diagnosis.bundle import run_file
runs = {runs}
sets = [(np.load(f"inputs{{run}}.npz"), np.load(f"expected{{run}}.npz")) for run in runs]
for differences in run_file(Path("minimized.tflite"), "{lane}", sets, options={options}):
    print("max abs difference", differences)
"""

FIRST = ("",)
"""Suffix of the files with inputs and expected outputs of the one inference that shows the fault."""

AFTER_ANOTHER = ("", "1", "")
"""The same where the fault shows only after an inference with other inputs."""


def write_bundle(
    folder: Path, finding: Finding, smallest: Smallest, *, options: dict[str, Any], threads: int
) -> None:
    """Write the smallest file and what goes with it into a folder; the finding gets their names.

    Args:
        folder: Where to.
        finding: What was found; `smallest` and `files` are filled in.
        smallest: The file and its arrays.
        options: Of the lane.
        threads: CPU threads.
    """
    signature = smallest.model.signatures[0]
    inputs = [entry.name for entry in signature.inputs]
    outputs = [entry.name for entry in signature.outputs]
    runs = AFTER_ANOTHER if finding.symptom == "stale" else FIRST
    write_atomic(folder / "minimized.tflite", smallest.data)
    for index, suffix in enumerate(dict.fromkeys(runs)):
        write_atomic(folder / f"inputs{suffix}.npz", _archive(inputs, smallest.inputs[index]))
        write_atomic(folder / f"expected{suffix}.npz", _archive(outputs, smallest.expected[index]))
    finding.files |= {"model": "minimized.tflite", "inputs": "inputs.npz", "expected": "expected.npz"}
    if smallest.actual:
        write_atomic(folder / "actual.npz", _archive(outputs, smallest.actual[len(runs) - 1]))
        finding.files["actual"] = "actual.npz"
    text = script(finding.lane, runs, options=options, threads=threads)
    write_atomic(folder / "repro.py", text)
    finding.files["script"] = "repro.py"
    finding.smallest = describe_file(folder / "minimized.tflite", folder)
    finding.smallest_max_abs_diff = smallest.max_abs_diff


def run_file(
    path: Path,
    lane: str,
    sets: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    *,
    options: dict[str, Any],
) -> list[list[float]]:
    """Run a file on a lane with given inputs, one inference after the other.

    Args:
        path: The `.tflite` file.
        lane: The lane.
        sets: For each inference the inputs and the expected outputs by tensor name.
        options: Of the lane.

    Returns:
        For each inference, the largest absolute difference of each output.

    Raises:
        AssayError: The lane cannot run the file.
    """
    inputs, outputs = specs(graph.read(path))
    arrays = [[given[spec.name] for spec in inputs] for given, _ in sets]
    trial = Trial("file", path, inputs, outputs, arrays, list(range(len(sets))), options=options)
    launcher = Launcher(lane)
    try:
        (result,) = launcher.run([trial])
        if result.failure is not None:
            raise AssayError(f"{path}: {lane}: {result.failure.value}: {result.error}")
        return [
            [
                difference_of(expected[spec.name], array)
                for spec, array in zip(outputs, result.outputs(i), strict=True)
            ]
            for i, (_, expected) in enumerate(sets)
        ]
    finally:
        launcher.close()


def describe_file(path: Path, folder: Path) -> File:
    """A file's name, size and digest."""
    data = path.read_bytes()
    return File(str(path.relative_to(folder)), len(data), hashlib.sha256(data).hexdigest())


def _archive(names: Sequence[str], arrays: Sequence[Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **dict(zip(names, arrays, strict=True)))
    return buffer.getvalue()


def script(lane: str, runs: tuple[str, ...], *, options: dict[str, Any], threads: int) -> str:
    """A short script that shows the fault with the runtime alone, where the lane is one of the runtime's."""
    if lane == "gpu_mldrift":
        return _COMPILED.format(runs=repr(runs))
    if lane == "cpu_xnnpack":
        return _INTERPRETER.format(threads=threads, runs=repr(runs))
    return _LANE.format(lane=lane, runs=repr(runs), options=options)


def issue_text(finding: Finding, script_text: str) -> str:
    """An issue ready to post: what, where, with which versions, how to see it, what is known."""
    nodes = ", ".join(f"{node.op} #{node.index}" for node in finding.nodes) or "the whole graph"
    lines = [f"# {_title(finding)}", "", finding.sentence, "", "## Environment", ""]
    lines += [f"- lane: {finding.lane} ({finding.on})", f"- date: {finding.date}"]
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in finding.environment.items() if value]
    lines += ["", "## What happens", ""]
    lines += [f"- model: {finding.model} (sha256 {finding.sha256}, {finding.size_bytes:,} bytes)"]
    lines += [f"- nodes: {nodes}"]
    if finding.failure:
        lines.append(f"- the whole model fails: {finding.failure}: {finding.error}")
    elif finding.worst_output is not None:
        lines.append(
            f"- the whole model: output `{finding.worst_output}` differs by {_number(finding.max_abs_diff)}"
        )
    if finding.smallest is not None:
        small = finding.smallest
        lines.append(
            f"- `minimized.tflite` ({small.size_bytes:,} bytes): {_number(finding.smallest_max_abs_diff)}"
        )
    lines.append(f"- compared with: {finding.reference}, fed with the same inputs")
    if finding.kind is not None:
        lines += ["", "## What is known", "", f"Kind: {finding.kind}: {MEANING[Kind(finding.kind)]}.", ""]
        lines += [f"- {sentence}" for sentence in (*finding.because, *finding.clues)]
    if finding.alike is not None and finding.alike["tried"]:
        faulty, tried = len(finding.alike["faulty"]), finding.alike["tried"]
        lines.append(f"- {faulty} of {tried} other places with the same ops show it too")
    if finding.fixes:
        lines += ["", "## Work-around", ""]
        lines += [f"- {fix.rewrite} ({fix.summary}): {_outcome(fix.right_on_lane)}" for fix in finding.fixes]
    lines += [
        "",
        "## To reproduce",
        "",
        "In a folder with `minimized.tflite`, `inputs.npz` and `expected.npz`:",
        "",
    ]
    lines += ["```python", script_text.rstrip(), "```"]
    if finding.evidence:
        lines += ["", "## Log", "", "```", *finding.evidence, "```"]
    return "\n".join([*lines, ""])


def _title(finding: Finding) -> str:
    ops = " -> ".join(node.op for node in finding.nodes[:4]) or "graph"
    what = "fails" if finding.symptom == "failed" else "gives wrong values"
    return f"{ops} {what} on {finding.lane}"


def _number(value: float | None) -> str:
    return "values that are not finite" if value is None else f"off by {value:.6g}"


def _outcome(right: bool) -> str:
    return "right on the lane" if right else "did not help"
