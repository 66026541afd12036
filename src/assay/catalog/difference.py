"""What changed between two dates, runtime versions, devices or catalogs, and whether a change is real."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.catalog.database import Catalog, Progress, open_catalog
from assay.errors import AssayError
from assay.records.layout import CARDS
from assay.records.rows import AGE, CELL

Reality = Literal["real", "noise", "unknown"]
"""`real`: more than the timings' own spread explains. `noise`: not more, or too small to matter. `unknown`: the
records do not say how much the timings spread."""

SPEEDS = {
    "latency_p50_ms": True,
    "ttft_ms": True,
    "prefill_tokens_per_s": False,
    "decode_tokens_per_s": False,
}
"""Speeds that are compared -> True if a greater value is slower."""

_FACTS = (
    *CELL,
    "status",
    "failure_class",
    "runtime_version",
    "date",
    "unstable",
    "latency_min_ms",
    "latency_max_ms",
    "latency_ci95_low_ms",
    "latency_ci95_high_ms",
    *SPEEDS,
)
_RANKS = {"failed": 0, "wrong": 1, "partial": 2, "runs": 3, "match": 3}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_KINDS = ("date", "version", "device", "dir")

Fact = dict[str, Any]


@dataclass(frozen=True)
class ChangeThresholds:
    """When a change counts.

    Attributes:
        threshold: Share of change below which it does not matter, whatever its interval.
        unknown_over: Share of change from which it counts as real where no spread is known.
        across_files: Compare a model's runs whatever its file; else only runs of the same file.
        fail_on_lost: A cell that is gone is a regression.
    """

    threshold: float = 0.05
    unknown_over: float = 0.25
    across_files: bool = False
    fail_on_lost: bool = False


@dataclass(frozen=True)
class SpeedChange:
    """How a speed changed.

    Attributes:
        metric: One of `SPEEDS`.
        before: Value on side A.
        after: Value on side B.
        ratio: `after / before`.
        ratio_low: Lower end of the ratio's 95 % confidence interval; None if unknown.
        ratio_high: Upper end.
        reality: Whether the change is real.
        slower: B is slower.
    """

    metric: str
    before: float
    after: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    reality: Reality
    slower: bool


@dataclass(frozen=True)
class CellChange:
    """A cell that both sides have.

    Attributes:
        cell: What makes the cell, name -> value.
        before: Status, failure class, version and date on side A.
        after: The same on side B.
        status_changed: The status differs.
        speeds: Speeds that both sides have.
        regressions: What is worse on side B, in words.
    """

    cell: Fact
    before: Fact
    after: Fact
    status_changed: bool
    speeds: list[SpeedChange]
    regressions: list[str]


@dataclass
class Difference:
    """What differs between side A and side B.

    Attributes:
        a: Side A in words.
        b: Side B in words.
        gained: Cells that only B has.
        lost: Cells that only A has.
        changed: Cells whose status changed or a speed really did.
        same: How many cells both have and that did not change.
        regressions: What is worse, one sentence each.
        problems: Files that could not be read.
    """

    a: str
    b: str
    gained: list[Fact] = field(default_factory=list[Fact])
    lost: list[Fact] = field(default_factory=list[Fact])
    changed: list[CellChange] = field(default_factory=list[CellChange])
    same: int = 0
    regressions: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def to_value(self) -> dict[str, Any]:
        """This difference as JSON values."""
        return dataclasses.asdict(self)


def diff(
    a: str,
    b: str,
    *,
    root: Path,
    thresholds: ChangeThresholds | None = None,
    progress: Progress = lambda done, total: None,
) -> Difference:
    """Compare two sides of a catalog, or two catalogs.

    A side is a date (the catalog as it stood at the end of that day), a runtime version, a device, or another
    catalog's folder. `date:`, `version:`, `device:` or `dir:` in front says which, where a name could be two.

    Args:
        a: The older side.
        b: The newer side.
        root: The catalog; not used for two folders.
        thresholds: When a change counts.
        progress: Told of long work.

    Raises:
        AssayError: A side is not known or has no run, or the two are of different kinds.
    """
    thresholds = thresholds or ChangeThresholds()
    if _kind_by_name(a) == "dir" or _kind_by_name(b) == "dir":
        sides = [Path(side.removeprefix("dir:")) for side in (a, b)]
        found: list[list[Fact]] = []
        problems: list[str] = []
        for side in sides:
            with open_catalog(side, progress=progress) as catalog:
                found.append(_facts(catalog, "true", {}, _key("dir", thresholds)))
                problems += [f"in {side}: {problem}" for problem in catalog.problems()]
        result = _compare("dir", (str(sides[0]), found[0]), (str(sides[1]), found[1]), thresholds)
        result.problems = problems
        return result
    with open_catalog(root, progress=progress) as catalog:
        kind_a, name_a = _resolve(catalog, a)
        kind_b, name_b = _resolve(catalog, b)
        if kind_a != kind_b:
            raise AssayError(f"{a} is a {kind_a} and {b} is a {kind_b}", fix="compare two of a kind")
        left, right = (_side(catalog, kind_a, name, thresholds) for name in (name_a, name_b))
        result = _compare(kind_a, (f"{kind_a} {name_a}", left), (f"{kind_a} {name_b}", right), thresholds)
        result.problems = catalog.problems()
        return result


# --- the sides ---------------------------------------------------------------------------------------------


def _kind_by_name(side: str) -> str | None:
    prefix = side.partition(":")[0]
    if ":" in side and prefix in _KINDS:
        return prefix
    folder = Path(side)
    if (folder / "data").is_dir() or (folder / CARDS).is_dir():
        return "dir"
    return "date" if _DATE.fullmatch(side) else None


def _resolve(catalog: Catalog, side: str) -> tuple[str, str]:
    kind = _kind_by_name(side)
    if kind is not None:
        return kind, side.removeprefix(f"{kind}:")
    versions = [row[0] for row in catalog.sql("SELECT DISTINCT runtime_version FROM runs ORDER BY 1").rows]
    devices = [row[0] for row in catalog.sql("SELECT DISTINCT device FROM runs ORDER BY 1").rows]
    kinds = [kind for kind, names in (("version", versions), ("device", devices)) if side in names]
    if len(kinds) == 1:
        return kinds[0], side
    if kinds:
        raise AssayError(f"{side} is a version and a device here", fix=f"write version:{side} or device:{side}")
    raise AssayError(
        f"{side} is no date, runtime version, device or catalog folder",
        fix=f"versions: {', '.join(versions[:10])}; devices: {', '.join(devices[:10])}",
    )


def _side(catalog: Catalog, kind: str, name: str, thresholds: ChangeThresholds) -> list[Fact]:
    if kind == "date" and not _DATE.fullmatch(name):
        raise AssayError(f"{name} is not a date", fix="write YYYY-MM-DD")
    condition = {
        "date": "date <= try_cast($name AS DATE)",
        "version": "runtime_version = $name",
        "device": "device = $name",
    }[kind]
    facts = _facts(catalog, condition, {"name": name}, _key(kind, thresholds))
    if not facts:
        raise AssayError(f"no run of {kind} {name} in {catalog.root}")
    return facts


def _key(kind: str, thresholds: ChangeThresholds) -> tuple[str, ...]:
    left_out = {"device"} if kind == "device" else set[str]()
    if thresholds.across_files:
        left_out.add("file_sha256")
    return tuple(name for name in CELL if name not in left_out)


def _facts(catalog: Catalog, condition: str, parameters: dict[str, Any], key: tuple[str, ...]) -> list[Fact]:
    age = ", ".join(f"{expression} DESC" for expression in AGE)
    return catalog.sql(
        f"SELECT {', '.join(_FACTS)} FROM runs WHERE {condition} "
        f"QUALIFY row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY {age}) = 1",
        parameters or None,
    ).records()


# --- the comparison ----------------------------------------------------------------------------------------


def _compare(
    kind: str, a: tuple[str, list[Fact]], b: tuple[str, list[Fact]], thresholds: ChangeThresholds
) -> Difference:
    key = _key(kind, thresholds)
    left, right = ({tuple(fact[name] for name in key): fact for fact in facts} for _, facts in (a, b))
    result = Difference(a[0], b[0])
    result.gained = [_brief(right[cell], key) for cell in _ordered(right.keys() - left.keys())]
    result.lost = [_brief(left[cell], key) for cell in _ordered(left.keys() - right.keys())]
    for cell in _ordered(left.keys() & right.keys()):
        change = _change(left[cell], right[cell], key, thresholds)
        if change.status_changed or any(speed.reality == "real" for speed in change.speeds):
            result.changed.append(change)
        else:
            result.same += 1
        result.regressions += change.regressions
    if thresholds.fail_on_lost:
        result.regressions += [f"{name_of(fact)}: no run any more" for fact in result.lost]
    return result


def _ordered(keys: Any) -> list[Any]:
    return sorted(keys, key=lambda key: tuple((value is not None, str(value)) for value in key))


def _brief(fact: Fact, key: tuple[str, ...]) -> Fact:
    names = (*key, "status", "failure_class", "latency_p50_ms", "runtime_version")
    return {**{name: fact[name] for name in names}, "date": str(fact["date"])}


def _change(a: Fact, b: Fact, key: tuple[str, ...], thresholds: ChangeThresholds) -> CellChange:
    cell = {name: b[name] for name in key}
    speeds = [speed for metric in SPEEDS if (speed := _speed(metric, a, b, thresholds)) is not None]
    regressions: list[str] = []
    if _RANKS[b["status"]] < _RANKS[a["status"]]:
        why = f" ({b['failure_class']})" if b["failure_class"] else ""
        regressions.append(f"{name_of(cell)}: {a['status']} before, {b['status']} now{why}")
    for speed in speeds:
        if speed.slower and speed.reality == "real":
            regressions.append(f"{name_of(cell)}: {speed.metric} {speed.before:g} before, {speed.after:g} now")
    sides = [{name: fact[name] for name in ("status", "failure_class", "runtime_version")} for fact in (a, b)]
    for side, fact in zip(sides, (a, b), strict=True):
        side["date"] = str(fact["date"])
    return CellChange(cell, sides[0], sides[1], a["status"] != b["status"], speeds, regressions)


def name_of(cell: Fact) -> str:
    """A cell in words."""
    parts = [
        str(cell["model_id"]),
        cell.get("signature"),
        cell["accelerator"],
        cell.get("device"),
        cell.get("browser"),
    ]
    return " ".join(str(part) for part in parts if part)


def _speed(metric: str, a: Fact, b: Fact, thresholds: ChangeThresholds) -> SpeedChange | None:
    before, after = a[metric], b[metric]
    # A failed or wrong run's speed says nothing: an empty graph is fast.
    useless = any(fact["status"] in ("failed", "wrong") for fact in (a, b))
    if useless or not before or not after:
        return None
    ratio = after / before
    low = high = None
    if metric == "latency_p50_ms":
        interval = ratio_interval(
            (before, a["latency_ci95_low_ms"], a["latency_ci95_high_ms"]),
            (after, b["latency_ci95_low_ms"], b["latency_ci95_high_ms"]),
        )
        low, high = interval or (None, None)
    reality = _reality(metric, ratio, low, high, a, b, thresholds)
    greater_is_slower = SPEEDS[metric]
    return SpeedChange(metric, before, after, ratio, low, high, reality, (ratio > 1) == greater_is_slower)


def _reality(
    metric: str,
    ratio: float,
    low: float | None,
    high: float | None,
    a: Fact,
    b: Fact,
    thresholds: ChangeThresholds,
) -> Reality:
    # Both ways alike: 2x and 1/2x are the same size of change.
    size = max(ratio, 1 / ratio) - 1
    if size <= thresholds.threshold:
        return "noise"
    unstable = a["unstable"] or b["unstable"]
    if low is not None and high is not None and not unstable:
        return "real" if low > 1 or high < 1 else "noise"
    if metric == "latency_p50_ms" and _ranges_apart(a, b):
        return "real"
    return "real" if size > thresholds.unknown_over and not unstable else "unknown"


def _ranges_apart(a: Fact, b: Fact) -> bool:
    edges = [fact[name] for fact in (a, b) for name in ("latency_min_ms", "latency_max_ms")]
    if any(edge is None for edge in edges):
        return False
    return edges[1] < edges[2] or edges[3] < edges[0]


def ratio_interval(
    a: tuple[float, float | None, float | None], b: tuple[float, float | None, float | None]
) -> tuple[float, float] | None:
    """A confidence interval of `b / a` from the intervals of both, each (value, low, high).

    The two intervals are joined on the logarithmic scale, each side by its own distance, which keeps an
    asymmetric interval asymmetric (method of variance estimates recovery: Zou and Donner, Statistics in
    Medicine 27, 2008, pages 1693-1702). The level is that of the two intervals.

    Returns:
        Lower and upper end, or None where an interval is unknown or not above zero.
    """
    values = [value for side in (a, b) for value in side]
    if any(value is None or value <= 0 for value in values):
        return None
    a_mid, a_low, a_high, b_mid, b_low, b_high = (math.log(value) for value in values if value is not None)
    middle = b_mid - a_mid
    down = math.hypot(b_mid - b_low, a_high - a_mid)
    up = math.hypot(b_high - b_mid, a_mid - a_low)
    return math.exp(middle - down), math.exp(middle + up)
