"""Numbers and strangers' texts, ready for a table."""

import re

_SPACE = re.compile(r"\s+")
# An underscore inside a word is a plain character to Markdown.
_SPECIAL = re.compile(r"([\\`*\[\]<|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def number(value: float | None, digits: int = 4) -> str:
    """A number with at most `digits` significant digits; a dash for what was not measured."""
    if value is None:
        return "-"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 10**digits):
        return str(int(value))
    text = f"{value:.{digits}g}"
    # `1.2e+03` is harder to read than 1234, and its lost digits were measured.
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def escape(text: object, limit: int = 400) -> str:
    """A text for a Markdown table or line: on one line, with nothing that Markdown or HTML would act on."""
    flat = _SPACE.sub(" ", str(text)).strip()
    flat = flat if len(flat) <= limit else flat[: limit - 3] + "..."
    return _SPECIAL.sub(r"\\\1", flat)


def code(text: object, limit: int = 400) -> str:
    """A text as inline code, for a Markdown table or line."""
    flat = _SPACE.sub(" ", str(text)).strip()[:limit]
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    # A table cell ends at a bar even inside code.
    return f"{fence}{space}{flat}{space}{fence}".replace("|", "\\|")


def plain(text: object, limit: int = 400) -> str:
    """A text for a terminal: on one line, with no control characters, which could rewrite the screen."""
    flat = _SPACE.sub(" ", str(text)).strip()
    flat = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def link(url: str | None) -> str:
    """A web address as a Markdown link; anything else as plain text, since it may be a script."""
    if url and re.fullmatch(r"https?://[^\s<>()\[\]|\"'`\\]+", url):
        return f"<{url}>"
    return escape(url) if url else "-"
