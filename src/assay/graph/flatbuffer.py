"""A FlatBuffers decoder that believes nothing: every offset, length and table is checked before it is used.

The format is described at https://flatbuffers.dev/internals/. Files come from strangers, and a flatbuffer can
lie about everything: this decoder raises `Corrupt` and never reads outside of the file, loops, or makes more
objects than its limits allow, whatever the bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, itemgetter
from typing import Any, Final, overload

from assay.graph.schema import ENUM_NAMES, TABLES, UNIONS, Field

#: A file may decode to this many tables; the largest public language models have some ten thousand.
MAX_TABLES: Final = 1 << 19
#: Elements of short vectors, decoded at once, in the whole file.
MAX_ELEMENTS: Final = 1 << 23
#: Slots of one vtable; the schema's largest table has 14.
MAX_SLOTS: Final = 256
#: Layouts that are kept for reuse, of one file and of all together. Real files have some dozens.
MAX_PLANS: Final = 1 << 12
MAX_LAYOUTS: Final = 1 << 12
#: Longer vectors than this are decoded when they are asked for.
EAGER: Final = 256
#: Bytes of one string, and of all strings and options.
MAX_STRING: Final = 1 << 20
MAX_STRINGS: Final = 1 << 26

_WIDTHS: Final = {code: struct.calcsize(f"<{code}") for code in "?bBhHiIqQfd"}
_SHORT: Final = {code: [struct.Struct(f"<{length}{code}").unpack_from for length in range(9)] for code in _WIDTHS}
_U32: Final = struct.Struct("<I").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_U16: Final = struct.Struct("<H").unpack_from


PAST_THE_END: Final = "a part of it would lie past the end: the file is cut short or damaged"


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
class TableLayout:
    """How one kind of table is laid out under one vtable.

    Attributes:
        offsets: The offset in the table of each slot of the schema, 0 where absent.
        size: Bytes of a table.
        unpack: Reads all fields that are present, in the order in which they lie.
        defaults: The defaults of all slots, and two spare values.
        pick: From what `unpack` gave followed by the defaults to all slots in order, and the spare values.
        references: Slot and offset of fields that refer to something; of a union, the slot before holds the type.
        unknown: Slots that are present and that the schema does not know.
    """

    offsets: tuple[int, ...]
    size: int
    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    defaults: tuple[Any, ...]
    pick: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    references: tuple[tuple[int, int], ...]
    unknown: tuple[int, ...]


# Builders write few different vtables: the same ones are in file after file.
@lru_cache(MAX_LAYOUTS)
def _layout(name: str, fields: tuple[Field, ...], vtable: bytes) -> TableLayout:
    """The layout that a vtable (without its own size) gives to a kind of table.

    Raises:
        Corrupt: Fields overlap or lie outside of the table.
    """
    table_size, *offsets = struct.unpack(f"<{len(vtable) // 2}H", vtable)
    if table_size < 4:
        raise Corrupt(f"the vtable of a {name} table is not one")
    known = tuple(
        offset if field.name else 0 for offset, field in zip((*offsets, *[0] * len(fields)), fields, strict=False)
    )
    present = sorted((offset, slot) for slot, offset in enumerate(known) if offset)
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
    return TableLayout(
        offsets=known,
        size=table_size,
        unpack=struct.Struct(layout).unpack_from,
        defaults=(*(field.default for field in fields), None, None),
        # The spare values: with fewer than two items, itemgetter would not give a tuple.
        pick=itemgetter(*picked, spare, spare + 1),
        references=tuple((slot, offset) for offset, slot in present if fields[slot].kind not in _WIDTHS),
        unknown=tuple(slot for slot, offset in enumerate(offsets) if offset and slot >= len(fields)),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """How tables of one kind and one vtable are read: worked out once, used for every table that has it.

    Attributes:
        layout: Where their fields are.
        references: Slot, offset in the table, and what reads the value there.
        unions: The same for unions; the slot before holds the type.
    """

    layout: TableLayout
    references: list[tuple[int, int, Callable[[int], Any]]]
    unions: list[tuple[int, int, str]]


def text_of(data: memoryview) -> str:
    """The text that bytes of a file are; those that are no UTF-8 are written as escapes."""
    return str(data, "utf-8", "backslashreplace")


class Decoder:
    """Decodes tables of the `.tflite` schema, or of another one, from bytes that may be hostile.

    Reads past the end are caught where they happen, by `struct`, and reported by `root`.

    Args:
        data: The whole file (or the part of it that is the model).
        tables: Another schema's tables.
        unions: Another schema's unions.
        apart: Tables whose vectors are given as a list of positions, for `graph.columns` to decode.

    Attributes:
        data: The whole file.
        unknown: Fields that the file has and this schema does not know, as `Table.slot`.
    """

    def __init__(
        self,
        data: memoryview,
        tables: Mapping[str, tuple[Field, ...]] = TABLES,
        unions: Mapping[str, Sequence[str]] = UNIONS,
        apart: frozenset[str] = frozenset(),
    ):
        self.data: Final = data
        self.unknown: set[str] = set()
        self._end = len(data)
        self._schema = tables
        self._unions = unions
        self._apart = apart
        self._readers: dict[str, Callable[[int], Any]] = {}
        self._plans: dict[tuple[str, int], _Plan] = {}
        self._tables = MAX_TABLES
        self._elements = MAX_ELEMENTS
        self._strings = MAX_STRINGS

    def root(self, name: str) -> dict[str, Any]:
        """The root table, and all below it.

        Returns:
            Field name -> value; absent scalars have their default, other absent fields are None. Enums are
            names (or the number, if it has none), strings `str`, weights `memoryview`, options `bytes`, tables
            `dict`, vectors `tuple` or `list`, long ones `Numbers`. A union's type stays the number that it is
            in the file.

        Raises:
            Corrupt: The bytes do not hold such a table, or too much.
        """
        if self._end < 8:
            raise Corrupt(f"the file has only {self._end} bytes")
        return self.value(f":{name}", 0)

    def value(self, kind: str, reference: int) -> Any:
        """What a reference leads to.

        Args:
            kind: What is there, as in `schema.Field`.
            reference: Position of the reference in the file.

        Raises:
            Corrupt: As in `root`.
        """
        try:
            return self._reader(kind)(reference + _U32(self.data, reference)[0])
        except struct.error:
            raise Corrupt(PAST_THE_END) from None

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
        length: int = _U32(self.data, position)[0]
        if length > MAX_STRING:
            raise Corrupt(f"a string of {length:,} bytes")
        self.count_bytes(length, "strings")
        end = position + 4 + length
        if end > self._end:
            raise Corrupt("a string runs past the end")
        return text_of(self.data[position + 4 : end])

    def spend(self, numbers: int) -> None:
        """Count numbers that are about to be decoded.

        Raises:
            Corrupt: Together with all before they are too many.
        """
        self._elements -= numbers
        if self._elements < 0:
            raise Corrupt(f"more than {MAX_ELEMENTS:,} numbers")

    def count_tables(self, count: int) -> None:
        """Count tables that are about to be decoded.

        Raises:
            Corrupt: Together with all before they are too many.
        """
        self._tables -= count
        if self._tables < 0:
            raise Corrupt(f"more than {MAX_TABLES:,} tables")

    def count_bytes(self, count: int, what: str) -> None:
        """Count bytes of strings or options that may be copied.

        Raises:
            Corrupt: Together with all before they are too many.
        """
        self._strings -= count
        if self._strings < 0:
            raise Corrupt(f"more than {MAX_STRINGS:,} bytes of {what}")

    def _copied_bytes(self, position: int) -> bytes:
        data = self._bytes(position)
        self.count_bytes(len(data), "options")
        return bytes(data)

    def _bytes(self, position: int) -> memoryview:
        end: int = position + 4 + _U32(self.data, position)[0]
        if end > self._end:
            raise Corrupt(f"{end - position - 4:,} bytes are claimed and the file ends before")
        return self.data[position + 4 : end]

    def _number_reader(self, code: str) -> Callable[[int], Sequence[Any]]:
        data, width, short = self.data, _WIDTHS[code], _SHORT[code]

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
        data, read_one = self.data, self._reader(kind)
        apart = kind[1:] in self._apart

        def read(position: int) -> list[Any]:
            length: int = _U32(data, position)[0]
            if length > self._tables:
                raise Corrupt(f"more than {MAX_TABLES:,} tables")
            start = position + 4
            offsets = struct.unpack_from(f"<{length}I", data, start)
            positions = list(map(add, offsets, range(start, start + 4 * length, 4)))
            if apart or kind == "s":
                self._tables -= length
            return positions if apart else [read_one(one) for one in positions]

        return read

    def _table_reader(self, name: str) -> Callable[[int], dict[str, Any]]:
        data = self.data
        fields = self._schema[name]
        # Slots that the schema no longer uses have no name and are left out of dicts.
        names = [field.name for field in fields]
        gone = "" in names
        named = [] if name == "OperatorCode" else [field for field in fields if field.enum]
        enums = [(field.name, ENUM_NAMES[field.enum or ""]) for field in named if field.kind in _WIDTHS]
        enum_vectors = [(field.name, ENUM_NAMES[field.enum or ""]) for field in named if field.kind[0] == "["]

        def read(position: int) -> dict[str, Any]:
            plan = self._plan_of(name, position)
            self.count_tables(1)
            layout = plan.layout
            values: Sequence[Any] = layout.pick(layout.unpack(data, position) + layout.defaults)
            if plan.references or plan.unions:
                values = resolved = list(values)
                for slot, offset, read_value in plan.references:
                    resolved[slot] = read_value(position + offset + resolved[slot])
                for slot, offset, union in plan.unions:
                    resolved[slot] = self._union(union, resolved[slot - 1], position + offset + resolved[slot])
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

    def plain_size(self, name: str, vtable: int) -> int:
        """Bytes of a table that refers to no other: of those with one vtable, equal bytes decode alike.

        Returns:
            The size; 0 for tables that refer to others.

        Raises:
            Corrupt: That is no vtable of such a table.
        """
        layout = self.layout(name, vtable)
        return 0 if layout.references else layout.size

    def _union(self, union: str, number: int, position: int) -> Any:
        name = self.union_member(union, number)
        return None if name is None else self._reader(f":{name}")(position)

    def union_member(self, union: str, number: int) -> str | None:
        """The table that a union's type stands for; None for no table, or one that the schema does not know."""
        members = self._unions[union]
        if number == 0:
            return None
        if number >= len(members):
            self.unknown.add(f"{union}.{number}")
            return None
        return members[number]

    def _plan_of(self, name: str, position: int) -> _Plan:
        vtable = position - _I32(self.data, position)[0]
        plan = self._plans.get((name, vtable))
        if plan is None:
            plan = self._plan(name, vtable)
            if len(self._plans) < MAX_PLANS:
                self._plans[name, vtable] = plan
        return plan

    def layout(self, name: str, vtable: int) -> TableLayout:
        """How a kind of table is laid out under a vtable.

        Args:
            name: The kind.
            vtable: Position of the vtable.

        Raises:
            Corrupt: That is no vtable, or its fields overlap or lie outside of the table.
        """
        if vtable < 0 or vtable + 4 > self._end:
            raise Corrupt(f"the vtable of a {name} table lies outside of the file")
        size = _U16(self.data, vtable)[0]
        if size < 4 or size % 2 or size > 4 + 2 * MAX_SLOTS or vtable + size > self._end:
            raise Corrupt(f"the vtable of a {name} table is not one")
        layout = _layout(name, self._schema[name], bytes(self.data[vtable + 2 : vtable + size]))
        self.unknown.update(f"{name}.{slot}" for slot in layout.unknown)
        return layout

    def _plan(self, name: str, vtable: int) -> _Plan:
        fields = self._schema[name]
        layout = self.layout(name, vtable)
        # Weights stay in the file; options are small, and plain bytes are pleasant.
        copied = name not in {"Buffer", "Uint8Vector"}
        plan = _Plan(layout, [], [])
        for slot, offset in layout.references:
            kind = fields[slot].kind
            if kind[0] == "|":
                plan.unions.append((slot, offset, kind[1:]))
            else:
                reader = self._copied_bytes if copied and kind == "[B" else self._reader(kind)
                plan.references.append((slot, offset, reader))
        return plan
