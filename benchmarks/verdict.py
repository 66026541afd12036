"""How often the verdict is right, beside fixed tolerances, on labelled cases from real models.

    python benchmarks/verdict.py [--part tuning|held-out|all] [--seeds 4] [--gpu] [--json FILE]

Each case is one lane that runs one model on three sets of seeded inputs, and its label is known by construction.

Correct lanes:
  fp32           CPU kernels without XNNPACK, beside XNNPACK
  fp16           weights and every activation rounded to float16, sums in float32
  fp16_gpu       a real GPU adapter that computes in fp16 (with --gpu; see scripts/get_lavapipe.sh)
  int8_weights   weights rounded to the nearest of 255 steps per channel
A lane whose exact arithmetic moves an output by more than 25 % of what it varies by, or loses numbers, is counted
apart as `unusable`: the precision is too little for the model, and the rule calls that wrong.
Faulty lanes: one inner tensor corrupted by a fault of assay.numerics.faults, in fp32 and in fp16 arithmetic
in turn. A fault's effect is `visible` if it moves an output by more than 1 % of what it varies by (root mean
square; of 1 for probabilities, of the integer range for quantized ones), flips more than 1 % of a mask, or loses
a number; faults without any effect are left out.

The tuning part is the models of one wheel, on which the constants of assay.numerics.excess were chosen; the
held-out part is models of three other wheels, of other makers, which were not looked at before.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import fetch

from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.graph import Model, read, save
from assay.lanes.job import Job
from assay.lanes.native import load_arrays, save_arrays
from assay.measure.judge import seeded_sets
from assay.numerics import faults
from assay.numerics.envelope import Arrays, Envelope, learn
from assay.numerics.inputs import resolve_shapes
from assay.numerics.noise import PRECISIONS, natural_scales, noisy
from assay.numerics.tasks import guess_task, task_metrics
from assay.numerics.verdict import judge
from wheels import fetch_wheels

KINDS = ("uniform", "normal", "structured")
THREADS = 2
VISIBLE = 0.01
UNUSABLE = 0.25
PLACES = (0.1, 0.35, 0.6, 0.8, 0.95)
"""Depths in the graph, as shares of its nodes, at which a fault is put; taken in turn."""


@dataclasses.dataclass
class Case:
    """One labelled lane and what each rule says of it."""

    part: str
    model: str
    seed: int
    kind: str
    truth: str
    effect: float
    verdict: str
    score: float
    tolerance_abs: str
    tolerance_rel: str


def held_out_models() -> list[Path]:
    """The `.tflite` files of the held-out wheels; some names come in two of them: the folder tells them apart."""
    return [path for paths in fetch_wheels().values() for path in paths]


def run(path: Path, sets: list[Arrays], *, plain: bool = False) -> list[Arrays]:
    """Outputs for each set on one loaded model, in this process: XNNPACK, or kernels without it."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else OpResolverType.BUILTIN
    try:
        interpreter = Interpreter(str(path), num_threads=THREADS, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
        inputs = [detail["index"] for detail in interpreter.get_input_details()]
        outputs = [detail["index"] for detail in interpreter.get_output_details()]
        results: list[Arrays] = []
        for arrays in sets:
            for index, array in zip(inputs, arrays, strict=True):
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            results.append([interpreter.get_tensor(index) for index in outputs])
    except (RuntimeError, ValueError) as error:
        raise AssayError(f"{path.name}: {str(error).splitlines()[0]}") from error
    return results


def copy_of(model: Model) -> Model:
    """A copy that can be changed; noise of no size leaves the graph as it is."""
    none = dataclasses.replace(PRECISIONS["fp32"], sums=0.0, stored=0.0)
    return noisy(model, none, 0)


def rounded(model: Model, weights: str) -> Model:
    """The model with weights and, for float16, every activation rounded, as a correct lane would."""
    if weights == "float16":
        return noisy(model, dataclasses.replace(PRECISIONS["fp16"], sums=0.0, stored=0.0), 0)
    return noisy(model, dataclasses.replace(PRECISIONS["int8_weights"], sums=0.0, stored=0.0, nearest=True), 0)


def with_override(model: Model, tensor: int) -> Model:
    """The model with an inner tensor as one more output, and read by its consumers from one more input."""
    changed = copy_of(model)
    graph = changed.subgraphs[0]
    given = dataclasses.replace(graph.tensors[tensor], index=len(graph.tensors), name="assay/override")
    graph.tensors.append(given)
    for node in graph.nodes:
        node.inputs = [given.index if index == tensor else index for index in node.inputs]
    outputs = [given.index if index == tensor else index for index in graph.outputs]
    graph.inputs, graph.outputs = [*graph.inputs, given.index], [*outputs, tensor]
    # Signatures would hide the additions: the plain interface is used.
    changed.signatures = []
    return changed


def places(model: Model) -> list[int]:
    """Activations that a computing node of the first subgraph makes and another one reads, by depth."""
    graph = model.subgraphs[0]
    readers = graph.consumers()
    skipped = {"DEQUANTIZE", "DENSIFY", "RESHAPE", "QUANTIZE"}
    found = [
        node.outputs[0]
        for node in graph.nodes
        if node.op not in skipped
        and node.outputs
        and graph.tensors[node.outputs[0]].dtype in ("float32", "int8", "uint8")
        and graph.tensors[node.outputs[0]].elements > 1
        and (readers.get(node.outputs[0]) or node.outputs[0] in graph.outputs)
    ]
    return [found[int(share * (len(found) - 1))] for share in PLACES] if found else []


def effect(reference: list[Arrays], outputs: list[Arrays], names: list[str], scales: list[float | None]) -> float:
    """How visible a difference is: the largest share of an output's variation or a mask; inf for lost numbers."""
    worst = 0.0
    for o, name in enumerate(names):
        right, given = ([row[o].astype(np.float64) for row in rows] for rows in (reference, outputs))
        varies = variation(right, reference[0][o].dtype, scales[o])
        for r, g in zip(right, given, strict=True):
            if not np.array_equal(np.isfinite(r), np.isfinite(g)):
                return math.inf
            worst = max(worst, math.sqrt(float(((g - r) ** 2).mean())) / varies)
            if guess_task(name, r.shape) == "mask":
                iou = task_metrics(r, g, "mask")["mask_iou"]
                inside = np.mean(r > 0.5) if r.max() <= 1 else np.mean(r > 0)
                if iou is not None and inside > 0.01:
                    worst = max(worst, 1.0 - iou)
    return worst


def variation(values: list[np.ndarray], dtype: np.dtype, scale: float | None) -> float:
    """What an output varies by; a probability by 1, a quantized value by its range, a constant by its size."""
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).max) - float(np.iinfo(dtype).min)
    middle = float(np.mean([v.mean() for v in values]))
    spread = max(math.sqrt(float(((v - middle) ** 2).mean())) for v in values)
    size = max(math.sqrt(float((v**2).mean())) for v in values)
    return max(spread, 0.1 * size, scale or 0.0, 1e-6)


def within(reference: list[Arrays], outputs: list[Arrays], atol: float, rtol: float) -> str:
    """A fixed tolerance's answer: |d| <= max(atol, rtol * |reference|) everywhere."""
    for right, given in zip(reference, outputs, strict=True):
        for r, g in zip(right, given, strict=True):
            wide = r.astype(np.float64)
            difference = np.abs(g.astype(np.float64) - wide)
            limit = np.maximum(atol, rtol * np.abs(wide))
            if not (difference <= limit).all():
                return "wrong"
    return "match"


class Subject:
    """One model with one seed's inputs: what it gives, and what is expected of other lanes."""

    def __init__(self, part: str, path: Path, seed: int, folder: Path) -> None:
        self.part, self.path, self.seed, self.folder = part, path, seed, folder
        self.name = path.stem if part == "tuning" else f"{path.parent.name.split('-')[0]}-{path.stem}"
        self.model = read(path)
        graph = self.model.subgraphs[0]
        if [entry.tensor.index for entry in self.model.signatures[0].outputs] != graph.outputs:
            # The signature orders outputs otherwise than the graph, by whose order everything here goes.
            self.model.signatures = []
            self.path = folder / path.name
            save(self.model, self.path)
            self.model = read(self.path)
        self.signature = self.model.signatures[0]
        sets = seeded_sets(self.model, self.signature, resolve_shapes(self.signature), seed, KINDS)
        self.set_names = [one.name for one in sets]
        self.inputs = [one.arrays for one in sets]
        self.names = [entry.name for entry in self.signature.outputs]
        self.reference = run(self.path, self.inputs)
        self.envelopes: dict[str, Envelope] = {}

    def envelope(self, precision: str) -> Envelope:
        """Learnt once, with noise that no case uses."""
        if precision not in self.envelopes:
            self.envelopes[precision] = learn(
                *(self.model, run, self.inputs, self.reference, self.folder),
                precision=precision,
                seed=1000 + self.seed,
            )
        return self.envelopes[precision]

    def case(self, kind: str, truth: str, outputs: list[Arrays], precision: str) -> Case:
        """What each rule says of a lane's outputs."""
        levels = [self.envelope(level) for level in dict.fromkeys(("fp32", precision))]
        scales = natural_scales(self.model, self.signature)
        verdict = judge(self.reference, outputs, self.names, levels, set_names=self.set_names, scales=scales)
        scores = [judgement.excess.score for judgement in verdict.outputs if judgement.excess is not None]
        return Case(
            part=self.part,
            model=self.name,
            seed=self.seed,
            kind=kind,
            truth=truth,
            effect=effect(self.reference, outputs, self.names, scales),
            verdict=verdict.label,
            score=max(scores, default=math.inf),
            tolerance_abs=within(self.reference, outputs, 1e-2, 0.0),
            tolerance_rel=within(self.reference, outputs, 1e-5, 1e-3),
        )

    def run_model(self, model: Model, inputs: list[Arrays]) -> list[Arrays]:
        """Save, run and forget a changed model."""
        path = self.folder / "changed.tflite"
        save(model, path)
        try:
            return run(path, inputs)
        finally:
            path.unlink()


def labelled(case: Case) -> Case:
    """A correct lane's case, set apart if its arithmetic is too little for the model."""
    return dataclasses.replace(case, truth="unusable") if case.effect > UNUSABLE else case


def correct_cases(subject: Subject, gpu: bool) -> Iterator[Case]:
    """Lanes that are right."""
    with contextlib.suppress(AssayError):  # Custom ops of this wheel exist in XNNPACK only.
        yield labelled(subject.case("fp32", "correct", run(subject.path, subject.inputs, plain=True), "fp32"))
    floats = subject.model.subgraphs[0].tensors[subject.model.subgraphs[0].outputs[0]].dtype == "float32"
    if not floats:
        return
    half = subject.run_model(rounded(subject.model, "float16"), subject.inputs)
    yield labelled(subject.case("fp16", "correct", half, "fp16"))
    eight = subject.run_model(rounded(subject.model, "int8"), subject.inputs)
    yield labelled(subject.case("int8_weights", "correct", eight, "int8_weights"))
    if gpu and subject.seed < 2:
        outputs = gpu_outputs(subject)
        if outputs is not None:
            yield labelled(subject.case("fp16_gpu", "correct", outputs, "fp16"))


def gpu_outputs(subject: Subject) -> list[Arrays] | None:
    """What the real GPU lane gives; None where it does not take the whole graph."""
    folder = subject.folder / f"gpu-{subject.seed}"
    folder.mkdir()
    files = []
    for number, arrays in enumerate(subject.inputs):
        files.append(folder / f"in{number}.npz")
        save_arrays(files[-1], arrays)
    job = Job.of(subject.path, subject.signature, folder, files, runs=0, threads=THREADS)
    outcome = LocalDevice().run_job("gpu_mldrift", job, time_limit_s=300.0)
    observation = outcome.observation
    if observation is None or observation.error or len(outcome.output_files()) != len(files):
        return None
    # A graph that is split between GPU and CPU is known to come out wrong on this runtime: not a correct lane.
    from assay.lanes.registry import find

    if not find("gpu_mldrift").read(outcome.log, observation).full_delegation:
        return None
    return [load_arrays(file) for file in outcome.output_files()]


def faulty_cases(subject: Subject, seeds: int) -> Iterator[Case]:
    """Lanes with one fault: kinds and sizes dealt out over the seeds, places and arithmetic in turn."""
    all_kinds = [(kind, size) for kind in faults.KINDS for size in faults.SIZES]
    # A digest, not hash(): the same cases on every run.
    start = int.from_bytes(hashlib.sha256(subject.name.encode()).digest()[:2])
    at = places(subject.model)
    if not at:
        return
    for number, (kind, size) in enumerate(all_kinds):
        if number % seeds != subject.seed:
            continue
        tensor = at[(start + number) % len(at)]
        half = (start + number // 2) % 2 == 1 and subject.model.subgraphs[0].tensors[tensor].dtype == "float32"
        try:
            outputs = faulty_outputs(subject, tensor, kind, size, half)
        except AssayError:
            continue  # A graph that cannot be fed in the middle.
        case = subject.case(f"{kind}/{size}", "faulty", outputs, "fp16" if half else "fp32")
        if case.effect > 0:
            yield dataclasses.replace(case, truth="visible" if case.effect > VISIBLE else "faint")


def faulty_outputs(subject: Subject, tensor: int, kind: str, size: str, half: bool) -> list[Arrays]:
    """The model's outputs with one inner tensor corrupted on every set."""
    changed = with_override(subject.model, tensor)
    if half:
        changed = rounded(changed, "float16")
    shape = subject.model.subgraphs[0].tensors[tensor]
    blank = np.zeros(shape.shape, shape.dtype)
    right = [outputs[-1] for outputs in subject.run_model(changed, [[*i, blank] for i in subject.inputs])]
    sets: list[Arrays] = []
    for number, arrays in enumerate(subject.inputs):
        bad = faults.inject(kind, right[number], size=size, seed=subject.seed, previous=right[number - 1])
        sets.append([*arrays, bad])
    return [outputs[:-1] for outputs in subject.run_model(changed, sets)]


def cases_of(part: str, path: Path, seeds: int, gpu: bool) -> Iterator[Case]:
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(part, path, seed, Path(folder))
            yield from correct_cases(subject, gpu)
            yield from faulty_cases(subject, seeds)


def tabulate(cases: list[Case], title: str) -> None:
    labels = ("match", "precision_noise", "wrong", "not_measured")
    print(f"\n{title}: {len(cases)} cases")
    header = "".join(f"{label:>16}" for label in labels)
    print(f"  {'truth':24}{'cases':>6}{header}   | wrong by 1e-2 | wrong by max(1e-5, 1e-3|r|)")
    rows = [
        (kind, lambda c, k=kind: c.kind == k and c.truth == "correct")
        for kind in ("fp32", "fp16", "fp16_gpu", "int8_weights")
    ]
    rows = [(f"correct {name}", test) for name, test in rows]
    rows.append(("all correct", lambda c: c.truth == "correct"))
    rows.append(("exact, unusable", lambda c: c.truth == "unusable"))
    rows.append(("fault, visible", lambda c: c.truth == "visible"))
    rows.append(("fault, faint", lambda c: c.truth == "faint"))
    for name, test in rows:
        chosen = [case for case in cases if test(case)]
        if not chosen:
            continue
        counts = Counter(case.verdict for case in chosen)
        spelled = "".join(f"{counts[label]:>16}" for label in labels)
        by_abs = sum(case.tolerance_abs == "wrong" for case in chosen)
        by_rel = sum(case.tolerance_rel == "wrong" for case in chosen)
        print(f"  {name:24}{len(chosen):>6}{spelled}   | {by_abs:>13} | {by_rel:>13}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("tuning", "held-out", "all"), default="all")
    parser.add_argument("--seeds", type=int, default=4, help="seeds of inputs for each model (default 4)")
    parser.add_argument("--only", default="", help="only models whose name has this in it")
    parser.add_argument("--gpu", action="store_true", help="also the real GPU lane; set VK_ICD_FILENAMES first")
    parser.add_argument("--json", type=Path, help="write every case to this file")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    models = [("tuning", path) for path in sorted(fetch().glob("*.tflite"))] + [
        ("held-out", path) for path in held_out_models()
    ]
    cases: list[Case] = []
    start = time.monotonic()
    for part, path in models:
        if arguments.part not in ("all", part) or arguments.only not in str(path):
            continue
        before = len(cases)
        try:
            cases.extend(cases_of(part, path, arguments.seeds, arguments.gpu))
            note = ""
        except AssayError as error:
            note = f"  left out: {error}"
        if arguments.json:
            arguments.json.write_text(json.dumps([dataclasses.asdict(case) for case in cases], indent=1))
        took = time.monotonic() - start
        print(f"{part:9} {path.stem:36} {len(cases) - before:4} cases  {took:6.0f} s{note}", flush=True)
    for part in ("tuning", "held-out"):
        chosen = [case for case in cases if case.part == part]
        if chosen:
            tabulate(chosen, part)
    if len({case.part for case in cases}) > 1:
        tabulate(cases, "all")
    missed = [case for case in cases if case.truth == "visible" and case.verdict != "wrong"]
    false = [case for case in cases if case.truth == "correct" and case.verdict == "wrong"]
    for title, chosen in (("visible faults not called wrong", missed), ("correct lanes called wrong", false)):
        print(f"\n{title}: {len(chosen)}")
        for case in chosen:
            print(
                f"  {case.part} {case.model} seed {case.seed} {case.kind}: {case.verdict}, "
                f"effect {case.effect:.3g}, score {case.score:.2f}"
            )


if __name__ == "__main__":
    main()
