"""Bundles of models: `.litertlm` (LiteRT-LM) and `.task` (MediaPipe, a zip) open to the models that they hold."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay.graph.errors import GraphError
from assay.graph.flatbuffer import Corrupt, Decoder
from assay.graph.model import Model
from assay.graph.reader import map_file, read
from assay.graph.schema import Field

#: Compressed members are inflated in memory, up to this many bytes in all.
MAX_INFLATED: Final = 1 << 30
MAX_ENTRIES: Final = 4096
MAX_DEPTH: Final = 3

#: The header of a .litertlm file, from the schema that its builder ships (version 1.7).
_VALUES: Final = {
    "UInt8": "B",
    "Int8": "b",
    "UInt16": "H",
    "Int16": "h",
    "UInt32": "I",
    "Int32": "i",
    "Float32": "f",
    "Bool": "?",
    "StringValue": "s",
    "UInt64": "Q",
    "Int64": "q",
    "Double": "d",
}
_UNIONS: Final = {"VData": ["NONE", *_VALUES]}
_TABLES: Final[dict[str, tuple[Field, ...]]] = {
    "LiteRTLMMetaData": (
        Field("system_metadata", ":SystemMetadata", None, None),
        Field("section_metadata", ":SectionMetadata", None, None),
    ),
    "SystemMetadata": (Field("entries", "[:KeyValuePair", None, None),),
    "SectionMetadata": (Field("objects", "[:SectionObject", None, None),),
    "SectionObject": (
        Field("items", "[:KeyValuePair", None, None),
        Field("begin_offset", "Q", 0, None),
        Field("end_offset", "Q", 0, None),
        Field("data_type", "B", 0, None),
    ),
    "KeyValuePair": (
        Field("key", "s", None, None),
        Field("value_type", "B", 0, None),
        Field("value", "|VData", None, None),
    ),
} | {name: (Field("value", kind, None if kind == "s" else 0, None),) for name, kind in _VALUES.items()}
_SECTIONS: Final = (
    "none",
    "binary_data",
    "deprecated",
    "tflite_model",
    "sentencepiece_tokenizer",
    "llm_metadata",
    "hf_tokenizer_zlib",
    "tflite_weights",
    "embedding_metadata",
    "executor_metadata",
    "tts_metadata",
    "asr_metadata",
)


@dataclass(slots=True)
class Entry:
    """One part of a bundle.

    Attributes:
        name: Its name in the bundle, unique there: the model type of a `.litertlm`, the path in a `.task`.
        kind: What it is: `tflite_model`, or `file` and the section types of `.litertlm`.
        data: Its bytes; they stay in the file until they are looked at, unless the bundle compresses them.
        attributes: What the bundle says of it, for example `backend_constraint`.
    """

    name: str
    kind: str
    data: memoryview = field(repr=False)
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return len(self.data)


def read_all(path: Path | str) -> dict[str, Model]:
    """The models of a file: of a bundle each by its name in it, of a `.tflite` the one by its file name.

    Raises:
        GraphError: The file, or a model in it, is not sound, or there is no model in it.
    """
    path = Path(path)
    if not is_bundle(path):
        return {path.name: read(path)}
    models = {
        entry.name: read(entry.data, path=path / entry.name)
        for entry in entries(path)
        if entry.kind == "tflite_model"
    }
    if not models:
        raise GraphError(f"{path} holds no .tflite model")
    return models


def is_bundle(path: Path | str) -> bool:
    """Whether a file is a `.litertlm` or a zip, by its first bytes.

    Raises:
        GraphError: The file cannot be read.
    """
    data = map_file(Path(path))
    return _is_litertlm(data) or _is_zip(data)


def entries(path: Path | str) -> list[Entry]:
    """All parts of a bundle, in its order.

    Raises:
        GraphError: The file cannot be read or is not a sound bundle.
    """
    path = Path(path)
    data = map_file(path)
    try:
        if _is_litertlm(data):
            return _litertlm(data)
        if _is_zip(data):
            return _unzip(data, "", MAX_DEPTH, [MAX_INFLATED])
    except Corrupt as error:
        raise GraphError(f"{path} is not a valid bundle: {error}", fix="Fetch the file again") from None
    raise GraphError(f"{path} is neither a .litertlm nor a .task bundle")


def _is_litertlm(data: memoryview) -> bool:
    return bytes(data[:8]) == b"LITERTLM"


def _is_zip(data: memoryview) -> bool:
    return bytes(data[:4]) == b"PK\x03\x04"


def _is_tflite(data: memoryview) -> bool:
    return bytes(data[4:8]) == b"TFL3"


def _litertlm(data: memoryview) -> list[Entry]:
    """Magic, version (3 x uint32), padding, end of the header (uint64 at 24), header at 32, sections."""
    if len(data) < 32:
        raise Corrupt("the header is cut off")
    (end,) = struct.unpack_from("<Q", data, 24)
    if not 40 <= end <= len(data):
        raise Corrupt(f"the header claims to end at byte {end:,} of {len(data):,}")
    header = Decoder(data[32:end], _TABLES, _UNIONS).root("LiteRTLMMetaData")
    sections = (header["section_metadata"] or {}).get("objects") or []
    if len(sections) > MAX_ENTRIES:
        raise Corrupt(f"it has {len(sections):,} sections")
    found: list[Entry] = []
    names: set[str] = set()
    for index, section in enumerate(sections):
        begin, stop, number = section["begin_offset"], section["end_offset"], section["data_type"]
        if not begin <= stop <= len(data):
            raise Corrupt(f"section {index} claims bytes {begin:,} to {stop:,} of {len(data):,}")
        kind = _SECTIONS[number] if number < len(_SECTIONS) else f"type_{number}"
        attributes = {
            pair["key"] or "": pair["value"]["value"] for pair in section["items"] or [] if pair["value"]
        }
        name = str(attributes.pop("model_type", kind)).removeprefix("tf_lite_")
        found.append(Entry(_unique(name, names), kind, data[begin:stop], attributes))
    return found


def _unique(name: str, names: set[str]) -> str:
    number, candidate = 1, name
    while candidate in names:
        number += 1
        candidate = f"{name}_{number}"
    names.add(candidate)
    return candidate


def _unzip(data: memoryview, prefix: str, depth: int, budget: list[int]) -> list[Entry]:
    found: list[Entry] = []
    names: set[str] = set()
    for name, member in _members(data, budget):
        label = _unique(prefix + name, names)
        if _is_zip(member) and depth > 1:
            found += _unzip(member, label + "/", depth - 1, budget)
        else:
            found.append(Entry(label, "tflite_model" if _is_tflite(member) else "file", member))
        if len(found) > MAX_ENTRIES:
            raise Corrupt(f"it has more than {MAX_ENTRIES:,} parts")
    return found


class _View:
    """A seekable file over mapped bytes, so that the zip reader copies only what it reads."""

    def __init__(self, data: memoryview):
        self._data = data
        self._position = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = max(0, offset + (0, self._position, len(self._data))[whence])
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else self._position + size
        part = bytes(self._data[self._position : end])
        self._position += len(part)
        return part


def _members(data: memoryview, budget: list[int]) -> Iterator[tuple[str, memoryview]]:
    """Name and bytes of each file of a zip; `budget` holds how many bytes may still be inflated."""
    try:
        with zipfile.ZipFile(_View(data)) as archive:  # type: ignore[arg-type]
            for info in archive.infolist():
                if info.is_dir():
                    continue
                if info.compress_type == zipfile.ZIP_STORED:
                    yield info.filename, _stored(data, info)
                    continue
                # The size in the directory may be a lie: what counts is what comes out.
                with archive.open(info) as member:
                    inflated = member.read(budget[0] + 1)
                budget[0] -= len(inflated)
                if budget[0] < 0:
                    raise Corrupt(f"it inflates to more than {MAX_INFLATED:,} bytes")
                yield info.filename, memoryview(inflated)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise Corrupt(str(error)) from None
    except (struct.error, ValueError, NotImplementedError, RuntimeError, OverflowError) as error:
        raise Corrupt(f"the zip cannot be read: {error}") from None


def _stored(data: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """The bytes of an uncompressed member: they follow its local header, whose name and extra field vary."""
    start = info.header_offset
    if start + 30 > len(data) or bytes(data[start : start + 4]) != b"PK\x03\x04":
        raise Corrupt(f"{info.filename!r} has no header where the directory says")
    name, extra = struct.unpack_from("<HH", data, start + 26)
    begin = start + 30 + name + extra
    if begin + info.file_size > len(data):
        raise Corrupt(f"{info.filename!r} runs past the end")
    return data[begin : begin + info.file_size]


def names_in_zip(data: memoryview) -> list[str]:
    """The names of the files in a zip; empty if it is not a sound one."""
    try:
        with zipfile.ZipFile(_View(data)) as archive:  # type: ignore[arg-type]
            return [info.filename for info in archive.infolist()[:MAX_ENTRIES]]
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OSError, OverflowError):
        return []
