"""The exact file that is measured: found, hashed, and named."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError

_SLUG = re.compile(r"[^a-z0-9._]+")

LONGEST_ID = 100
"""Characters: a record's file name holds the model's id and the machine's name, and file systems take 255."""


@dataclass(frozen=True)
class Artifact:
    """A model file.

    Attributes:
        path: Where it lies.
        sha256: Of the whole file, hexadecimal.
        size_bytes: Its size.
    """

    path: Path
    sha256: str
    size_bytes: int

    @property
    def size_mb(self) -> float:
        """Size in megabytes (10**6 bytes), to three decimals."""
        return round(self.size_bytes / 1e6, 3)


def identify(path: Path) -> Artifact:
    """Hash a model file.

    Raises:
        AssayError: There is no such file, it is a folder, a URL, empty, or cannot be read.
    """
    if re.match(r"^[a-z][a-z0-9+.-]*:/", str(path), re.IGNORECASE):
        raise AssayError(f"{path} is a URL", fix="download the model first; assay measures files")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise AssayError(f"the name {str(path)!r} is not UTF-8", fix="rename the file or its folder") from error
    if path.is_dir():
        raise AssayError(f"{path} is a directory", fix=f"name the files in it, for example {path}/*.tflite")
    try:
        if path.exists() and not path.is_file():
            raise AssayError(f"{path} is no regular file", fix="copy what it holds to one")
        size = path.stat().st_size
        if size == 0:
            raise AssayError(f"{path} is empty", fix="was the download cut short?")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise AssayError(f"{path} does not exist", fix="check the path") from error
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {error.strerror}") from error
    return Artifact(path, digest, size)


def slug(text: str) -> str:
    """A name that records take: lower case, digits, dots, underscores and dashes; never empty.

    Accents are left out. A name in another script, or one that is too long, has a digest of the whole at its end.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    name = _SLUG.sub("-", plain.lower()).rstrip("-.").lstrip("-._") or "unnamed"
    return _shortened(name) if plain.isascii() else _ending_in(name, unicodedata.normalize("NFC", text))


def model_ids(paths: Sequence[Path]) -> list[str]:
    """A model id for each file: its stem, with the folder's name before it where two files share a stem.

    Files that share both, such as `My Model.tflite` and `my-model.tflite`, have a digest of the path at the end.
    """
    # Not `resolve`, which raises for a link to itself: such a file is reported like any other that cannot be read.
    files = [os.path.realpath(path) for path in paths]
    ids = [slug(path.stem) for path in paths]
    shared = _shared(ids, files)
    ids = [
        _shortened(f"{slug(Path(file).parent.name)}__{name}") if name in shared else name
        for name, file in zip(ids, files, strict=True)
    ]
    shared = _shared(ids, files)
    return [_ending_in(name, file) if name in shared else name for name, file in zip(ids, files, strict=True)]


def check_id(name: str) -> None:
    """Check a model id that a user chose.

    Raises:
        AssayError: Records do not take it, or it is too long for a file's name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise AssayError(f"{name!r} cannot be a model's id", fix="use letters, digits, '.', '_' and '-'")
    if len(name) > LONGEST_ID:
        raise AssayError(f"{name!r} is longer than {LONGEST_ID} characters", fix="choose a shorter name")


def _shared(ids: Sequence[str], files: Sequence[str]) -> set[str]:
    """Ids that stand for more than one file."""
    named: dict[str, set[str]] = {}
    for name, file in zip(ids, files, strict=True):
        named.setdefault(name, set()).add(file)
    return {name for name, those in named.items() if len(those) > 1}


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_ID else _ending_in(name, name)


def _ending_in(name: str, text: str) -> str:
    """A name, shortened where it must be, with a digest of a text at its end."""
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{name[: LONGEST_ID - 9]}-{digest}"
