"""A FlatBuffers decoder that believes nothing: every offset, length and table is checked before it is used.

The format is described at https://flatbuffers.dev/internals/. Files come from strangers, and a flatbuffer can
lie about everything: this decoder raises `Corrupt` and never reads outside of the file, loops, or makes more
objects than its limits allow, whatever the bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, overload

from assay.graph.schema import ENUM_NAMES, TABLES, UNIONS, Field

#: A file may decode to this many tables; the largest public language models have some ten thousand.
MAX_TABLES: Final = 1 << 19
#: Elements of short vectors, decoded at once, in the whole file.
MAX_ELEMENTS: Final = 1 << 23
#: Slots of one vtable; the schema's largest table has 14.
MAX_SLOTS: Final = 256
#: Layouts that are kept for reuse. Builders share vtables, so that real files have some dozens.
MAX_PLANS: Final = 1 << 12
#: Longer vectors than this are decoded when they are asked for.
EAGER: Final = 256
#: Bytes of one string, and of all strings and options.
MAX_STRING: Final = 1 << 20
MAX_STRINGS: Final = 1 << 26

_WIDTHS: Final = {code: struct.calcsize(f"<{code}") for code in "?bBhHiIqQfd"}
_U32: Final = struct.Struct("<I").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_VTABLE: Final = struct.Struct("<HH").unpack_from


class Corrupt(Exception):
    """The bytes are not what they claim to be. The reader adds the file's name."""


class Numbers(Sequence[Any]):
    """A long vector of numbers that stays in the file until it is looked at. Compares equal to any sequence."""

    __slots__ = ("_view",)

    def __init__(self, data: memoryview, code: str):
        self._view: memoryview[Any] = data.cast(code)  # type: ignore[call-overload]

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        part = self._view[index]
        return tuple(part) if isinstance(index, slice) else part  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._view)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self._view, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        head = ", ".join(str(value) for value in self[:4])
        return f"<{len(self)} numbers: {head}, ...>"


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one kind of table is laid out under one vtable: worked out once, used for every table that has it.

    Attributes:
        unpack: Reads all fields that are present, in the order in which they lie.
        defaults: The defaults of all slots, and two spare values.
        pick: From what `unpack` gave followed by the defaults to all slots in order, and the spare values.
        references: Slot, offset in the table, and what reads the value there.
        unions: The same for unions; the slot before holds the type.
    """

    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    defaults: tuple[Any, ...]
    pick: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    references: list[tuple[int, int, Callable[[int], Any]]]
    unions: list[tuple[int, int, str]]


class Decoder:
    """Decodes tables of the `.tflite` schema, or of another one, from bytes that may be hostile.

    Reads past the end are caught where they happen, by `struct`, and reported by `root`.

    Args:
        data: The whole file (or the part of it that is the model).
        tables: Another schema's tables.
        unions: Another schema's unions.
        rows: Tables that are given as the values of their slots in order (and spare ones) instead of as a dict.

    Attributes:
        unknown: Fields that the file has and this schema does not know, as `Table.slot`.
    """

    def __init__(
        self,
        data: memoryview,
        tables: Mapping[str, Sequence[Field]] = TABLES,
        unions: Mapping[str, Sequence[str]] = UNIONS,
        rows: frozenset[str] = frozenset(),
    ):
        self.unknown: set[str] = set()
        self._data = data
        self._end = len(data)
        self._schema = tables
        self._unions = unions
        self._rows = rows
        self._readers: dict[str, Callable[[int], Any]] = {}
        self._plan_count = 0
        self._tables = MAX_TABLES
        self._elements = MAX_ELEMENTS
        self._strings = MAX_STRINGS

    def root(self, name: str) -> dict[str, Any]:
        """The root table, and all below it.

        Returns:
            Field name -> value; absent scalars have their default, other absent fields are None. Enums are
            names (or the number, if it has none), strings `str`, weights `memoryview`, options `bytes`, tables
            `dict` (or `rows`), vectors `tuple` or `list`, long ones `Numbers`. A union's type stays the number
            that it is in the file.

        Raises:
            Corrupt: The bytes do not hold such a table, or too much.
        """
        if self._end < 8:
            raise Corrupt(f"the file has only {self._end} bytes")
        try:
            return self._reader(f":{name}")(_U32(self._data, 0)[0])
        except struct.error:
            raise Corrupt("a part of it would lie past the end: the file is cut short or damaged") from None

    def _reader(self, kind: str) -> Callable[[int], Any]:
        """What reads a value of a kind (as in `schema.Field`) at a position."""
        reader = self._readers.get(kind)
        if reader is None:
            if kind == "s":
                reader = self._string
            elif kind == "[B":
                reader = self._bytes
            elif kind[0] == ":":
                reader = self._table_reader(kind[1:])
            elif kind[1] in _WIDTHS:
                reader = self._number_reader(kind[1])
            else:
                reader = self._vector_reader(kind[1:])
            self._readers[kind] = reader
        return reader

    def _string(self, position: int) -> str:
        length: int = _U32(self._data, position)[0]
        self._strings -= length
        if length > MAX_STRING or self._strings < 0:
            raise Corrupt(f"a string of {length:,} bytes")
        end = position + 4 + length
        if end > self._end:
            raise Corrupt("a string runs past the end")
        return str(self._data[position + 4 : end], "utf-8", "backslashreplace")

    def spend(self, numbers: int) -> None:
        """Count numbers that are about to be decoded from a long vector.

        Raises:
            Corrupt: Together with all before they are too many.
        """
        self._elements -= numbers
        if self._elements < 0:
            raise Corrupt(f"more than {MAX_ELEMENTS:,} numbers")

    def _copied_bytes(self, position: int) -> bytes:
        data = self._bytes(position)
        self._strings -= len(data)
        if self._strings < 0:
            raise Corrupt(f"more than {MAX_STRINGS:,} bytes of options")
        return bytes(data)

    def _bytes(self, position: int) -> memoryview:
        end: int = position + 4 + _U32(self._data, position)[0]
        if end > self._end:
            raise Corrupt(f"{end - position - 4:,} bytes are claimed and the file ends before")
        return self._data[position + 4 : end]

    def _number_reader(self, code: str) -> Callable[[int], Sequence[Any]]:
        data, width = self._data, _WIDTHS[code]
        short = [struct.Struct(f"<{length}{code}").unpack_from for length in range(9)]

        def read(position: int) -> Sequence[Any]:
            length: int = _U32(data, position)[0]
            # Short ones are counted with the tables that hold them.
            if length < 9:
                return short[length](data, position + 4)
            if length <= EAGER:
                self.spend(length)
                return struct.unpack_from(f"<{length}{code}", data, position + 4)
            end = position + 4 + length * width
            if end > self._end:
                raise Corrupt(f"a vector claims {length:,} elements and the file ends before")
            return Numbers(data[position + 4 : end], code)

        return read

    def _vector_reader(self, kind: str) -> Callable[[int], list[Any]]:
        data, read_one = self._data, self._reader(kind)

        def read(position: int) -> list[Any]:
            length: int = _U32(data, position)[0]
            if length > self._tables:
                raise Corrupt(f"more than {MAX_TABLES:,} tables")
            if kind == "s":
                self._tables -= length
            start = position + 4
            offsets = struct.unpack_from(f"<{length}I", data, start)
            return [read_one(start + 4 * i + offset) for i, offset in enumerate(offsets)]

        return read

    def _table_reader(self, name: str) -> Callable[[int], Any]:
        data = self._data
        plans: dict[int, _Plan] = {}
        as_row = name in self._rows
        fields = self._schema[name]
        # Slots that the schema no longer uses have no name and are left out of dicts.
        names = [field.name for field in fields]
        gone = "" in names
        named = [] if name == "OperatorCode" else [field for field in fields if field.enum]
        enums = [(field.name, ENUM_NAMES[field.enum or ""]) for field in named if field.kind in _WIDTHS]
        enum_vectors = [(field.name, ENUM_NAMES[field.enum or ""]) for field in named if field.kind[0] == "["]

        def read(position: int) -> Any:
            vtable = position - _I32(data, position)[0]
            plan = plans.get(vtable)
            if plan is None:
                plan = self._plan(name, vtable)
                if self._plan_count < MAX_PLANS:
                    self._plan_count += 1
                    plans[vtable] = plan
            self._tables -= 1
            if self._tables < 0:
                raise Corrupt(f"more than {MAX_TABLES:,} tables")
            values: Sequence[Any] = plan.pick(plan.unpack(data, position) + plan.defaults)
            if plan.references or plan.unions:
                values = resolved = list(values)
                for slot, offset, read_value in plan.references:
                    resolved[slot] = read_value(position + offset + resolved[slot])
                for slot, offset, union in plan.unions:
                    resolved[slot] = self._union(union, resolved[slot - 1], position + offset + resolved[slot])
            if as_row:
                return values
            table = dict(zip(names, values, strict=False))
            if gone:
                del table[""]
            for key, meanings in enums:
                number = table[key]
                table[key] = meanings.get(number, number)
            for key, meanings in enum_vectors:
                table[key] = None if table[key] is None else tuple(meanings.get(n, n) for n in table[key])
            return table

        return read

    def _union(self, union: str, number: int, position: int) -> Any:
        members = self._unions[union]
        if number == 0:
            return None
        if number >= len(members):
            self.unknown.add(f"{union}.{number}")
            return None
        return self._reader(f":{members[number]}")(position)

    def _plan(self, name: str, vtable: int) -> _Plan:
        if vtable < 0 or vtable + 4 > self._end:
            raise Corrupt(f"the vtable of a {name} table lies outside of the file")
        vtable_size, table_size = _VTABLE(self._data, vtable)
        sound = vtable_size >= 4 and vtable_size % 2 == 0 and table_size >= 4
        if not sound or vtable_size > 4 + 2 * MAX_SLOTS or vtable + vtable_size > self._end:
            raise Corrupt(f"the vtable of a {name} table is not one")
        fields = self._schema[name]
        offsets = struct.unpack_from(f"<{(vtable_size - 4) // 2}H", self._data, vtable + 4)
        for slot, offset in enumerate(offsets[len(fields) :], start=len(fields)):
            if offset:
                self.unknown.add(f"{name}.{slot}")
        present = sorted(
            (offset, slot)
            for slot, (offset, field) in enumerate(zip(offsets, fields, strict=False))
            if offset and field.name
        )
        layout, end = "<", 0
        for offset, slot in present:
            code = fields[slot].kind if fields[slot].kind in _WIDTHS else "I"
            if offset < max(4, end) or offset + _WIDTHS[code] > table_size:
                raise Corrupt(f"field {fields[slot].name} of a {name} table lies outside of the table")
            layout += f"{offset - end}x{code}"
            end = offset + _WIDTHS[code]
        places = {slot: place for place, (_, slot) in enumerate(present)}
        picked = [places.get(slot, len(present) + slot) for slot in range(len(fields))]
        spare = len(present) + len(fields)
        # Weights stay in the file; options are small, and plain bytes are pleasant.
        copied = name not in {"Buffer", "Uint8Vector"}
        references = [(slot, offset) for offset, slot in present if fields[slot].kind not in _WIDTHS]
        return _Plan(
            unpack=struct.Struct(layout).unpack_from,
            defaults=(*(field.default for field in fields), None, None),
            # The spare values: with fewer than two items, itemgetter would not give a tuple.
            pick=itemgetter(*picked, spare, spare + 1),
            references=[
                (
                    slot,
                    offset,
                    self._copied_bytes
                    if copied and fields[slot].kind == "[B"
                    else self._reader(fields[slot].kind),
                )
                for slot, offset in references
                if fields[slot].kind[0] != "|"
            ],
            unions=[
                (slot, offset, fields[slot].kind[1:]) for slot, offset in references if fields[slot].kind[0] == "|"
            ],
        )
