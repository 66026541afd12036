"""What `assay inspect` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from assay.graph.facts import ModelSummary
    from assay.graph.model import Model
    from assay.graph.parts import SignatureTensor, Tensor


def show(name: str, summary: ModelSummary, console: Console) -> None:
    """Print one model: a head, its signatures, subgraphs, ops and types."""
    console.print(Text(printable(name), style="bold"), soft_wrap=True)
    for line in _head(summary):
        console.print(Text("  " + line), soft_wrap=True)
    for table in (_signatures(summary), _subgraphs(summary), _ops(summary), _types(summary)):
        console.print()
        console.print(table)
    ranks = ", ".join(f"{count} of rank {rank}" for rank, count in summary.ranks.items())
    console.print(Text(f"\nRanks of tensors that depend on the inputs: {ranks or 'none'}"), soft_wrap=True)


def show_nodes(model: Model, console: Console) -> None:
    """Print every node of every subgraph, one a line, in the order of execution."""
    for subgraph in model.subgraphs:
        console.print()
        for line in str(subgraph).splitlines():
            console.print(Text(printable(line)), soft_wrap=True)


def printable(text: str) -> str:
    """Text of a file, safe for a terminal: what moves the cursor or sets colours is written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quantity(number: int | None, unit: str = "") -> str:
    """A number for people: 34.98 M; `?` for None."""
    if number is None:
        return "?"
    for size, prefix in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.2f} {prefix}{unit}"
    return f"{number} {unit}".strip()


def _head(summary: ModelSummary) -> Iterable[str]:
    yield f"{summary.file_bytes:,} bytes, of which {summary.constant_bytes:,} constants"
    main = summary.subgraphs[0]
    yield f"{quantity(summary.parameters)} parameters, {quantity(main.macs)} multiply-accumulates a run"
    if summary.description:
        yield f"description: {printable(summary.description)}"
    if summary.min_runtime_version:
        yield f"needs runtime {printable(summary.min_runtime_version)} or newer"
    if summary.metadata:
        entries = (f"{printable(name)} ({size:,} bytes)" for name, size in summary.metadata.items())
        yield f"metadata: {', '.join(entries)}"
    if summary.associated_files:
        yield f"associated files: {', '.join(map(printable, summary.associated_files))}"
    if summary.sparse_tensors:
        yield f"{summary.sparse_tensors} constants are stored sparse"
    if summary.external_bytes:
        yield f"{summary.external_bytes:,} bytes of constants lie outside of the flatbuffer"
    if summary.unknown:
        yield f"fields newer than this tool's schema: {', '.join(summary.unknown)}"


def _table(title: str, *columns: str) -> Table:
    """A plain table; columns that begin with `>` hold numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def _signatures(summary: ModelSummary) -> Table:
    table = _table("Signatures", "signature", "subgraph", "", "name", "dtype", "shape", "quantization")
    for signature in summary.signatures:
        key = "(none in the file)" if signature.key is None else printable(signature.key)
        sides = (("in", signature.inputs), ("out", signature.outputs))
        rows = [(side, entry) for side, entries in sides for entry in entries]
        for position, (side, entry) in enumerate(rows):
            first = (key, str(signature.subgraph)) if position == 0 else ("", "")
            table.add_row(*map(Text, (*first, side, *_entry(entry))))
        if not rows:
            table.add_row(Text(key), str(signature.subgraph))
    return table


def _entry(entry: SignatureTensor) -> tuple[str, str, str, str]:
    return printable(entry.name), entry.tensor.dtype, _shape(entry.tensor), _quantization(entry.tensor)


def _shape(tensor: Tensor) -> str:
    dims = tensor.shape_signature if tensor.is_dynamic else tensor.shape
    return "[" + ", ".join("?" if size < 0 else str(size) for size in dims or ()) + "]"


def _quantization(tensor: Tensor) -> str:
    quantization = tensor.quantization
    if quantization is None or not len(quantization.scales):
        return ""
    if quantization.per_channel:
        return f"{len(quantization.scales)} scales along axis {quantization.axis}"
    zero = quantization.zero_points[0] if len(quantization.zero_points) else 0
    return f"scale {quantization.scales[0]:.6g}, zero point {zero}"


def _subgraphs(summary: ModelSummary) -> Table:
    table = _table("Subgraphs", "subgraph", ">nodes", ">tensors", ">MACs", ">activations, at least", "")
    for facts in summary.subgraphs:
        notes = [f"MACs unknown for {', '.join(map(printable, facts.unknown_macs))}"] if facts.unknown_macs else []
        notes += ["dynamic shapes"] if facts.is_dynamic else []
        name = printable(facts.name)
        label = f"{facts.index} {name if len(name) <= 40 else name[:39] + '…'}".strip()
        activations = quantity(facts.activations_bytes, "B")
        macs = quantity(facts.macs)
        row = (label, str(facts.nodes), str(facts.tensors), macs, activations, "; ".join(notes))
        table.add_row(*map(Text, row))
    return table


def _ops(summary: ModelSummary) -> Table:
    table = _table("Ops", "op", ">version", ">nodes", ">MACs", ">parameters read")
    for op in summary.ops:
        name = printable(op.op) + (" (custom)" if op.is_custom else "")
        table.add_row(Text(name), str(op.version), str(op.count), quantity(op.macs), quantity(op.parameters))
    return table


def _types(summary: ModelSummary) -> Table:
    table = _table("Types", "dtype", ">constants", ">bytes", ">other tensors", ">bytes")
    for dtype in sorted({*summary.constants, *summary.activations}):
        row = [dtype]
        for count in (summary.constants.get(dtype), summary.activations.get(dtype)):
            row += ["", ""] if count is None else [str(count.tensors), quantity(count.bytes, "B")]
        table.add_row(*map(Text, row))
    return table
