"""A FlatBuffers encoder over the same schema tables as the decoder.

Unlike the usual builders it writes front to back and keeps big data out of its own memory: weights follow the
structure as pieces, so a model of any size is written with the memory that its structure needs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.graph.errors import GraphError
from assay.graph.schema import ENUM_CODES, TABLES, UNIONS

#: Where weights start, as the runtime's kernels expect.
ALIGNMENT: Final = 16
#: Offsets inside of a flatbuffer are signed in places.
MAX_FLATBUFFER: Final = (1 << 31) - 1

_WIDTHS: Final = {code: struct.calcsize(f"<{code}") for code in "?bBhHiIqQfd"}
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Late:
    """Bytes that follow the structure, as a vector of the flatbuffer (aligned, referred to by its offset)."""

    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Outside:
    """Bytes that follow the flatbuffer; the field holds their place in the file."""

    data: bytes | memoryview


class Encoder:
    """Encodes tables given as dicts, as `Decoder.table` gives them."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._vtables: dict[bytes, int] = {}
        self._late: list[tuple[int, bytes | memoryview]] = []
        self._outside: list[tuple[int, bytes | memoryview]] = []

    def file(self, root: str, fields: dict[str, Any], identifier: bytes) -> Iterator[bytes | memoryview]:
        """The whole file in pieces: structure, inner data, outer data.

        Raises:
            GraphError: A value does not fit its field, or the flatbuffer part passes 2 GB.
        """
        out = self._out
        out += b"\0\0\0\0" + identifier
        _U32.pack_into(out, 0, self._table(root, fields))
        self._pad(ALIGNMENT)
        end = len(out)
        pieces: list[bytes | memoryview] = [memoryview(out)]
        for position, data in self._late:
            # The length comes just before the aligned data.
            padding = -(end + 4) % ALIGNMENT
            start = end + padding
            _U32.pack_into(out, position, start - position)
            pieces += [bytes(padding) + _U32.pack(len(data)), data]
            end = start + 4 + len(data)
        if end > MAX_FLATBUFFER:
            raise GraphError(f"the flatbuffer would have {end:,} bytes; the format's limit is {MAX_FLATBUFFER:,}")
        for position, data in self._outside:
            padding = -end % ALIGNMENT
            _U64.pack_into(out, position, end + padding)
            pieces += [bytes(padding), data]
            end += padding + len(data)
        return iter(pieces)

    def _pad(self, alignment: int, ahead: int = 0) -> None:
        """Pad so that what comes `ahead` bytes further on is aligned."""
        self._out += bytes(-(len(self._out) + ahead) % alignment)

    def _table(self, name: str, fields: dict[str, Any]) -> int:
        out = self._out
        present: list[tuple[int, int, str, str, Any]] = []
        known = TABLES[name]
        for slot, (key, kind, default, enum) in enumerate(known):
            value = fields.get(key) if key else None
            if value is None:
                continue
            if kind in _WIDTHS:
                value = _number(value, enum, f"{name}.{key}")
                if value != default:
                    present.append((_WIDTHS[kind], slot, key, kind, value))
            else:
                present.append((4, slot, key, kind, value))
        if unknown := fields.keys() - {field.name for field in known}:
            raise GraphError(f"{name} has no field {sorted(unknown)[0]!r}")
        # Widest first, so that with an aligned start every field is aligned.
        present.sort(key=lambda item: -item[0])
        slots = [0] * (1 + max((slot for _, slot, *_ in present), default=-1))
        size = 4
        for width, slot, *_ in present:
            slots[slot] = size
            size += width
        vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), size, *slots)
        where = self._vtables.get(vtable)
        if where is None:
            self._pad(2)
            where = self._vtables[vtable] = len(out)
            out += vtable
        self._pad(8 if present and present[0][0] == 8 else 4, ahead=4)
        table = len(out)
        out += struct.pack("<i", table - where) + bytes(size - 4)
        for _, slot, key, kind, value in present:
            position = table + slots[slot]
            if kind in _WIDTHS:
                self._scalar(position, kind, value, f"{name}.{key}")
            else:
                self._reference(position, kind, value, fields, f"{name}.{key}")
        return table

    def _scalar(self, position: int, kind: str, value: Any, label: str) -> None:
        if isinstance(value, Outside):
            self._outside.append((position, value.data))
            return
        try:
            struct.pack_into(f"<{kind}", self._out, position, value)
        except (struct.error, OverflowError):
            raise GraphError(f"{label} cannot hold {value!r}") from None

    def _reference(self, position: int, kind: str, value: Any, fields: dict[str, Any], label: str) -> None:
        if isinstance(value, Late):
            self._late.append((position, value.data))
            return
        if kind[0] == ":":
            target = self._table(kind[1:], value)
        elif kind[0] == "|":
            target = self._table(UNIONS[kind[1:]][fields[label.partition(".")[2] + "_type"]], value)
        elif kind == "s":
            target = self._string(value)
        elif kind[1] in _WIDTHS:
            target = self._numbers(kind[1], value, label)
        else:
            target = self._references(kind[1:], value)
        _U32.pack_into(self._out, position, target - position)

    def _string(self, text: str) -> int:
        data = text.encode("utf-8", "replace")
        self._pad(4)
        target = len(self._out)
        self._out += _U32.pack(len(data)) + data + b"\0"
        return target

    def _numbers(self, code: str, values: Any, label: str) -> int:
        self._pad(max(4, _WIDTHS[code]), ahead=4)
        target = len(self._out)
        if code == "B":
            data = bytes(values)
        else:
            enum = next(f.enum for f in TABLES[label.partition(".")[0]] if label.endswith(f".{f.name}"))
            numbers = [_number(value, enum, label) for value in values]
            try:
                data = struct.pack(f"<{len(numbers)}{code}", *numbers)
            except (struct.error, OverflowError):
                raise GraphError(f"{label} cannot hold {numbers!r:.80}") from None
        self._out += _U32.pack(len(values)) + data
        return target

    def _references(self, kind: str, values: Sequence[Any]) -> int:
        self._pad(4)
        target = len(self._out)
        self._out += _U32.pack(len(values)) + bytes(4 * len(values))
        for index, value in enumerate(values):
            position = target + 4 + 4 * index
            child = self._string(value) if kind == "s" else self._table(kind[1:], value)
            _U32.pack_into(self._out, position, child - position)
        return target


def _number(value: Any, enum: str | None, label: str) -> Any:
    """A scalar as it is stored: enums may be given by name."""
    if isinstance(value, str):
        code = ENUM_CODES.get(enum or "", {}).get(value)
        if code is None:
            names = ", ".join(ENUM_CODES.get(enum or "", {})) or "it takes a number"
            raise GraphError(f"{label} cannot be {value!r}", fix=f"Known values: {names}")
        return code
    return value
