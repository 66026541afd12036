"""Does a card still say what its records say? Finds edits by hand, stale cards, and runs without a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assay.catalog import cards
from assay.errors import AssayError
from assay.records.document import DocumentError, shown
from assay.records.layout import CARDS
from assay.records.rows import card_rows


@dataclass(frozen=True)
class CardFinding:
    """One place where a card is not what its records make.

    Attributes:
        file: The file.
        path: JSON path of the value; empty for the whole file.
        found: What the file has, as short JSON.
        expected: What the records make, as short JSON.
        text: In words.
    """

    file: Path
    path: str
    found: str
    expected: str
    text: str


@dataclass
class CheckResult:
    """What a check of one card found.

    Attributes:
        model_id: The model.
        findings: What is wrong; empty for a card that is as its records make it.
        notes: What could not be checked, and why.
    """

    model_id: str
    findings: list[CardFinding] = field(default_factory=list[CardFinding])
    notes: list[str] = field(default_factory=list[str])


def check_card(root: Path, model_id: str, *, render: cards.Render) -> CheckResult:
    """Build a model's card again, in memory, and compare it with the files.

    A card whose records are all elsewhere (one that was copied here) can only be checked for its form; a note
    says so. Where some of the records are here, a run without one is a finding.

    Args:
        root: The output folder.
        model_id: The model.
        render: Gives the text that `CARD.md` should have.

    Raises:
        AssayError: There is no such card.
    """
    folder = cards.card_folder(root, model_id)
    path = folder / cards.CARD_JSON
    result = CheckResult(model_id)
    if not path.exists():
        raise AssayError(f"{path} does not exist", fix=f"assay card build {model_id}")
    try:
        card = cards.read_card(path)
    except DocumentError as error:
        result.findings.append(CardFinding(path, "", "", "", str(error)))
        return result
    if card.model.id != model_id:
        result.findings.append(_difference(path, "$.model.id", card.model.id, model_id))
        return result
    built = cards.compose(root, model_id, orphans="keep", version=card.schema_version)
    result.notes += built.problems
    result.findings += [
        _difference(path, *item) for item in _differences(card.to_value(), built.card.to_value(), "$")
    ]
    _check_sources(result, root, path, built.missing, [row.record for row in card_rows(card)])
    if not result.findings and path.read_bytes() != card.to_json().encode():
        text = "the values are right, the text is not in canonical form"
        # A card that came from elsewhere keeps its own form until it is built here.
        _add(result, text, path, copied=bool(built.missing))
    _check_markdown(result, folder / cards.CARD_MD, render(card), copied=bool(built.missing))
    return result


def check_cards(root: Path, model_ids: Iterable[str], *, render: cards.Render) -> Iterator[CheckResult]:
    """Check several cards; one that cannot be checked is a finding, and the rest is checked.

    Args:
        root: The output folder.
        model_ids: The models.
        render: See `check_card`.
    """
    for model_id in model_ids:
        try:
            yield check_card(root, model_id, render=render)
        except AssayError as error:
            path = root / CARDS / model_id / cards.CARD_JSON
            yield CheckResult(model_id, [CardFinding(path, "", "", "", str(error))])


def _check_sources(result: CheckResult, root: Path, path: Path, missing: list[str], sources: list[str]) -> None:
    if not missing:
        return
    if any((root / source).is_file() for source in sources):
        for cell in missing:
            text = f"{path}: no record gives this cell: {cell}"
            result.findings.append(CardFinding(path, "", cell, "", text))
    else:
        result.notes.append(
            f"{path}: its records are not here; {len(missing)} cells were checked for their form only"
        )


def _check_markdown(result: CheckResult, path: Path, expected: str, *, copied: bool) -> None:
    if not path.is_file():
        _add(result, "missing", path, copied=copied)
    elif path.read_bytes() != expected.encode():
        _add(result, "not what card.json renders to", path, copied=False)


def _add(result: CheckResult, text: str, path: Path, *, copied: bool) -> None:
    if copied:
        result.notes.append(f"{path}: {text}")
    else:
        result.findings.append(CardFinding(path, "", "", "", f"{path}: {text}"))


def _difference(file: Path, path: str, found: Any, expected: Any) -> CardFinding:
    got, made = ("nothing" if value is _ABSENT else shown(value) for value in (found, expected))
    return CardFinding(file, path, got, made, f"{file}: at {path}: got {got}, the records make {made}")


_ABSENT = object()


def _differences(found: Any, expected: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(found, dict) and isinstance(expected, dict):
        left, right = cast(dict[str, Any], found), cast(dict[str, Any], expected)
        for key in sorted(left.keys() | right.keys()):
            yield from _differences(left.get(key, _ABSENT), right.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, (left_item, right_item) in enumerate(
            zip(cast(list[Any], found), cast(list[Any], expected), strict=True)
        ):
            yield from _differences(left_item, right_item, f"{path}[{index}]")
    elif found != expected or isinstance(found, bool) != isinstance(expected, bool):
        yield path, found, expected
