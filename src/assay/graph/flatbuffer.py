"""A FlatBuffers decoder that believes nothing: every offset, length and table is checked before it is used.

The format is described at https://flatbuffers.dev/internals/. Files come from strangers, and a flatbuffer can
lie about everything: this decoder raises `Corrupt` and never reads outside of the file, loops, or makes more
objects than its limits allow, whatever the bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
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
#: Bytes of one string, and of all strings.
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


class _Plan:
    """How one kind of table is laid out under one vtable: worked out once, used for every table that has it."""

    __slots__ = ("enums", "names", "references", "size", "template", "unpack")

    def __init__(self, name: str, fields: Sequence[Field], size: int, slots: Sequence[int]):
        self.size = size
        self.template: dict[str, Any] = {}
        self.references: list[tuple[str, str, int]] = []
        self.enums: list[tuple[str, dict[int, str]]] = []
        present: list[tuple[int, str, str]] = []
        for slot, field in enumerate(fields):
            if not field.name:
                continue
            self.template[field.name] = field.default
            scalar = field.kind in _WIDTHS
            if field.enum is not None and name != "OperatorCode":
                self.enums.append((field.name, ENUM_NAMES[field.enum]))
            offset = slots[slot] if slot < len(slots) else 0
            if offset:
                present.append((offset, field.name, field.kind if scalar else "I"))
                if not scalar:
                    self.references.append((field.name, field.kind, offset))
        present.sort()
        layout, end = "<", 0
        for offset, key, code in present:
            if offset < max(4, end) or offset + _WIDTHS[code] > size:
                raise Corrupt(f"field {key} of a {name} table lies outside of the table")
            layout += f"{offset - end}x{code}"
            end = offset + _WIDTHS[code]
        self.names = [key for _, key, _ in present]
        self.unpack = struct.Struct(layout).unpack_from


class Decoder:
    """Decodes tables of the `.tflite` schema, or of another one, from bytes that may be hostile.

    Args:
        data: The whole file (or the part of it that is the model).
        tables: Another schema's tables.
        unions: Another schema's unions.

    Attributes:
        unknown: Fields that the file has and this schema does not know, as `Table.slot`.
    """

    def __init__(
        self,
        data: memoryview,
        tables: Mapping[str, Sequence[Field]] = TABLES,
        unions: Mapping[str, Sequence[str]] = UNIONS,
    ):
        self.data = data
        self._schema = tables
        self._unions = unions
        self.unknown: set[str] = set()
        self._end = len(data)
        self._plans: dict[tuple[str, int], _Plan] = {}
        self._tables = MAX_TABLES
        self._elements = MAX_ELEMENTS
        self._strings = MAX_STRINGS

    def root(self, name: str) -> dict[str, Any]:
        """The root table, as a dict of its fields (see `table`)."""
        if self._end < 8:
            raise Corrupt(f"the file has only {self._end} bytes")
        return self.table(name, _U32(self.data, 0)[0])

    def table(self, name: str, position: int) -> dict[str, Any]:
        """A table of any kind, and all below it.

        Returns:
            Field name -> value; absent scalars have their default, other absent fields are None. Enums are
            names (or the number, if it has none), strings `str`, bytes `memoryview`, tables `dict`, vectors
            `tuple` or `list`, long ones `Numbers`. A union's type stays the number that it is in the file.

        Raises:
            Corrupt: The bytes do not hold such a table, or too much.
        """
        data = self.data
        if position < 4 or position + 4 > self._end:
            raise Corrupt(f"a {name} table lies outside of the file")
        vtable = position - _I32(data, position)[0]
        plan = self._plans.get((name, vtable))
        if plan is None:
            plan = self._plan(name, vtable)
        if position + plan.size > self._end:
            raise Corrupt(f"a {name} table runs past the end of the file")
        self._tables -= 1
        if self._tables < 0:
            raise Corrupt(f"more than {MAX_TABLES:,} tables")
        fields = plan.template.copy()
        fields.update(zip(plan.names, plan.unpack(data, position), strict=True))
        for key, kind, offset in plan.references:
            target = position + offset + fields[key]
            fields[key] = (
                self._union(fields, key, kind[1:], target) if kind[0] == "|" else self.value(kind, target)
            )
        for key, names in plan.enums:
            value = fields[key]
            if isinstance(value, tuple):
                fields[key] = tuple(names.get(number, number) for number in value)
            elif value is not None:
                fields[key] = names.get(value, value)
        return fields

    def value(self, kind: str, position: int) -> Any:
        """A string, table or vector at a position; kinds as in `schema.Field`."""
        if kind[0] == ":":
            return self.table(kind[1:], position)
        if position + 4 > self._end:
            raise Corrupt("a vector lies outside of the file")
        length: int = _U32(self.data, position)[0]
        start = position + 4
        element = kind[-1] if kind[0] == "[" and kind[1] in _WIDTHS else "I" if kind[0] == "[" else "B"
        if length * _WIDTHS[element] > self._end - start:
            raise Corrupt(f"a vector claims {length:,} elements and the file ends before")
        if kind == "s":
            return self._string(start, length)
        if kind == "[B":
            return self.data[start : start + length]
        if kind[1] in _WIDTHS:
            if length > EAGER:
                return Numbers(self.data[start : start + length * _WIDTHS[element]], element)
            self._elements -= length
            if self._elements < 0:
                raise Corrupt(f"more than {MAX_ELEMENTS:,} numbers")
            return struct.unpack_from(f"<{length}{element}", self.data, start)
        if length > self._tables:
            raise Corrupt(f"more than {MAX_TABLES:,} tables")
        offsets = struct.unpack_from(f"<{length}I", self.data, start)
        if kind[1] == ":":
            name = kind[2:]
            return [self.table(name, start + 4 * i + offset) for i, offset in enumerate(offsets)]
        self._tables -= length
        return [self.value(kind[1:], start + 4 * i + offset) for i, offset in enumerate(offsets)]

    def _string(self, start: int, length: int) -> str:
        self._strings -= length
        if length > MAX_STRING or self._strings < 0:
            raise Corrupt(f"a string of {length:,} bytes")
        return str(self.data[start : start + length], "utf-8", "backslashreplace")

    def _union(self, fields: dict[str, Any], key: str, union: str, position: int) -> Any:
        number: int = fields[f"{key}_type"]
        members = self._unions[union]
        if number == 0:
            return None
        if number >= len(members):
            self.unknown.add(f"{union}.{number}")
            return None
        return self.table(members[number], position)

    def _plan(self, name: str, vtable: int) -> _Plan:
        if vtable < 0 or vtable + 4 > self._end:
            raise Corrupt(f"the vtable of a {name} table lies outside of the file")
        vtable_size, table_size = _VTABLE(self.data, vtable)
        sound = vtable_size >= 4 and vtable_size % 2 == 0 and table_size >= 4
        if not sound or vtable_size > 4 + 2 * MAX_SLOTS or vtable + vtable_size > self._end:
            raise Corrupt(f"the vtable of a {name} table is not one")
        fields = self._schema[name]
        slots = struct.unpack_from(f"<{(vtable_size - 4) // 2}H", self.data, vtable + 4)
        for slot, offset in enumerate(slots[len(fields) :], start=len(fields)):
            if offset:
                self.unknown.add(f"{name}.{slot}")
        plan = _Plan(name, fields, table_size, slots)
        if len(self._plans) < MAX_PLANS:
            self._plans[name, vtable] = plan
        return plan
