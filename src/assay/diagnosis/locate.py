"""Which nodes show the fault: alone, in their context, and where else in the graph the same nodes show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.diagnosis.journal import Step
from assay.diagnosis.pieces import Anatomy
from assay.diagnosis.search import Places, find_region, minimize
from assay.diagnosis.session import Session

Shows = Callable[[Step], bool]
"""Whether what became of a piece is the fault that is looked for."""

MOST_ALIKE = 12
"""So many other places with the same ops are tried."""


@dataclass(frozen=True)
class Located:
    """The smallest part of the graph that shows the fault.

    Attributes:
        nodes: Its nodes, in execution order; none of them can be left out.
        places: The units that they belong to.
        isolated: True if one run-time node alone shows the fault, whatever prepares its constants.
        step: The run that showed it.
        alone: For a fault in context: what each of its nodes did alone.
    """

    nodes: tuple[int, ...]
    places: Places
    isolated: bool
    step: Step
    alone: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Alike:
    """Other places of the graph with the same ops, run alone.

    Attributes:
        ops: The ops.
        tried: How many were run.
        of: How many there are.
        faulty: Node tuples of those that show the fault.
    """

    ops: tuple[str, ...]
    tried: int
    of: int
    faulty: tuple[tuple[int, ...], ...]


def locate(session: Session, shows: Shows) -> Located | None:
    """Find the first nodes that show the fault; the whole graph is known to show it.

    Returns:
        None if the whole graph, run as a piece of its own, does not show it.
    """
    anatomy = session.subject.anatomy

    def places(candidates: Sequence[Places]) -> list[bool]:
        steps = session.nodes("search", [anatomy.nodes_of(candidate) for candidate in candidates])
        return [shows(step) for step in steps]

    def nodes(candidates: Sequence[Places]) -> list[bool]:
        return [shows(step) for step in session.nodes("leave out", candidates)]

    region = find_region(len(anatomy.units), places)
    # Known from the search where the region is a part; a search that found nothing smaller has not run the whole.
    least = minimize(anatomy.nodes_of(region.places), nodes)
    (step,) = session.nodes("found", [least])
    if not shows(step):
        return None
    computing = [node for node in least if node not in anatomy.constant_nodes]
    isolated = len(computing) <= 1
    alone = [] if len(least) == 1 else session.nodes("alone", [(node,) for node in least])
    return Located(least, region.places, isolated, step, tuple(alone))


def alike(session: Session, located: Located, shows: Shows) -> Alike:
    """Run other places with the same ops alone: is it the op, or this one of its kind?"""
    anatomy = session.subject.anatomy
    ops = tuple(anatomy.subgraph.nodes[node].op for node in located.nodes)
    others = [nodes for nodes in _occurrences(anatomy, located) if nodes != located.nodes]
    tried = sorted(others, key=lambda nodes: _weight(session, nodes))[:MOST_ALIKE]
    steps = session.nodes("the same ops elsewhere", tried) if tried else []
    faulty = tuple(step.nodes for step in steps if shows(step))
    return Alike(ops, len(tried), len(others), faulty)


def _occurrences(anatomy: Anatomy, located: Located) -> list[tuple[int, ...]]:
    """Places where the same run-time ops follow each other, with preparations of the same ops."""
    nodes = anatomy.subgraph.nodes
    if not located.isolated:
        offsets = [place - located.places[0] for place in located.places]
        wanted = [nodes[anatomy.units[place].node].op for place in located.places]
        found: list[tuple[int, ...]] = []
        for start in range(len(anatomy.units) - offsets[-1]):
            units = [anatomy.units[start + offset] for offset in offsets]
            if [nodes[unit.node].op for unit in units] == wanted:
                found.append(tuple(unit.node for unit in units))
        return found
    if not set(located.nodes) - anatomy.constant_nodes:
        op = nodes[located.nodes[0]].op
        return [(node.index,) for node in nodes if node.op == op] if len(located.nodes) == 1 else []
    center = next(node for node in located.nodes if node not in anatomy.constant_nodes)
    prepared = Counter(nodes[node].op for node in located.nodes if node != center)
    found = []
    for unit in anatomy.units:
        if nodes[unit.node].op != nodes[center].op:
            continue
        kept = [node for node in unit.prepared_by if nodes[node].op in prepared]
        if prepared <= Counter(nodes[node].op for node in kept):
            found.append(tuple(sorted({*kept, unit.node})))
    return found


def _weight(session: Session, nodes: tuple[int, ...]) -> int:
    """Bytes of a place's constants: small ones are tried first, since their file is what is handed over."""
    graph = session.subject.anatomy.subgraph
    read = {tensor for node in nodes for tensor in graph.nodes[node].inputs if tensor >= 0}
    return sum(graph.tensors[tensor].nbytes or 0 for tensor in read)
