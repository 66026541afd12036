"""An order for version names as they are found: releases, nightly builds, and names that are no versions."""

import re
from collections.abc import Iterable

_VERSION = re.compile(r"(?P<family>[a-z][a-z_ -]*?[-_ ])?v?(?P<release>\d+(?:\.\d+)*)(?P<rest>.*)", re.DOTALL)
_STAGE = re.compile(r"[-._]?(dev|nightly|alpha|a|beta|b|rc|pre|c|post|r)[-._]?(\d*)(?![a-z])")
_RANKS = {
    "dev": 0,
    "nightly": 0,
    "alpha": 1,
    "a": 1,
    "beta": 2,
    "b": 2,
    "rc": 3,
    "pre": 3,
    "c": 3,
    "post": 5,
    "r": 5,
}
_FINAL = 4
_PARTS = 5
_DIGITS = 20


def order(version: str) -> str:
    """A text whose order is the order of versions, for one family of names.

    Numbers compare as numbers, absent parts are zeros, and stages of one release come in the order of PEP 440:
    `2.2.0.dev20260804` < `2.2.0a1` < `2.2.0rc1` < `2.2.0` < `2.2.0.post1`. A name in front of the number, as in
    `gallery-1.0.15`, is a family of its own. What holds no number is ordered as text.
    """
    name, release, stages = _split(version)
    return "|".join((name, release, *stages))


def family(version: str) -> str:
    """The name in front of the number, `gallery` in `gallery-1.0.15`; empty for a plain version."""
    return _split(version)[0]


def is_prerelease(version: str) -> bool:
    """True for a nightly build, an alpha, a beta or a release candidate."""
    return any(stage[0] < str(_FINAL) for stage in _split(version)[2])


def newest(versions: Iterable[str]) -> str | None:
    """The newest release; the newest of all if there are only pre-releases; None if there is nothing."""
    known = sorted(versions, key=order)
    finals = [version for version in known if not is_prerelease(version)]
    return (finals or known or [None])[-1]


def _split(version: str) -> tuple[str, str, list[str]]:
    match = _VERSION.fullmatch(version.strip().lower())
    if match is None:
        return version.strip().lower(), "", [f"{_FINAL}"]
    numbers = [_padded(number) for number in match["release"].split(".")][:_PARTS]
    numbers += [_padded("0")] * (_PARTS - len(numbers))
    stages: list[str] = []
    rest = match["rest"]
    while found := _STAGE.match(rest):
        stages.append(f"{_RANKS[found[1]]}{_padded(found[2] or '0')}")
        rest = rest[found.end() :]
    # A release ends in "final", so that it comes after its own pre-releases and before its post-releases.
    stages.append(f"{_FINAL}{rest}")
    return (match["family"] or "").strip(" -_"), ".".join(numbers), stages


def _padded(digits: str) -> str:
    # As text: a number of thousands of digits, from a stranger's file, must not cost time.
    return digits.lstrip("0")[:_DIGITS].rjust(_DIGITS, "0")
