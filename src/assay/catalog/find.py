"""A card by what a user has at hand: a model id, a part of one, a card, or the model file itself."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable
from pathlib import Path

from assay.catalog.cards import CARD_JSON, read_card
from assay.errors import AssayError
from assay.records.card import Card
from assay.records.document import DocumentError
from assay.records.layout import CARDS, DEVICE_RUNS, SWEEPS


def find_card(root: Path | str, model: Path | str) -> Card:
    """Find a card.

    Args:
        root: The output folder.
        model: A model id or the name of a card's folder, a part of one that only one has, the path of a
            `card.json`, or the path of a `.tflite` file, which is found by its digest.

    Raises:
        AssayError: There is no such card, there are several, or it is broken.
    """
    root, path, model = Path(root), Path(model), str(model)
    if path.suffix == ".json" and path.is_file():
        return read_card(path)
    if path.is_file():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found = _first(root, lambda card: any(artifact.sha256 == digest for artifact in card.artifacts))
        if found is None:
            raise AssayError(f"no card in {root} is of the file {path}", fix=f"assay run {path}")
        return found
    names = sorted(found.parent.name for found in (root / CARDS).glob(f"*/{CARD_JSON}"))
    matches = [name for name in names if name == model] or [name for name in names if model in name]
    if len(matches) == 1:
        return read_card(root / CARDS / matches[0] / CARD_JSON)
    if matches:
        raise AssayError(
            f"{model!r} is a part of {len(matches)} model ids", fix=f"one of {', '.join(matches[:10])}"
        )
    # A card that came from elsewhere may lie in a folder of another name.
    found = _first(root, lambda card: card.model.id == model)
    if found is not None:
        return found
    raise AssayError(f"no card of {model!r} in {root}", fix=_fix(root, model, names))


def _first(root: Path, fits: Callable[[Card], bool]) -> Card | None:
    for path in sorted((root / CARDS).glob(f"*/{CARD_JSON}")):
        try:
            card = read_card(path)
        except DocumentError:
            continue
        if fits(card):
            return card
    return None


def _fix(root: Path, model: str, names: list[str]) -> str:
    name = glob.escape(model)
    patterns = (f"{DEVICE_RUNS.as_posix()}/*/*/{name}__*.json", f"{SWEEPS.as_posix()}/*/*/{name}.json")
    if any(next(root.glob(pattern), None) is not None for pattern in patterns):
        return f"it has records: assay card build {model} --dir {root}"
    return f"cards here: {', '.join(names[:10])}" if names else "`assay run MODEL` writes cards"
