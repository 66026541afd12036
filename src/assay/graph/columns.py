"""Tables that a model has by the thousand, decoded a field at a time instead of a table at a time.

What `flatbuffer.Decoder` does for one table after the other is done here for many at once, with NumPy, and with
the same care: positions are checked against the end of the file before anything is read there, and everything is
counted against the decoder's limits before it is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.graph.flatbuffer import MAX_STRING, PAST_THE_END, Corrupt, Decoder
from assay.graph.schema import TABLES

Array = NDArray[Any]
Positions = NDArray[np.int64]

_SLOTS = {name: {field.name: slot for slot, field in enumerate(fields)} for name, fields in TABLES.items()}
_DTYPES = {code: np.dtype(f"<{code}") for code in "bBhHiIqQfd"} | {"?": np.dtype("?")}


@dataclass(slots=True)
class Ragged:
    """Lists of whole numbers of different lengths, end to end.

    Attributes:
        flat: All numbers.
        starts: Where each list begins in `flat`, and where the last one ends.
    """

    flat: Array
    starts: Positions

    @classmethod
    def of(cls, lists: Sequence[Iterable[int]]) -> Ragged:
        """From lists.

        Raises:
            Corrupt: A number does not fit 64 bits.
        """
        sizes = [len(one) for one in lists]  # type: ignore[arg-type]
        try:
            flat = np.array(list(chain.from_iterable(lists)), np.int64)
        except OverflowError:
            raise Corrupt("an index or a size in it is absurdly large") from None
        return cls(flat, _ends(np.array(sizes, np.int64)))

    @property
    def lengths(self) -> Positions:
        """The length of each list."""
        return np.diff(self.starts)

    def owners(self) -> Positions:
        """For each number, which list it is in."""
        return np.repeat(np.arange(len(self.starts) - 1), self.lengths)

    def tuples(self) -> list[tuple[int, ...]]:
        """The lists."""
        whole = tuple(self.flat.tolist())
        starts = self.starts.tolist()
        return [whole[start:end] for start, end in pairwise(starts)]


def first(flags: Array) -> int | None:
    """Position of the first true flag, or None."""
    return int(flags.argmax()) if flags.any() else None


def _ends(lengths: Positions) -> Positions:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


class Rows:
    """Many tables of one kind.

    Args:
        decoder: The decoder of the file.
        name: The tables' name in the schema.
        positions: Where they are.

    Raises:
        Corrupt: Not all of them are tables.
    """

    def __init__(self, decoder: Decoder, name: str, positions: Sequence[int] | Positions) -> None:
        self._decoder = decoder
        self._slots = _SLOTS[name]
        self._fields = TABLES[name]
        self.positions: Positions = np.asarray(positions, np.int64)
        vtables = self.positions - self._gather("i", self.positions)
        # np.unique would do, and imports half of NumPy the first time.
        distinct: dict[int, int] = {}
        layout = [distinct.setdefault(vtable, len(distinct)) for vtable in vtables.tolist()]
        self._layout = np.array(layout, np.int64)
        layouts = [decoder.layout(name, vtable) for vtable in distinct]
        self._offsets = [*zip(*(layout.offsets for layout in layouts), strict=True)] or [()] * len(self._fields)
        ends = self.positions + np.array([layout.size for layout in layouts], np.int64)[self._layout]
        if int(ends.max(initial=0)) > len(decoder.data):
            raise Corrupt(PAST_THE_END)
        self._aligned = not (self.positions & 3).any()

    def __len__(self) -> int:
        return len(self.positions)

    def numbers(self, name: str) -> Array:
        """A scalar field of all tables; its default where a table does not have it."""
        field = self._fields[self._slots[name]]
        offsets, places = self._places(name)
        dtype = _DTYPES[field.kind]
        if not any(offsets):
            return np.full(len(self), field.default, dtype)
        if all(offsets):
            return self._within(field.kind, offsets, places)
        here = places > self.positions
        if dtype.itemsize <= 4:
            # A table without the field is read at its start, for nothing: four bytes are always there.
            return np.where(here, self._within(field.kind, offsets, places), dtype.type(field.default))
        found = np.full(len(self), field.default, dtype)
        found[here] = self._gather(field.kind, places[here])
        return found

    def references(self, name: str) -> Positions:
        """Where a field's references lie; 0 where a table does not have it."""
        offsets, places = self._places(name)
        if not any(offsets):
            return np.zeros(len(self), np.int64)
        return places if all(offsets) else np.where(places > self.positions, places, 0)

    def targets(self, name: str) -> Positions:
        """What a field refers to, as positions; 0 where a table does not have it."""
        offsets, places = self._places(name)
        if not any(offsets):
            return np.zeros(len(self), np.int64)
        found = places + self._within("I", offsets, places)
        return found if all(offsets) else np.where(places > self.positions, found, 0)

    def vtables(self, targets: Positions) -> Positions:
        """Where the vtables of tables are; 0 where a position is 0."""
        here = targets > 0
        found = np.zeros(len(targets), np.int64)
        found[here] = targets[here] - self._gather("i", targets[here])
        return found

    def vectors(self, name: str) -> tuple[Positions, Positions]:
        """Vectors of numbers: the position of the first element (0 where a table has none), and the length."""
        kind = self._fields[self._slots[name]].kind
        targets = self.targets(name)
        if not any(self._offsets[self._slots[name]]):
            return targets, targets
        # Position 0 has a number too, which stands for nothing here.
        here = targets > 0
        lengths = np.where(here, self._gather("I", targets), 0).astype(np.int64)
        targets = np.where(here, targets + 4, 0)
        if len(targets):
            width = 1 if kind == "s" else _DTYPES[kind[1]].itemsize
            if int((targets + lengths * width).max()) > len(self._decoder.data):
                raise Corrupt(PAST_THE_END)
        return targets, lengths

    def lists(self, name: str) -> Ragged:
        """Vectors of numbers, read; an absent one is empty."""
        targets, lengths = self.vectors(name)
        starts = _ends(lengths)
        total = int(starts[-1])
        self._decoder.spend(total)
        code = self._fields[self._slots[name]].kind[1]
        width = _DTYPES[code].itemsize
        places = np.repeat(targets - starts[:-1] * width, lengths) + np.arange(total) * width
        return Ragged(self._gather(code, places), starts)

    def strings(self, name: str) -> tuple[Positions, Positions]:
        """Where strings begin and end; both 0 where a table has none. Counted as if they were copied."""
        targets, lengths = self.vectors(name)
        longest = int(lengths.max(initial=0))
        if longest > MAX_STRING:
            raise Corrupt(f"a string of {longest:,} bytes")
        self._decoder.count_bytes(int(lengths.sum()), "strings")
        return targets, targets + lengths

    def _places(self, name: str) -> tuple[tuple[int, ...], Positions]:
        """A field's offsets in the layouts, 0 where it is absent, and its place in each table."""
        offsets = self._offsets[self._slots[name]]
        if len(offsets) < 2:
            return offsets, self.positions + offsets[0] if offsets else self.positions
        return offsets, self.positions + np.array(offsets)[self._layout]

    def _within(self, code: str, offsets: tuple[int, ...], places: Positions) -> Array:
        """Numbers at places inside of the tables, which are known to lie in the file."""
        width = _DTYPES[code].itemsize
        if width == 1 or width > 4 or not self._aligned or any(offset % width for offset in offsets):
            return self._gather(code, places)
        data = self._decoder.data
        return np.frombuffer(data, _DTYPES[code], len(data) // width)[places // width]

    def _gather(self, code: str, places: Positions) -> Array:
        """Numbers at places anywhere in the file."""
        dtype = _DTYPES[code]
        data = self._decoder.data
        width = dtype.itemsize
        if not len(places):
            return np.empty(0, dtype)
        if int(places.max()) + width > len(data) or int(places.min()) < 0:
            raise Corrupt(PAST_THE_END)
        if width == 1:
            return np.frombuffer(data, np.uint8)[places].view(dtype) if code != "?" else self._flags(places)
        if not (places & (width - 1)).any():
            return np.frombuffer(data, dtype, len(data) // width)[places // width]
        # Builders align; a file that does not is still read as what it says.
        each = np.frombuffer(data, np.uint8)[places[:, None] + np.arange(width)]
        return np.ascontiguousarray(each).view(dtype).reshape(-1)

    def _flags(self, places: Positions) -> Array:
        # Any byte but 0 is true; a view as bool would keep the byte.
        return np.frombuffer(self._decoder.data, np.uint8)[places] != 0
