"""A picture of a graph in one HTML file that opens offline: zoom, search, nodes coloured by what a lane does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from assay.graph.errors import GraphError
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Node, Tensor
from assay.report.graph_layout import Point, layout

#: Status -> what the legend says. The colours are in the template; each also has a mark of its own.
STATUSES: dict[str, str] = {
    "delegated": "taken by the accelerator",
    "wrong": "taken, and wrong or failing",
    "refused": "on the CPU",
    "unknown": "unknown",
}
#: More nodes than this make a page that no browser scrolls with pleasure.
MAX_NODES = 20_000

_CHARACTER = 7.3
_BOX_HEIGHT = 38


def render_graph(
    model: Model,
    subgraph: int = 0,
    *,
    status: Mapping[int, str] | None = None,
    reasons: Mapping[int, str] | None = None,
    title: str = "",
    note: str = "",
) -> str:
    """The picture of one subgraph, as one HTML page without any outside reference.

    Nodes that only prepare constants (DEQUANTIZE of weights) are left out unless the accelerator refuses them;
    the details of the node that reads them name them.

    Args:
        model: The model.
        subgraph: Index of the subgraph.
        status: Node index -> one of `STATUSES`; nodes that are not in it stay plain.
        reasons: Node index -> why, shown with the node's details.
        title: The page's title; the file's name by default.
        note: A line under the title: where the colours come from.

    Raises:
        GraphError: There is no such subgraph, it is too large to draw, or a status has another name.
    """
    if not 0 <= subgraph < len(model.subgraphs):
        raise GraphError(f"there is no subgraph {subgraph}; the model has {len(model.subgraphs)}")
    status = status or {}
    if wrong := set(status.values()) - set(STATUSES):
        raise GraphError(f"{sorted(wrong)[0]!r} is no status of a node", fix=f"Use one of {', '.join(STATUSES)}")
    graph = model.subgraphs[subgraph]
    if len(graph.nodes) > MAX_NODES:
        raise GraphError(f"subgraph {subgraph} has {len(graph.nodes):,} nodes; {MAX_NODES:,} can be drawn")
    picture = _Picture(graph, status)
    title = title or (model.path.name if model.path else "model")
    counts = Counter(status.get(node.index, "") for node in graph.nodes)
    template = Template((Path(__file__).parent / "graph.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        note=escape(note),
        about=escape(f"{len(graph.nodes)} nodes, subgraph {subgraph} {graph.name}".strip()),
        legend=_legend(counts),
        strip=_strip(graph, status),
        svg=picture.svg(),
        width=f"{picture.width:.0f}",
        height=f"{picture.height:.0f}",
        data=_script_json(_details(graph, status, reasons or {})),
    )


class _Picture:
    """Boxes and edges of one subgraph: its inputs, the nodes that depend on them, its outputs."""

    def __init__(self, graph: Subgraph, status: Mapping[int, str]):
        self._graph = graph
        self._status = status
        self._nodes = _drawn(graph, status)
        inputs = list(dict.fromkeys(graph.inputs))
        outputs = list(dict.fromkeys(graph.outputs))
        labels = [_port(graph.tensors[index]) for index in inputs]
        labels += [_labels(graph, node) for node in self._nodes]
        labels += [_port(graph.tensors[index]) for index in outputs]
        self._labels = labels
        self._first_node, self._first_output = len(inputs), len(inputs) + len(self._nodes)
        made = {tensor: place for place, tensor in enumerate(inputs)}
        edges: list[tuple[int, int]] = []
        for place, node in enumerate(self._nodes, start=self._first_node):
            edges += [(made[t], place) for t in dict.fromkeys(node.inputs) if t in made and made[t] < place]
            made |= dict.fromkeys((tensor for tensor in node.outputs if tensor >= 0), place)
        edges += [(made[t], self._first_output + i) for i, t in enumerate(outputs) if t in made]
        self._widths = [max(60.0, 18 + _CHARACTER * max(map(len, label))) for label in labels]
        self._edges = edges
        self._layout = layout(self._widths, edges)
        self.width, self.height = self._layout.width, self._layout.height

    def svg(self) -> str:
        parts = ['<g class="edges">']
        for (source, target), points in zip(self._edges, self._layout.paths, strict=True):
            parts.append(f'<path data-a="{source}" data-b="{target}" d="{_curve(points)}"/>')
        parts.append("</g>")
        for place, (x, y) in enumerate(self._layout.centers):
            parts.append(self._box(place, x, y))
        return "\n".join(parts)

    def _box(self, place: int, x: float, y: float) -> str:
        width = self._widths[place]
        head, tail = self._labels[place]
        if self._first_node <= place < self._first_output:
            index = self._nodes[place - self._first_node].index
            kind = f"node {self._status.get(index, '')}".strip()
            identity = f' data-n="{index}"'
            radius = 4
        else:
            kind, identity, radius = "port", "", _BOX_HEIGHT / 2
        return (
            f'<g class="{kind}" data-p="{place}"{identity} transform="translate({x:.1f},{y:.1f})">'
            f'<rect x="{-width / 2:.1f}" y="{-_BOX_HEIGHT / 2}" width="{width:.1f}" height="{_BOX_HEIGHT}" '
            f'rx="{radius}"/><text y="-3">{escape(head)}</text>'
            f'<text class="shape" y="12">{escape(tail)}</text></g>'
        )


def _drawn(graph: Subgraph, status: Mapping[int, str]) -> list[Node]:
    """All nodes but those that prepare constants, unless one is refused, or reads what a refused one prepared."""
    constant = graph.constant_nodes()
    shown: list[Node] = []
    prepared: set[int] = set()
    for node in graph.nodes:
        if node.index in constant:
            if status.get(node.index) != "refused" and prepared.isdisjoint(node.inputs):
                continue
            prepared.update(node.outputs)
        shown.append(node)
    return shown


def _curve(points: list[Point]) -> str:
    """A smooth line from the lower edge of a box to the upper edge of another."""
    start, end = points[0], points[-1]
    path = [(start[0], start[1] + _BOX_HEIGHT / 2), *points[1:-1], (end[0], end[1] - _BOX_HEIGHT / 2)]
    parts = [f"M{path[0][0]:.1f} {path[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(path):
        middle = (y0 + y1) / 2
        straight = abs(x0 - x1) < 0.5
        parts.append(
            f"V{y1:.1f}" if straight else f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        )
    return "".join(parts)


def _labels(graph: Subgraph, node: Node) -> tuple[str, str]:
    output = next((graph.tensors[index] for index in node.outputs if index >= 0), None)
    return _short(node.op, 32), "" if output is None else _type(output)


def _port(tensor: Tensor) -> tuple[str, str]:
    return _short(tensor.name or f"%{tensor.index}", 32), _type(tensor)


def _type(tensor: Tensor) -> str:
    dims = tensor.shape_signature if tensor.is_dynamic else tensor.shape
    text = "x".join("?" if size < 0 else str(size) for size in dims or ())
    return f"{tensor.dtype} {text or 'scalar'}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _legend(counts: Counter[str]) -> str:
    rows = [
        f'<button class="key {name}" data-status="{name}"><i></i>{count} {text}</button>'
        for name, text in STATUSES.items()
        if (count := counts[name])
    ]
    return "\n".join(rows)


def _strip(graph: Subgraph, status: Mapping[int, str]) -> str:
    """All nodes in the order of execution, one thin bar each."""
    count = max(1, len(graph.nodes))
    bars = [
        f'<rect class="{status.get(i, "")}" y="{i}" width="10" height="1.02" data-n="{i}"/>'
        for i in range(len(graph.nodes))
    ]
    return f'<svg class="strip" viewBox="0 0 10 {count}" preserveAspectRatio="none">{"".join(bars)}</svg>'


def _details(graph: Subgraph, status: Mapping[int, str], reasons: Mapping[int, str]) -> list[dict[str, Any]]:
    producers = graph.producers()
    constant = graph.constant_nodes()

    def tensor(index: int) -> str:
        if index < 0:
            return "(absent)"
        one = graph.tensors[index]
        made = ""
        if one.is_constant:
            made = " (constant)"
        elif (producer := producers.get(index, -1)) in constant:
            made = f" (constant, by {graph.nodes[producer].op} {producer})"
        return f"{_type(one)} {one.name}{made}"

    return [
        {
            "op": node.op,
            "version": node.version,
            "status": status.get(node.index, ""),
            "reason": reasons.get(node.index, ""),
            "options": {name: _option(value) for name, value in node.options.items()},
            "inputs": [tensor(index) for index in node.inputs],
            "outputs": [tensor(index) for index in node.outputs],
        }
        for node in graph.nodes
    ]


def _option(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _script_json(document: Any) -> str:
    """JSON that is safe inside of a script element, whatever names a file has."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
