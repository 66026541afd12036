"""The zip of associated files (labels, vocabularies) that may follow a flatbuffer.

Its format is PKWARE's APPNOTE 6.3: entries, a central directory that has the place of each, and an end record
that has the place of the directory. Places count from the start of the file or of the zip, as the writer liked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_END = struct.Struct("<4s4H2LH")
_HEADER = struct.Struct("<4s6H3L5H2L")


def find(data: memoryview, after: int) -> memoryview | bytes:
    """The zip at the end of a file, or nothing.

    Args:
        data: The file.
        after: The zip starts here or later.
    """
    if len(data) < _END.size:
        return b""
    tag, _, _, _, _, size, offset, comment = _END.unpack_from(data, len(data) - _END.size)
    directory = len(data) - _END.size - size
    if tag != b"PK\x05\x06" or comment or directory < 0:
        return b""
    places = [place for _, place in _entries(data, directory, directory + size)]
    if not places:
        return b""
    start = directory - offset + min(places)
    if start < max(8, after) or bytes(data[start : start + 4]) != b"PK\x03\x04":
        return b""
    return data[start:]


def moved(archive: bytes | memoryview, start: int) -> bytes:
    """The zip that `find` gave, with places that count from the start of a file in which it lies at `start`."""
    copy = bytearray(archive)
    directory = len(copy) - _END.size - struct.unpack_from("<L", copy, len(copy) - 10)[0]
    entries = list(_entries(memoryview(copy), directory, len(copy) - _END.size))
    lowest = min(place for _, place in entries)
    for position, place in entries:
        struct.pack_into("<L", copy, position + 42, start + place - lowest)
    struct.pack_into("<L", copy, len(copy) - 6, start + directory)
    return bytes(copy)


def _entries(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Where in the directory each entry's header is, and the place that it gives."""
    while position + _HEADER.size <= end:
        header = _HEADER.unpack_from(data, position)
        if header[0] != b"PK\x01\x02":
            return
        yield position, header[16]
        position += _HEADER.size + header[10] + header[11] + header[12]
