"""The index of a catalog as Markdown and as `llms.txt`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from assay.report.text import code, escape, link, number

INDEX_MD = "INDEX.md"
LLMS_TXT = "llms.txt"

_MEANINGS = {
    "match": "it runs and its outputs match the reference",
    "runs": "it runs, and nobody compared its outputs",
    "partial": "the accelerator left a part to the CPU",
    "wrong": "it runs and its outputs are wrong",
    "failed": "it does not load or run",
}
_BEST_FIRST = tuple(_MEANINGS)


def renders() -> dict[str, Callable[[dict[str, Any]], str]]:
    """What is rendered from an index: name of the file -> what gives its text."""
    return {INDEX_MD: render_index, LLMS_TXT: render_llms}


def render_index(index: dict[str, Any]) -> str:
    """A Markdown table of all models.

    Args:
        index: The value of `index.json`.
    """
    lines = [
        "# Models",
        "",
        'A cell is one device and lane. A dash is "not measured", never "no".',
        "",
        "| Model | Task | License | Cells | Match | Runs | Partial | Wrong | Failed | Fastest (ms) | Newest run |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for model in index["models"]:
        cells = model["cells"]
        counts = [sum(cell["status"] == status for cell in cells) for status in _BEST_FIRST]
        columns = [
            _name(model),
            escape(model["task"] or "-"),
            escape(model["license"] or "-"),
            str(len(cells)),
            *(str(count) for count in counts),
            _fastest(cells),
            max((cell["date"] for cell in cells), default="-"),
        ]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def render_llms(index: dict[str, Any]) -> str:
    """The catalog for language models, in the form of llmstxt.org: a title, a summary, a list of links.

    Args:
        index: The value of `index.json`.
    """
    lines = [
        "# LiteRT model measurements",
        "",
        "> For each model file: does it load, run, stay on the accelerator, give the right numbers, and how fast, "
        "on each device and lane. Measured, with evidence and date. A missing value was not measured.",
        "",
        "All of it for programs: [index.json](index.json). Statuses: "
        + "; ".join(f"{status}: {meaning}" for status, meaning in _MEANINGS.items())
        + ".",
        "",
        "## Models",
        "",
    ]
    for model in index["models"]:
        cells = model["cells"]
        places = "; ".join(_place(cell) for cell in cells[:12]) or "nothing measured"
        more = f"; and {len(cells) - 12} more" if len(cells) > 12 else ""
        task = f"{escape(model['task'])}, " if model["task"] else ""
        lines.append(f"- {_name(model)}: {task}{places}{more}")
        if model["source_url"]:
            lines.append(f"  - source: {link(model['source_url'])}")
        lines += [f"  - pitfall: {escape(text, 300)}" for text in model["pitfalls"] or []]
    return "\n".join(lines) + "\n"


def _name(model: dict[str, Any]) -> str:
    if not model["card"]:
        return code(model["id"])
    folder = str(model["card"]).rpartition("/")[0]
    return f"[{escape(model['id'])}]({quote(folder)}/CARD.md)"


def _fastest(cells: list[dict[str, Any]]) -> str:
    timed = [c for c in cells if c["latency_p50_ms"] is not None and c["status"] not in ("wrong", "failed")]
    if not timed:
        return "-"
    best = min(timed, key=lambda cell: (cell["latency_p50_ms"], cell["device"], cell["accelerator"]))
    return f"{number(best['latency_p50_ms'])} {escape(best['accelerator'])}, {escape(best['device'])}"


def _place(cell: dict[str, Any]) -> str:
    what = cell["failure_class"] if cell["status"] == "failed" and cell["failure_class"] else cell["status"]
    speed = f" {number(cell['latency_p50_ms'])} ms" if cell["latency_p50_ms"] is not None else ""
    decode = f" {number(cell['decode_tokens_per_s'])} tokens/s" if cell["decode_tokens_per_s"] is not None else ""
    sign = f" {escape(cell['signature'])}" if cell["signature"] else ""
    place = f"{escape(cell['accelerator'])} on {escape(cell['device'])}{sign}"
    runtime = f"{escape(cell['runtime'])} {escape(cell['runtime_version'])}"
    return f"{place}: {escape(what)}{speed}{decode} ({runtime}, {cell['date']})"
