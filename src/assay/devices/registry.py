"""Devices by address, or by the name that the user's `devices.yaml` gives an address."""

from __future__ import annotations

import functools
import os
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from assay.devices.base import Device
from assay.errors import AssayError

GROUP = "assay.devices"

DEFAULT = "local"
"""The device that is always there."""

FILE_LIMIT = 2**20
"""A larger file is no list of devices."""


class DeviceEntry(BaseModel):
    """One device in `devices.yaml`.

    Attributes:
        address: For example `ssh://pi@raspberrypi`.
        label: Its name in records; by default the name in the file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Annotated[str, Field(min_length=1, max_length=500)]
    label: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class _DeviceFile(RootModel[dict[str, str | DeviceEntry]]):
    pass


def devices_file() -> Path | None:
    """The user's list of devices: `ASSAY_DEVICES`, else `devices.yaml` here, else in the folder for settings."""
    if chosen := os.environ.get("ASSAY_DEVICES"):
        return Path(chosen)
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return next(
        (path for path in (Path("devices.yaml"), settings / "assay" / "devices.yaml") if path.is_file()), None
    )


def named() -> dict[str, DeviceEntry]:
    """The devices of the user's list, by name.

    Raises:
        AssayError: The list cannot be read, or is not one.
    """
    path = devices_file()
    if path is None:
        return {}
    example = "write one device a line, as in: pi: ssh://pi@raspberrypi"
    try:
        if path.stat().st_size > FILE_LIMIT:
            raise AssayError(f"{path} is too big for a list of devices", fix=example)
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {error.strerror}", fix="see ASSAY_DEVICES") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise AssayError(f"{path} is not YAML: {' '.join(str(error).split())}", fix=example) from error
    try:
        found = _DeviceFile.model_validate(data or {}).root
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:1]) or "the file"
        raise AssayError(f"{path}: {where}: {first['msg']}", fix=example) from error
    entries = {
        name: DeviceEntry(address=entry) if isinstance(entry, str) else entry for name, entry in found.items()
    }
    return {name: entry.model_copy(update={"label": entry.label or name}) for name, entry in entries.items()}


@functools.cache
def _schemes() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def find(text: str, name: str | None = None) -> Device:
    """The device of that name or address.

    Args:
        text: A name of the user's list, `local`, or an address such as `ssh://pi@raspberrypi`.
        name: Its name in records, instead of the one that the list or the device has.

    Raises:
        AssayError: There is none.
    """
    entry = named().get(text)
    address, label = (entry.address, name or entry.label) if entry is not None else (text, name)
    scheme, separator, rest = address.partition("://")
    if scheme in _schemes() and (separator or scheme == DEFAULT):
        if scheme == DEFAULT:
            label = label or rest or None
        try:
            make = _schemes()[scheme].load()
        except (ImportError, AttributeError) as error:
            raise AssayError(f"devices of the kind {scheme}:// cannot be loaded: {error}") from error
        return make(label, address)
    known = ", ".join(
        [DEFAULT, *named(), *(f"{scheme}://..." for scheme in sorted(_schemes()) if scheme != DEFAULT)]
    )
    raise AssayError(f"there is no device {text!r}", fix=f"choose from {known}")
