"""What an accelerator refuses, what that costs in crossings, and what full delegation would gain at best."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from assay.diagnosis.finding import Delegation, RefusedOp, Region
from assay.diagnosis.launch import Launcher, Trial, TrialResult
from assay.diagnosis.pieces import Anatomy, Piece, Unit
from assay.diagnosis.session import Candidate, Session
from assay.errors import AssayError

MOST_PIECES = 96
"""Nodes that are run alone at most, to see which are refused."""

TIMED_RUNS = 10
REGIONS = 8


def examine(
    session: Session, whole: TrialResult, twin: Launcher | None, *, regions: bool = False
) -> Delegation | None:
    """Find out which nodes are refused and what that costs.

    Args:
        session: Of the diagnosis; its launcher runs the lane.
        whole: The whole model's run.
        twin: Launcher of the CPU lane, for times by region.
        regions: Measure time by region.

    Returns:
        None for a lane that reports no delegation at all.
    """
    facts = whole.facts
    anatomy = session.subject.anatomy
    total = len(anatomy.subgraph.nodes)
    timed = _regions(session, twin) if regions and twin is not None else ()
    if facts.full_delegation is None and facts.delegated_ops is None and not facts.refusals and not timed:
        return None
    result = Delegation(facts.delegated_ops, facts.total_ops or total, regions=timed)
    if not facts.refusals:
        return result
    everything = _refused_nodes(session, {refusal.op for refusal in facts.refusals})
    reasons: dict[str, list[str]] = {}
    for refusal in facts.refusals:
        reasons.setdefault(refusal.op, []).append(refusal.reason or "(no reason given)")
    now = crossings(anatomy, everything)
    entries = [
        RefusedOp(
            ops,
            tuple(f"{op}: {reason}" for op in dict.fromkeys(ops) for reason in reasons.get(op, [])),
            tuple(sorted(nodes)),
            now - crossings(anatomy, everything - nodes),
        )
        for ops, nodes in _chains(anatomy, everything).items()
    ]
    whole_ms, part_ms = _times(session, everything)
    gain = whole_ms - part_ms if whole_ms is not None and part_ms is not None else None
    return replace(
        result,
        crossings=now,
        partitions=partitions(anatomy, everything),
        refused=tuple(sorted(entries, key=lambda entry: -entry.crossings_saved)),
        whole_ms=whole_ms,
        delegated_part_ms=part_ms,
        best_gain_ms=None if gain is None else max(0.0, round(gain, 3)),
    )


def _refused_nodes(session: Session, ops: Collection[str]) -> set[int]:
    """Nodes of the refused ops that the lane refuses when they stand alone with what prepares their constants.

    Nodes that are alike in op, options, types and shapes are tried once for all.
    """
    anatomy = session.subject.anatomy
    nodes = anatomy.subgraph.nodes
    alike: dict[str, list[Unit]] = {}
    for unit in anatomy.units:
        if any(nodes[node].op in ops for node in unit.nodes):
            alike.setdefault(_likeness(anatomy, unit), []).append(unit)
    groups = list(alike.values())[:MOST_PIECES]
    steps = session.nodes("refused alone?", [units[0].nodes for units in groups])
    found: set[int] = set()
    for units, step in zip(groups, steps, strict=True):
        if step.delegated is not None and step.total is not None and step.delegated < step.total:
            every = [node for unit in units for node in unit.nodes]
            found.update(node for node in every if nodes[node].op in ops and _is_refused(anatomy, node))
    return found


def _likeness(anatomy: Anatomy, unit: Unit) -> str:
    graph = anatomy.subgraph
    told: list[object] = []
    for index in unit.nodes:
        node = graph.nodes[index]
        read = [graph.tensors[tensor] for tensor in node.inputs if tensor >= 0]
        told.append((node.op, node.options, [(t.dtype, t.shape, t.is_constant, bool(t.sparsity)) for t in read]))
    return repr(told)


def _chains(anatomy: Anatomy, refused: set[int]) -> dict[tuple[str, ...], set[int]]:
    """Refused nodes that hand values to each other, as chains; chains of the same ops together."""
    graph = anatomy.subgraph
    chain: dict[int, set[int]] = {}
    for node in sorted(refused):
        before = [anatomy.producers.get(tensor, -1) for tensor in graph.nodes[node].inputs if tensor >= 0]
        joined = {node}.union(*(chain[producer] for producer in before if producer in chain))
        for member in joined:
            chain[member] = joined
    found: dict[tuple[str, ...], set[int]] = {}
    for members in {id(each): each for each in chain.values()}.values():
        found.setdefault(tuple(graph.nodes[node].op for node in sorted(members)), set()).update(members)
    return found


def _is_refused(anatomy: Anatomy, node: int) -> bool:
    """Of nodes that only unpack weights, those count that stand on a sparse constant: float16 alone is taken."""
    if node not in anatomy.constant_nodes:
        return True
    graph = anatomy.subgraph
    source = graph.nodes[node].inputs[0]
    producer = anatomy.producers.get(source)
    return graph.tensors[source].sparsity is not None or producer in anatomy.constant_nodes


def crossings(anatomy: Anatomy, refused: Collection[int]) -> int:
    """Tensors made on one side and read on the other, the graph's inputs and outputs not counted."""
    count = 0
    for tensor, producer in anatomy.producers.items():
        readers = anatomy.consumers.get(tensor, [])
        count += any((producer in refused) != (reader in refused) for reader in readers)
    return count


def partitions(anatomy: Anatomy, refused: Collection[int]) -> int:
    """Runs of nodes on the same side, in the order of execution; constant nodes of float16 weights not counted."""
    sides = [any(node in refused for node in unit.nodes) for unit in anatomy.units]
    return 1 + sum(a != b for a, b in itertools.pairwise(sides)) if sides else 0


def _times(session: Session, refused: Collection[int]) -> tuple[float | None, float | None]:
    """Medians of the whole model and of the nodes that are taken, in milliseconds."""
    anatomy = session.subject.anatomy
    taken = [node.index for node in anatomy.subgraph.nodes if node.index not in refused]
    whole = session.subject.trial([0], options=session.options, runs=TIMED_RUNS)
    trials = [replace(whole, sets=session.subject.sets[:1])]
    try:
        trials.append(_timed(session, session.carve(taken)))
    except AssayError:
        return _median(session.launcher.run(trials)[0]), None
    results = session.launcher.run(trials)
    return _median(results[0]), _median(results[1])


def _timed(session: Session, piece: Piece) -> Trial:
    trial = session.trial(Candidate("timed", piece))
    return replace(trial, runs=TIMED_RUNS, sets=trial.sets[:1], sequence=[0])


def _median(result: TrialResult) -> float | None:
    if result.failure is not None or not result.samples_ms:
        return None
    return round(statistics.median(result.samples_ms), 3)


def _regions(session: Session, twin: Launcher) -> tuple[Region, ...]:
    """Time of each eighth of the graph on the lane and on the CPU; hand-over at the cuts is in it."""
    anatomy = session.subject.anatomy
    count = len(anatomy.units)
    edges = [count * i // REGIONS for i in range(REGIONS + 1)]
    parts = [anatomy.nodes_of(range(a, b)) for a, b in itertools.pairwise(edges) if b > a]
    trials = [_timed(session, session.carve(part)) for part in parts]
    lane, cpu = session.launcher.run(trials), twin.run([replace(trial, options={}) for trial in trials])
    return tuple(
        Region(
            part[0],
            part[-1],
            _frequent(anatomy, part),
            _median(on_lane),
            _median(on_cpu),
            on_lane.facts.delegated_ops if on_lane.facts.delegated_ops is not None else _all(on_lane, part),
            len(part),
        )
        for part, on_lane, on_cpu in zip(parts, lane, cpu, strict=True)
    )


def _all(result: TrialResult, part: tuple[int, ...]) -> int | None:
    return len(part) if result.facts.full_delegation else None


def _frequent(anatomy: Anatomy, part: Iterable[int]) -> tuple[str, ...]:
    computing = [node for node in part if node not in anatomy.constant_nodes]
    counts = Counter(anatomy.subgraph.nodes[node].op for node in computing)
    return tuple(op for op, _ in counts.most_common(3))
