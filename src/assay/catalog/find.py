"""A card by what a user has at hand: a model id, a part of one, a card, or the model file itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

from assay.catalog.cards import CARD_JSON, read_card
from assay.errors import AssayError
from assay.records.card import Card
from assay.records.document import DocumentError
from assay.records.layout import CARDS


def find_card(root: Path, model: str) -> Card:
    """Find a card.

    Args:
        root: The output folder.
        model: A model id, a part of one that only one id has, the path of a `card.json`, or the path of a
            `.tflite` file, which is found by its digest.

    Raises:
        AssayError: There is no such card, there are several, or it is broken.
    """
    path = Path(model)
    if path.suffix == ".json" and path.is_file():
        return read_card(path)
    if path.is_file():
        return _by_digest(root, path)
    names = sorted(found.parent.name for found in (root / CARDS).glob(f"*/{CARD_JSON}"))
    matches = [name for name in names if name == model] or [name for name in names if model in name]
    if len(matches) == 1:
        return read_card(root / CARDS / matches[0] / CARD_JSON)
    if matches:
        raise AssayError(
            f"{model!r} is a part of {len(matches)} model ids", fix=f"one of {', '.join(matches[:10])}"
        )
    known = f"cards here: {', '.join(names[:10])}" if names else "`assay run MODEL` writes cards"
    raise AssayError(f"no card of {model!r} in {root}", fix=known)


def _by_digest(root: Path, path: Path) -> Card:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for found in sorted((root / CARDS).glob(f"*/{CARD_JSON}")):
        try:
            card = read_card(found)
        except DocumentError:
            continue
        if any(artifact.sha256 == digest for artifact in card.artifacts):
            return card
    raise AssayError(f"no card in {root} is of the file {path}", fix=f"assay run {path}")
