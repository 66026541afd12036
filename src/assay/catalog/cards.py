"""Cards from records: built, and checked against what they were built from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.errors import AssayError
from assay.records import canonical, rows
from assay.records import meta as metas
from assay.records.benchmark import BenchmarkFile, BenchmarkRecord
from assay.records.card import Artifact, Card, Conversion, ModelInfo, Pitfall, PitfallFile
from assay.records.document import LATEST, WRITTEN, DocumentError, check, read, read_bytes, schema_version
from assay.records.files import write_atomic
from assay.records.layout import BENCHMARKS, CARDS, DEVICE_RUNS, SWEEPS
from assay.records.privacy import NOWHERE, scrub_command, scrub_values
from assay.records.record import (
    BrowserEntry,
    DeviceEntry,
    DeviceRunFile,
    PlainDeviceRunFile,
    PlainSweepFile,
)
from assay.records.runs import BrowserRun, DeviceRun
from assay.records.store import locked, read_browser_sweep, read_device_runs, safe_part

CARD_JSON = "card.json"
CARD_MD = "CARD.md"
PITFALLS = "pitfalls.json"

Orphans = Literal["refuse", "keep", "drop"]
"""What a rebuild does with a cell that the card has today and no record gives: refuse to build, keep the cell
as it is, or drop it."""


Render = Callable[[Card], str]
"""Gives the text of `CARD.md`. What a catalog holds is known here, how it looks is not: `assay.build_card` and
`assay.check_card` pass the look of `assay.report.card`."""


@dataclass
class Built:
    """A card that was built and not yet written.

    Attributes:
        card: The card.
        missing: Cells that the present card has and no record gives, in words.
        problems: Records that could not be read, one sentence each.
    """

    card: Card
    missing: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def build_card(
    root: Path,
    model_id: str,
    *,
    render: Render,
    meta: Path | None = None,
    orphans: Orphans = "refuse",
    version: str | None = None,
) -> Path:
    """Build a model's card from its records; write `card.json` and `CARD.md`.

    Each cell (device, accelerator, signature, context length, file) takes its newest measured run by date. What
    people say of the model comes from `meta.yaml` in the card's folder, and survives.

    Args:
        root: The output folder.
        model_id: The model.
        render: Gives the text of `CARD.md`.
        meta: A `meta.yaml` that takes the place of the one in the card's folder.
        orphans: What to do with a cell that the card has today and no record gives.
        version: Schema version to write, `1.2` or `1.3`; by default that of the present card, or 1.2.

    Returns:
        Path of `card.json`.

    Raises:
        AssayError: There is no record of the model; the rebuild would drop a cell and `orphans` is `refuse`;
            the present card or `meta` is broken.
    """
    folder = card_folder(root, model_id)
    meta_text = read_bytes(meta) if meta is not None else None
    with locked(root):
        built = compose(root, model_id, meta=meta, orphans=orphans, version=version)
        if built.missing and orphans == "refuse":
            raise AssayError(
                f"{folder / CARD_JSON}: no record gives {len(built.missing)} of its cells any more: "
                + "; ".join(built.missing[:3])
                + ("; ..." if len(built.missing) > 3 else "")
                + "".join(f". {problem}" for problem in built.problems[:3]),
                fix=f"assay card build {model_id} --keep-cells, or --drop-cells",
            )
        if meta_text is not None:
            write_atomic(folder / metas.FILE, meta_text)
        write_atomic(folder / CARD_JSON, built.card.to_json())
        write_atomic(folder / CARD_MD, render(built.card))
    return folder / CARD_JSON


def card_folder(root: Path, model_id: str) -> Path:
    """The folder of a model's card.

    Raises:
        AssayError: The name cannot be a folder's.
    """
    return root / CARDS / safe_part(model_id)


def read_card(path: Path) -> Card:
    """Read a card of schema 1.0 or later.

    Raises:
        DocumentError: It is missing, not JSON, or not a card.
    """
    return read(path, Card)


def model_ids(root: Path) -> list[str]:
    """Every model that has a record or a card under `root`, sorted. Broken records are passed over."""
    names = {path.parent.name for path in (root / CARDS).glob(f"*/{CARD_JSON}")}
    for path in itertools.chain((root / DEVICE_RUNS).glob("*/*/*.json"), (root / SWEEPS).glob("*/*/*.json")):
        try:
            is_device = path.is_relative_to(root / DEVICE_RUNS)
            names.add((read_device_runs(path) if is_device else read_browser_sweep(path)).model_id)
        except DocumentError:
            continue
    return sorted(names)


def compose(
    root: Path,
    model_id: str,
    *,
    meta: Path | None = None,
    orphans: Orphans = "keep",
    version: str | None = None,
) -> Built:
    """Build a card and write nothing. Arguments and errors are those of `build_card`, but for the refusal."""
    folder = card_folder(root, model_id)
    present = read_card(folder / CARD_JSON) if (folder / CARD_JSON).exists() else None
    if present is not None and schema_version(present.schema_version) > LATEST:
        # What this version does not know of the card would be lost.
        raise AssayError(
            f"{folder / CARD_JSON} is of schema {present.schema_version}, newer than this version of Assay",
            fix="update Assay",
        )
    version = version or (present.schema_version if present else WRITTEN)
    if schema_version(version) not in ((1, 2), (1, 3)):
        version = WRITTEN
    meta_path = meta or folder / metas.FILE
    said = metas.read_meta(meta_path) if meta is not None or meta_path.exists() else None
    runs, problems = _model_runs(root, model_id)
    found = _model_benchmarks(root, model_id, problems)
    if not runs and not found and present is None:
        text = "; ".join(problems)
        raise AssayError(
            f"no record of {model_id} under {root}" + (f" can be read: {text}" if text else ""),
            fix="" if text else "assay run MODEL writes one",
        )
    value = _head(model_id, version, said, present)
    value |= _benchmarks(found, present)
    value["artifacts"] = _artifacts(runs, said, present)
    missing = _cells(value, runs, present, root, orphans, version)
    if "browser" in value:
        value["browser"]["demo_url"] = said.demo_url if said else _demo_url(present)
    value |= _pitfalls(folder, said, present, version)
    return Built(check(value, Card, folder / CARD_JSON), missing, problems)


# --- reading the records of one model ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    row: rows.RunRow
    run: DeviceRun | BrowserRun
    entry: DeviceEntry | BrowserEntry | None


def _model_runs(root: Path, model_id: str) -> tuple[list[_Run], list[str]]:
    """All runs of a model, and the records that cannot be read."""
    runs: list[_Run] = []
    problems: list[str] = []
    name = safe_part(model_id)
    for path in sorted((root / DEVICE_RUNS).glob(f"*/*/{_literal(name)}*.json")):
        runs += _runs_of(path, root, model_id, problems, device=True)
    for path in sorted((root / SWEEPS).glob(f"*/*/{_literal(name)}*.json")):
        runs += _runs_of(path, root, model_id, problems, device=False)
    return runs, problems


def _runs_of(path: Path, root: Path, model_id: str, problems: list[str], *, device: bool) -> Iterable[_Run]:
    record = path.relative_to(root).as_posix()
    try:
        document = read_device_runs(path) if device else read_browser_sweep(path)
    except DocumentError as error:
        problems.append(str(error))
        return
    # `a__b.json` may be of the model `a` on the device `b`, or of the model `a__b`: the content decides.
    if document.model_id != model_id:
        return
    if isinstance(document, DeviceRunFile | PlainDeviceRunFile):
        all_rows = rows.device_rows(document, record)
    else:
        all_rows = rows.browser_rows(document, record)
    if isinstance(document, PlainDeviceRunFile | PlainSweepFile):
        for row, run in zip(all_rows, document.results, strict=True):
            yield _Run(row, run, None)
    else:
        for row, entry in zip(all_rows, document.entries, strict=True):
            yield _Run(row, entry.run, entry)


def _model_benchmarks(root: Path, model_id: str, problems: list[str]) -> list[BenchmarkRecord]:
    records: list[BenchmarkRecord] = []
    for path in sorted((root / BENCHMARKS).glob("**/*.json")):
        try:
            document = read(path, BenchmarkFile)
        except DocumentError as error:
            problems.append(str(error))
            continue
        if document.model_id == model_id:
            records += document.results
    return records


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


# --- the parts of a card -----------------------------------------------------------------------------------


def _head(model_id: str, version: str, said: metas.Meta | None, present: Card | None) -> dict[str, Any]:
    """What people say of the model: from `meta.yaml`, or from the present card where there is none."""
    nobody = ModelInfo(family=None, id=model_id, license=None, source_url=None, task=None)
    unknown = Conversion(command=None, quantization=None, tool=None, tool_version=None).to_value()
    if said is not None:
        model = said.info(model_id)
        conversion = unknown | (said.conversion.to_value() if said.conversion else {})
        delegation = said.delegation
    else:
        model = present.model if present else nobody
        conversion = present.conversion.to_value() if present else unknown
        delegation = present.delegation if present else None
    return {
        "schema_version": version,
        "model": model.to_value(),
        "conversion": scrub_values(conversion, NOWHERE),
        "delegation": delegation.to_value() if delegation else None,
    }


def _benchmarks(found: list[BenchmarkRecord], present: Card | None) -> dict[str, Any]:
    if not found and present is not None:
        both = [*present.benchmarks], [*present.cross_runtime]
    else:
        both = [r for r in found if not r.runtime], [r for r in found if r.runtime]
    own, other = ([record.to_value() for record in records] for records in both)
    return {"benchmarks": own, "cross_runtime": other}


def _artifacts(runs: list[_Run], said: metas.Meta | None, present: Card | None) -> list[dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    if said is not None and said.artifact is not None:
        known[said.artifact.sha256] = _artifact(said.artifact.file, said.artifact.sha256, said.artifact.size_mb)
    for run in sorted(runs, key=lambda run: run.row.age()):
        row, entry = run.row, run.entry
        if entry is not None:
            artifact = entry.artifact
            known[artifact.sha256] = _artifact(artifact.file, artifact.sha256, artifact.size_mb)
        elif row.file_sha256 is not None and row.file_sha256 not in known:
            known[row.file_sha256] = _artifact(row.file_name or row.model_id, row.file_sha256, None)
    if not known and present is not None:
        return [artifact.to_value() for artifact in present.artifacts]
    return sorted(known.values(), key=lambda value: (value["file"], value["sha256"]))


def _artifact(file: str, sha256: str, size_mb: float | None) -> dict[str, Any]:
    return Artifact(file=file, sha256=sha256, size_mb=size_mb).to_value()


def _cells(
    value: dict[str, Any], runs: list[_Run], present: Card | None, root: Path, orphans: Orphans, version: str
) -> list[str]:
    """Put the newest run of each cell into the card; return the cells that the present card alone has."""
    by_row = {(run.row.record, run.row.position): run for run in runs}
    chosen = [by_row[row.record, row.position] for row in rows.newest(run.row for run in runs)]
    device = [(run.row, _device_cell(run, version)) for run in chosen if run.row.kind == "device"]
    browser = [(run.row, _browser_cell(run, version)) for run in chosen if run.row.kind == "browser"]
    given = {run.row.cell() for run in chosen}
    lost: list[tuple[rows.RunRow, dict[str, Any]]] = []
    for row, cell in _present_cells(present):
        if row.cell() not in given:
            lost.append((row, cell))
    if orphans == "keep":
        # A cell whose record is here and does not give it was put in by hand; only a record that is elsewhere
        # can be the source of a cell worth keeping.
        kept = [(row, cell) for row, cell in lost if not (root / row.record).is_file()]
        device += [pair for pair in kept if pair[0].kind == "device"]
        browser += [pair for pair in kept if pair[0].kind == "browser"]
    if device:
        value["device"] = {"records": [cell for _, cell in sorted(device, key=_place)]}
    if browser:
        newest = max(browser, key=lambda pair: pair[0].age())[0]
        backends = [cell for _, cell in sorted(browser, key=_place)]
        value["browser"] = {"backends": backends, "sweep_source": newest.record}
    return [describe_cell(row) for row, _ in lost]


def _demo_url(present: Card | None) -> str | None:
    return present.browser.demo_url if present and present.browser else None


def _present_cells(present: Card | None) -> list[tuple[rows.RunRow, dict[str, Any]]]:
    if present is None:
        return []
    device = present.device.records if present.device else []
    browser = present.browser.backends if present.browser else []
    values = [cell.to_value() for cell in (*device, *browser)]
    return list(zip(rows.card_rows(present), values, strict=True))


def describe_cell(row: rows.RunRow) -> str:
    """A cell in words: lane, device, and what else tells it from others."""
    parts = [f"{row.accelerator} on {row.device}"]
    parts += [f"in {row.browser}"] if row.browser else []
    parts += [f"signature {row.signature}"] if row.signature else []
    parts += [f"context {row.context_length}"] if row.context_length else []
    parts += [f"prompt {row.prefill_tokens:g}"] if row.prefill_tokens else []
    parts += [f"file {row.file_sha256[:12]}"] if row.file_sha256 else []
    return " ".join(parts)


def _place(pair: tuple[rows.RunRow, Any]) -> tuple[Any, ...]:
    row = pair[0]
    first, second = (row.device, row.accelerator) if row.kind == "device" else (row.accelerator, row.device)
    rest = (row.browser or "", row.signature or "", row.context_length or 0, row.prefill_tokens or 0)
    return (first, second, *rest, row.file_sha256 or "")


def _device_cell(run: _Run, version: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"device": run.row.device, "run": _run_value(run), "source": run.row.record}
    if run.entry is not None and version != WRITTEN:
        cell |= _additions(run.entry, ("artifact", "command", "host", "refused_ops", "started_at", "verdict"))
    return cell


def _browser_cell(run: _Run, version: str) -> dict[str, Any]:
    value = {key: item for key, item in _run_value(run).items() if item is not None or key in _BROWSER_FIELDS}
    # The form has one name for evidence on devices and another in sweeps; a card has one.
    lines = value.pop("delegation_evidence", None)
    if lines and not value.get("evidence"):
        value["evidence"] = lines
    if version == WRITTEN:
        for name in ("artifact", "refused_ops", "source", "verdict"):
            value.pop(name, None)
    else:
        value["source"] = run.row.record
        if run.entry is not None:
            value |= _additions(run.entry, ("artifact", "refused_ops", "verdict"))
    return value


_TELLING = ("delegation_evidence", "error", "evidence")

_BROWSER_FIELDS = frozenset(name for name, field in BrowserRun.model_fields.items() if field.is_required())


def _run_value(run: _Run) -> dict[str, Any]:
    """The run, word for word but for paths, with what its cell is known by: a card must stand alone."""
    value = run.run.to_value()
    # Records of earlier versions have paths; the same card must come of them on every machine.
    value |= {name: scrub_values(value[name], NOWHERE) for name in _TELLING if value.get(name)}
    metrics = dict(value.get("metrics") or {})
    if run.row.file_sha256 is not None:
        metrics.setdefault("file_sha256", run.row.file_sha256)
    if run.row.signature is not None and value.get("signature") is None and metrics.get("signature") is None:
        metrics["signature"] = run.row.signature
    if metrics or "metrics" in value:
        value["metrics"] = metrics
    return value


def _additions(entry: DeviceEntry | BrowserEntry, names: Iterable[str]) -> dict[str, Any]:
    value = entry.to_value()
    value["command"] = scrub_command(value["command"], NOWHERE)
    value["host"] = scrub_values(value["host"], NOWHERE)
    return {name: value[name] for name in names if value.get(name)}


# --- pitfalls ----------------------------------------------------------------------------------------------


def add_pitfall(root: Path, model_id: str, pitfall: Pitfall) -> Path:
    """Keep a pitfall that a tool found, with its evidence; the next `build_card` puts it into the card.

    Args:
        root: The output folder.
        model_id: The model.
        pitfall: What was found. One with the same text is replaced.

    Returns:
        The file that pitfalls are kept in.

    Raises:
        AssayError: The file is broken or cannot be written.
    """
    path = card_folder(root, model_id) / PITFALLS
    with locked(root):
        kept = [item for item in _found_pitfalls(path) if item.text != pitfall.text]
        values = [item.to_value() for item in (*kept, pitfall)]
        write_atomic(path, canonical.dumps({"pitfalls": values, "schema_version": "1.3"}))
    return path


def _found_pitfalls(path: Path) -> list[Pitfall]:
    return read(path, PitfallFile).pitfalls if path.exists() else []


def _pitfalls(folder: Path, said: metas.Meta | None, present: Card | None, version: str) -> dict[str, Any]:
    found = {item.text: item for item in _found_pitfalls(folder / PITFALLS)}
    if said is not None:
        items = [item if isinstance(item, Pitfall) else Pitfall(text=item) for item in said.pitfalls]
    else:
        details = {item.text: item for item in (present.pitfall_details or [])} if present else {}
        texts = present.pitfalls if present else []
        items = [found.get(text) or details.get(text) or Pitfall(text=text) for text in texts]
    known = {item.text for item in items}
    items += [item for text, item in found.items() if text not in known]
    value: dict[str, Any] = {"pitfalls": [item.text for item in items]}
    detailed = [item.to_value() for item in items if item.to_value().keys() - {"text"}]
    if detailed and version != WRITTEN:
        value["pitfall_details"] = detailed
    return value
