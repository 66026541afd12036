"""LiteRT.js from npm: fetched once, checked against its integrity hash, kept by version, offline from then on."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from assay import distribution
from assay.errors import AssayError

DEFAULT_VERSION = "2.5.3"
"""The version that is used where none is named."""

CORE = "@litertjs/core"
UTILS = "@litertjs/wasm-utils"

PINNED: dict[str, str] = {
    f"{CORE}@2.5.3": (
        "sha512-PlGmbMOq9WitX7FO0jhbdJw9GthatsyuCQXjTt/wJZo0FLaw48q4tz8IwqgqCIkviYGr9OFDL1kCnN4nzWoyJQ=="
    ),
    f"{UTILS}@2.5.3": (
        "sha512-4fJiw6tBQnIs+0jH/OQ16nYOiSl8/+zZnn5h2ul8aTKHi05sVqZW580Tmk78pC2kT39A9OYBVdFawteZ/sI1kQ=="
    ),
}
"""Integrity of the packages that this version of Assay was tested with. Others: as the registry says, recorded."""

_VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")
_UNPACKED_LIMIT = 2**30
_FILES_LIMIT = 2000
_NPM_TIMEOUT_S = 300


@dataclass(frozen=True)
class Runtime:
    """One installed version of LiteRT.js.

    Attributes:
        version: Version of `@litertjs/core`.
        folder: Holds `core/`, `utils/` and `installed.json`.
        integrity: Package -> integrity hash that its archive had.
        pinned: True if every hash is one that came with Assay.
    """

    version: str
    folder: Path
    integrity: dict[str, str]
    pinned: bool


def cache_dir() -> Path:
    """Where runtimes are kept: `ASSAY_CACHE`, or `assay` in the platform's cache folder."""
    if chosen := os.environ.get("ASSAY_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "assay"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "assay"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"


def check_version(version: str) -> str:
    """The version, if it is written as npm writes one.

    Raises:
        AssayError: It is not; it also names a folder, so nothing else may pass.
    """
    if not _VERSION.fullmatch(version):
        raise AssayError(f"{version!r} is not a version of LiteRT.js", fix=f"name one such as {DEFAULT_VERSION}")
    return version


def installed() -> list[Runtime]:
    """The versions in the cache, oldest version first."""
    found = [find(path.parent.name) for path in (cache_dir() / "litertjs").glob("*/installed.json")]
    runtimes = [runtime for runtime in found if runtime is not None]
    return sorted(runtimes, key=lambda runtime: [int(part) for part in re.findall(r"\d+", runtime.version)])


def find(version: str = DEFAULT_VERSION) -> Runtime | None:
    """The installed runtime of that version, or None."""
    folder = cache_dir() / "litertjs" / check_version(version)
    try:
        note = json.loads((folder / "installed.json").read_text())
        return Runtime(version, folder, dict(note["integrity"]), bool(note["pinned"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def require(version: str = DEFAULT_VERSION) -> Runtime:
    """The installed runtime of that version.

    Raises:
        AssayError: It is not in the cache.
    """
    runtime = find(version)
    if runtime is None:
        raise AssayError(
            f"LiteRT.js {version} is not installed in {cache_dir()}",
            fix=f"assay browser install --litertjs {version}",
        )
    return runtime


def install(version: str = DEFAULT_VERSION, *, force: bool = False) -> Runtime:
    """Fetch a version with the `npm` client, check it and unpack it into the cache.

    The registry is the one that npm is configured for. An archive whose hash is not the pinned one (or, for a
    version that is not pinned, not the one in the registry's metadata) is not unpacked.

    Args:
        version: Version of `@litertjs/core`; `latest` is looked up.
        force: Fetch again even where it is in the cache.

    Raises:
        AssayError: No npm, no such version, no network, or an archive that is not what it should be.
    """
    if version == "latest":
        version = str(_npm_view(CORE, ["version"])["version"])
    check_version(version)
    present = find(version)
    if present is not None and not force:
        return present
    core = _npm_view(f"{CORE}@{version}", ["version", "dist.integrity", "dependencies"])
    wanted = {CORE: version}
    if needs := (core.get("dependencies") or {}).get(UTILS):
        wanted[UTILS] = _resolve(UTILS, needs, version)
    root = cache_dir() / "litertjs"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".install-") as scratch:
        staged = Path(scratch) / "staged"
        integrity: dict[str, str] = {}
        pinned = True
        for package, package_version in wanted.items():
            spec = f"{package}@{package_version}"
            expected = PINNED.get(spec)
            if expected is None:
                pinned = False
                expected = str(_npm_view(spec, ["dist.integrity"])["dist.integrity"])
            archive = _npm_pack(spec, Path(scratch))
            check_integrity(archive, expected)
            integrity[spec] = expected
            unpack(archive, staged / ("core" if package == CORE else "utils"))
        note = {"integrity": integrity, "pinned": pinned, "version": version}
        (staged / "installed.json").write_text(json.dumps(note, indent=2, sort_keys=True) + "\n")
        folder = root / version
        if folder.exists():
            shutil.rmtree(folder)
        staged.rename(folder)
    return require(version)


def check_integrity(archive: Path, expected: str) -> None:
    """Check an archive against a subresource-integrity string (`sha512-<base64>`).

    Raises:
        AssayError: It differs, or the string is of another kind.
    """
    kind, _, value = expected.partition("-")
    if kind not in {"sha512", "sha384", "sha256"}:
        raise AssayError(f"{archive.name}: integrity {expected[:40]!r} is of an unknown kind")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, kind).digest()
    if base64.b64encode(digest).decode() != value:
        raise AssayError(
            f"{archive.name}: its hash is {kind}-{base64.b64encode(digest).decode()}, expected {expected}",
            fix="the archive was changed on the way; check the registry that npm is configured for",
        )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the `package/` folder of an npm archive: plain files only, none outside of `folder`.

    Raises:
        AssayError: The archive is broken, too big, or holds anything but plain files below one folder.
    """
    total = 0
    try:
        with tarfile.open(archive, "r:gz") as source:
            for count, member in enumerate(source):
                parts = PurePosixPath(member.name).parts
                if member.isdir():
                    continue
                if (
                    not member.isfile()
                    or len(parts) < 2
                    or ".." in parts
                    or parts[0] == "/"
                    or "\\" in member.name
                ):
                    raise AssayError(f"{archive.name}: refused its entry {member.name!r}")
                total += member.size
                if total > _UNPACKED_LIMIT or count > _FILES_LIMIT:
                    raise AssayError(f"{archive.name}: unpacks to more than a runtime can need")
                target = folder.joinpath(*parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                content = source.extractfile(member)
                if content is None:
                    raise AssayError(f"{archive.name}: cannot read its entry {member.name!r}")
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise AssayError(f"{archive.name}: cannot be unpacked: {error}") from error


def _resolve(package: str, wanted: str, same_as: str) -> str:
    """The newest version of a package that a range allows; the pinned one, or core's own, where it is allowed."""
    found = _npm_view(f"{package}@{wanted}", ["version"])["version"]
    versions: list[str] = [str(item) for item in found] if isinstance(found, list) else [str(found)]
    for choice in (same_as, *reversed(versions)):
        if choice in versions and (f"{package}@{choice}" in PINNED or choice == same_as):
            return choice
    return versions[-1]


def _npm(arguments: list[str], cwd: Path | None = None) -> str:
    # The `browser` extra brings Node.js beside the interpreter; a client of the system's own comes first.
    beside = str(Path(sys.executable).parent)
    client = shutil.which("npm") or shutil.which("npm", path=beside)
    if client is None:
        raise AssayError(
            "LiteRT.js comes from npm, and there is no npm here",
            fix=f"{distribution.install('browser')}, or install Node.js",
        )
    try:
        done = subprocess.run(
            [client, *arguments, "--json"],
            cwd=cwd,
            env={**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), beside])},
            capture_output=True,
            text=True,
            timeout=_NPM_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssayError(
            f"npm {arguments[0]} took more than {_NPM_TIMEOUT_S} s", fix="check the network"
        ) from error
    if done.returncode != 0:
        raise AssayError(f"npm {' '.join(arguments[:2])} failed: {_npm_error(done.stdout, done.stderr)}")
    return done.stdout


def _npm_error(stdout: str, stderr: str) -> str:
    try:
        error = json.loads(stdout)["error"]
        return f"{error.get('code', '')}: {error.get('summary', '').splitlines()[0]}"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        lines = (stderr or stdout).strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _npm_view(spec: str, fields: list[str]) -> dict[str, Any]:
    """Fields of a package's metadata; of the last version where the spec is a range."""
    text = _npm(["view", spec, *fields])
    if not text.strip():
        raise AssayError(f"npm knows no {spec}", fix=f"npm view {spec.rsplit('@', 1)[0]} versions")
    data = json.loads(text)
    if len(fields) == 1:
        # npm prints the bare value (a list of them for a range) where one field is asked for.
        return {fields[0]: data if not isinstance(data, dict) else data.get(fields[0], data)}
    return data[-1] if isinstance(data, list) else data


def _npm_pack(spec: str, folder: Path) -> Path:
    before = set(folder.glob("*.tgz"))
    _npm(["pack", spec, "--ignore-scripts", "--pack-destination", str(folder)], cwd=folder)
    new = set(folder.glob("*.tgz")) - before
    if len(new) != 1:
        raise AssayError(f"npm pack {spec} left {len(new)} archives, expected one")
    return new.pop()
