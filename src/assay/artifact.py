"""The exact file that is measured: found, hashed, and named."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import AssayError

_SLUG = re.compile(r"[^a-z0-9._]+")


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
    if path.is_dir():
        raise AssayError(f"{path} is a directory", fix=f"name the files in it, for example {path}/*.tflite")
    try:
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
    """A name that is safe in paths: lower case, digits, dots, underscores and dashes; never empty."""
    return _SLUG.sub("-", text.lower()).strip("-.")[:150] or "unnamed"


def model_ids(paths: Sequence[Path]) -> list[str]:
    """A model id for each file: its stem, with the folder's name before it where two files share a stem."""
    stems = [_SLUG.sub("-", path.stem.lower()).strip("-.") or "unnamed" for path in paths]
    ids: list[str] = []
    for path, stem in zip(paths, stems, strict=True):
        same = [other for other, other_stem in zip(paths, stems, strict=True) if other_stem == stem]
        unique = len({other.resolve() for other in same}) == 1
        ids.append(stem if unique else f"{slug(path.resolve().parent.name)}__{stem}")
    return ids
