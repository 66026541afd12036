"""How often is the right place named? Faults injected into real models at known places, then diagnosed.

Usage: python benchmarks/diagnose.py [--per-model N] [--seed S] [--size small|large] [--only NAME] [--no-sam]
       [--json FILE]

The test lane `assay.lanes.fault:FaultLane` corrupts the result of one node, either always, or only where certain
neighbours are in the same file, as a fusion fault would. A case counts as named exactly if the nodes that the
diagnosis names are the node and those neighbours, no more and no fewer. Places are drawn by seed over the
run-time nodes; a place where the fault does not move any output of the model is drawn again, since there is
nothing to diagnose. The SAM 2.1 mask decoder (half size, random weights) is converted first, where the convert
extra is there.

Targets: 95 % named exactly, at most 2*log2(nodes)+10 process launches, minimized files under 10 KB.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import DEFAULT_CACHE, fetch

from assay import graph
from assay.diagnosis.engine import Settings, diagnose
from assay.diagnosis.pieces import Anatomy
from assay.errors import AssayError

LANE = "assay.lanes.fault:FaultLane"
KINDS = ("scaled", "offset", "channel_off", "shifted", "rows_swapped", "zeroed", "transposed", "stale")
MODES = ("alone", "alone", "with the node before", "with the node after", "with both")
SMALLEST_FILE_AIM = 10_000


@dataclass
class Case:
    """One injected fault and what the diagnosis made of it."""

    model: str
    nodes: int
    op: str
    fault: str
    mode: str
    truth: list[int]
    named: list[int]
    launches: int
    launch_aim: float
    file_bytes: int | None
    kind: str | None
    seconds: float

    @property
    def exact(self) -> bool:
        """True if the nodes named are those that the fault needs, no more and no fewer."""
        return sorted(self.truth) == sorted(self.named)


def sam_decoder() -> Path | None:
    """The SAM 2.1 mask decoder with random weights, converted once and kept in the cache."""
    path = DEFAULT_CACHE / "sam2_mask_decoder_v2_half.tflite"
    if path.is_file():
        return path
    command = [str(Path(sys.executable).parent / "assay"), "convert", "sam2.1-hiera-tiny-mask-decoder"]
    command += ["--variant", "v2-half", "--random-weights", "0", "--out", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not path.is_file():
        print(f"SAM 2.1 decoder left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return path


def neighbours(anatomy: Anatomy, place: int, mode: str) -> list[int] | None:
    """The run-time nodes that must be there too; None if the place has none."""
    computing = {unit.node for unit in anatomy.units}
    node = anatomy.subgraph.nodes[anatomy.units[place].node]
    before = [anatomy.producers.get(tensor) for tensor in node.inputs if tensor >= 0]
    before = [each for each in before if each in computing]
    after = [each for tensor in node.outputs for each in anatomy.consumers.get(tensor, []) if each in computing]
    needed = {"alone": [], "with the node before": before[:1], "with the node after": after[:1]}
    chosen = needed.get(mode, [*before[:1], *after[:1]])
    wanted = {"alone": 0, "with both": 2}.get(mode, 1)
    return [each for each in chosen if each is not None] if len(chosen) == wanted else None


def draw(anatomy: Anatomy, rng: random.Random, mode: str) -> tuple[int, list[int]]:
    """A place and its context."""
    while True:
        place = rng.randrange(len(anatomy.units))
        context = neighbours(anatomy, place, mode)
        if context is not None:
            return anatomy.units[place].node, context


def fault_options(
    anatomy: Anatomy, node: int, context: list[int], kind: str, size: str, seed: int
) -> dict[str, object]:
    tensors, nodes = anatomy.subgraph.tensors, anatomy.subgraph.nodes

    def name(index: int) -> str:
        return tensors[nodes[index].outputs[0]].name

    fault = {"op": nodes[node].op, "output": name(node), "context": [name(each) for each in context]}
    return {"faults": [{**fault, "kind": kind, "size": size, "seed": seed}]}


def run_case(
    path: Path, anatomy: Anatomy, rng: random.Random, mode: str, kind: str, size: str, folder: Path
) -> Case | None:
    """One case; None where the fault does not show at the model's outputs."""
    node, context = draw(anatomy, rng, mode)
    options = fault_options(anatomy, node, context, kind, size, rng.randrange(1000))
    begun = time.monotonic()
    finding = diagnose(path, LANE, Settings(options=options, out=folder, resume=False))
    if finding.symptom == "none":
        return None
    nodes = len(anatomy.subgraph.nodes)
    return Case(
        model=path.stem,
        nodes=nodes,
        op=anatomy.subgraph.nodes[node].op,
        fault=kind,
        mode=mode,
        truth=sorted([node, *context]),
        named=[each.index for each in finding.nodes],
        launches=finding.cost.launches if finding.cost else 0,
        launch_aim=2 * math.log2(nodes) + 10,
        file_bytes=finding.smallest.size_bytes if finding.smallest else None,
        kind=finding.kind,
        seconds=round(time.monotonic() - begun, 1),
    )


def usable(path: Path) -> Anatomy | None:
    """The anatomy of a model whose outputs some reference gives; None for one that nothing here runs."""
    model = graph.read(path)
    anatomy = Anatomy(model.subgraphs[model.signatures[0].subgraph])
    names = [tensor.name for tensor in anatomy.subgraph.tensors]
    return anatomy if len(set(names)) == len(names) and len(anatomy.units) > 3 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-model", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("small", "large"), default="large", help="how wrong the values are")
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--no-sam", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    paths = sorted(fetch().glob("*.tflite"))
    if not arguments.no_sam and (decoder := sam_decoder()):
        paths.append(decoder)
    cases: list[Case] = []
    invisible = 0
    for path in paths:
        if arguments.only and arguments.only not in path.stem:
            continue
        anatomy = usable(path)
        if anatomy is None:
            print(f"{path.stem}: left out, tensors do not have names of their own", file=sys.stderr)
            continue
        rng = random.Random(f"{path.stem} {arguments.seed}")
        done = 0
        while done < arguments.per_model:
            mode, kind = MODES[done % len(MODES)], KINDS[(len(cases) + invisible) % len(KINDS)]
            try:
                with tempfile.TemporaryDirectory() as folder:
                    case = run_case(path, anatomy, rng, mode, kind, arguments.size, Path(folder))
            except AssayError as error:
                print(f"{path.stem}: left out, {error.message}", file=sys.stderr)
                break
            if case is None:
                invisible += 1
                continue
            done += 1
            cases.append(case)
            print_case(case)
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(each) for each in cases], indent=1))
    if cases:
        summary(cases, invisible)


def print_case(case: Case) -> None:
    mark = "exact" if case.exact else "WRONG"
    size = "no file" if case.file_bytes is None else f"{case.file_bytes} B"
    print(
        f"{mark} {case.model:36.36} {case.op:18.18} {case.fault:13} {case.mode:22} truth {case.truth} "
        f"named {case.named} launches {case.launches} (aim {case.launch_aim:.0f}) {size} {case.seconds:.0f} s",
        flush=True,
    )


def summary(cases: list[Case], invisible: int) -> None:
    exact = sum(case.exact for case in cases)
    models = len({case.model for case in cases})
    print(f"\nplaces: {len(cases)} in {models} models; {invisible} drawn again (no effect)")
    print(f"named exactly: {exact} of {len(cases)} ({exact / len(cases):.1%}; aim 95 %)")
    for mode in dict.fromkeys(MODES):
        these = [case for case in cases if case.mode == mode]
        if these:
            print(f"  {mode}: {sum(case.exact for case in these)} of {len(these)}")
    over = sum(case.launches > case.launch_aim for case in cases)
    launches = sorted(case.launches for case in cases)
    print(f"launches: median {launches[len(launches) // 2]}, most {launches[-1]}; over 2*log2(nodes)+10: {over}")
    sizes = sorted(case.file_bytes for case in cases if case.file_bytes is not None)
    small = sum(size < SMALLEST_FILE_AIM for size in sizes)
    print(f"minimized files under 10 KB: {small} of {len(cases)}, none at all for {len(cases) - len(sizes)}")
    if sizes:
        print(f"  median {sizes[len(sizes) // 2]} B, largest {sizes[-1]} B")


if __name__ == "__main__":
    main()
