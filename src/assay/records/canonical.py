"""One text for one JSON value: the same document is the same bytes on every machine and every rerun."""

import json
from typing import Any


def dumps(value: Any) -> str:
    """The canonical JSON text of a value.

    Keys are sorted by code point, the indent is two spaces, a float has the shortest form that reads back as
    the same float, text is UTF-8 as it is, and one newline ends the document. Lone surrogates, which UTF-8
    cannot hold, are written as JSON escapes.

    Args:
        value: What `json` can write.

    Raises:
        ValueError: A float is infinite or not a number; JSON has no such value.
    """
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
