"""Records on disk: runs are added to a file under a lock, and the file is always whole."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar, cast

import pydantic

from assay.errors import AssayError
from assay.records import canonical
from assay.records.document import (
    WRITTEN,
    Document,
    DocumentError,
    Part,
    check,
    parse_json,
    plain,
    read_bytes,
)
from assay.records.files import write_atomic
from assay.records.layout import DEVICE_RUNS, SWEEPS, private_folder
from assay.records.record import (
    BrowserEntry,
    BrowserSweepFile,
    DeviceEntry,
    DeviceRunFile,
    PlainDeviceRunFile,
    PlainSweepFile,
)

LOCK_WAIT_S = 60.0
"""Longest wait for another writer of the same record, in seconds."""

_FULL_BYTES = 16 * 2**20

E = TypeVar("E", bound=Part)
F = TypeVar("F", bound=Document)


class UnsavedRunError(AssayError):
    """A run was measured and could not be written where it belongs; the message says where it is."""


def append_device_run(root: Path, model_id: str, device: str, entry: DeviceEntry | dict[str, Any]) -> Path:
    """Add one run to its record.

    The record is `data/device_runs/<runtime version>/<date>/<model id>__<device>.json` below `root`. It is
    replaced in one step under a lock, so other writers' runs stay, and a crash leaves the record as it was.

    Args:
        root: The output folder.
        model_id: The model.
        device: Short name of the device.
        entry: The run and what is kept beside it.

    Returns:
        Path of the record.

    Raises:
        UnsavedRunError: The disk is full, the folder cannot be written to, or another writer does not end; the
            message says where the run was kept instead.
        AssayError: `entry` or a name is not of the form.
    """
    value = _checked(entry, DeviceEntry)
    run = value["run"]
    folder = DEVICE_RUNS / safe_part(run["env"]["runtime_version"]) / safe_part(run["date"])
    path = root / folder / f"{safe_part(model_id)}__{safe_part(device)}.json"
    head = {"kind": "device_run", "schema_version": WRITTEN, "model_id": model_id, "device": device}
    return _append(root, path, head, value, DeviceRunFile)


def append_browser_run(root: Path, model_id: str, entry: BrowserEntry | dict[str, Any]) -> Path:
    """Add one run to its record, `data/sweep/<litertjs version>/<date>/<model id>.json` below `root`.

    Args:
        root: The output folder.
        model_id: The model.
        entry: The run and what is kept beside it.

    Returns:
        Path of the record.

    Raises:
        AssayError: As for `append_device_run`.
    """
    value = _checked(entry, BrowserEntry)
    run = value["run"]
    folder = SWEEPS / safe_part(run["env"]["litertjs_core_version"]) / safe_part(run["date"])
    path = root / folder / f"{safe_part(model_id)}.json"
    head = {"kind": "browser_sweep", "schema_version": WRITTEN, "model_id": model_id}
    return _append(root, path, head, value, BrowserSweepFile)


def read_device_runs(path: Path) -> DeviceRunFile | PlainDeviceRunFile:
    """Read a device-run record of either form.

    Raises:
        DocumentError: It is missing, too large, not JSON, or of another form.
    """
    return parse_device_runs(read_bytes(path), path)


def parse_device_runs(data: bytes, source: Path | str) -> DeviceRunFile | PlainDeviceRunFile:
    """As `read_device_runs`, of bytes that were read already."""
    value = parse_json(data, source)
    return check(value, PlainDeviceRunFile if _is_plain(value) else DeviceRunFile, source)


def read_browser_sweep(path: Path) -> BrowserSweepFile | PlainSweepFile:
    """Read a browser-sweep record of either form.

    Raises:
        DocumentError: It is missing, too large, not JSON, or of another form.
    """
    return parse_browser_sweep(read_bytes(path), path)


def parse_browser_sweep(data: bytes, source: Path | str) -> BrowserSweepFile | PlainSweepFile:
    """As `read_browser_sweep`, of bytes that were read already."""
    value = parse_json(data, source)
    return check(value, PlainSweepFile if _is_plain(value) else BrowserSweepFile, source)


def safe_part(name: str) -> str:
    """A name as one part of a path, or an error: records come from strangers.

    Raises:
        AssayError: It is empty, starts with a dot, is longer than 200 bytes, or has a separator in it.
    """
    bad = not name or name.startswith(".") or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in name)
    if bad or len(name.encode("utf-8", "replace")) > 200:
        raise AssayError(f"{name!r} cannot be part of a file name", fix="use letters, digits, '.', '_' and '-'")
    return name


@contextlib.contextmanager
def locked(root: Path, wait_s: float = LOCK_WAIT_S) -> Generator[None]:
    """Hold the write lock of an output folder; the operating system frees it when the process ends, however.

    Args:
        root: The output folder.
        wait_s: Longest wait for another holder, in seconds.

    Raises:
        AssayError: Another process holds it for longer, or the folder cannot be written to.
    """
    import filelock

    try:
        folder = private_folder(root)
        lock = filelock.FileLock(folder / "write.lock")
        lock.acquire(timeout=wait_s, poll_interval=0.02)
    except filelock.Timeout as error:
        raise AssayError(
            f"another process has been writing to {root} for more than {wait_s:.0f} s",
            fix="wait for it, or end it",
        ) from error
    except OSError as error:
        raise AssayError(f"{root} cannot be written to: {error.strerror}", fix="name another folder") from error
    try:
        yield
    finally:
        lock.release()


def _is_plain(value: Any) -> bool:
    return isinstance(value, dict) and "results" in value and "kind" not in value


def _checked(entry: E | dict[str, Any], form: type[E]) -> dict[str, Any]:
    try:
        model = form.model_validate(plain(entry)) if isinstance(entry, dict) else entry
        return form.model_validate(model.to_value()).to_value()
    except pydantic.ValidationError as error:
        raise AssayError(f"a run is not of the form {form.__name__}: {error}") from error


def _append(root: Path, path: Path, head: dict[str, Any], entry: dict[str, Any], form: type[F]) -> Path:
    first = {**head, "entries": [entry]}
    check(first, form, path)
    try:
        with locked(root):
            path, value = _place(path, form)
            value = first if value is None else {**value, "entries": [*value["entries"], entry]}
            write_atomic(path, canonical.dumps(value))
    except (OSError, AssayError) as error:
        raise _rescue(path, first, error) from error
    return path


def _place(path: Path, form: type[Document]) -> tuple[Path, dict[str, Any] | None]:
    """The file to add to, and what it holds.

    A file that is broken, full, or of another producer is left alone, and the next name is taken: what was
    measured must not be lost, nor what someone may still mend.
    """
    for number in range(1000):
        candidate = path if number == 0 else path.with_name(f"{path.stem}.{number}.json")
        if not candidate.exists():
            return candidate, None
        if candidate.stat().st_size > _FULL_BYTES:
            continue
        try:
            value = parse_json(read_bytes(candidate), candidate)
            check(value, form, candidate)
        except DocumentError:
            continue
        return candidate, cast(dict[str, Any], value)
    raise AssayError(f"{path} and 999 files like it are broken or full", fix="mend or move them")


def _rescue(path: Path, record: dict[str, Any], error: OSError | AssayError) -> AssayError:
    """Keep a run that could not be written where it belongs, in the system's folder for temporary files."""
    cause = str(error) if isinstance(error, AssayError) else f"{path} cannot be written: {error.strerror}"
    text = canonical.dumps(record)
    name = f"{path.stem}.rescued-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    rescued = Path(tempfile.gettempdir()) / name
    try:
        write_atomic(rescued, text)
    except OSError:
        return UnsavedRunError(f"{cause}; the run is lost", fix="make room and measure again")
    return UnsavedRunError(
        f"{cause}; the run was kept as {rescued}", fix=f"make room, then move it to {path.parent}"
    )
