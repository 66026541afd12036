"""Files made to break a reader, and what is done with each: everything that a user could do with it."""

import random
import struct
from typing import Any

from hypothesis import strategies as st

from assay.graph import Buffer, GraphError, Model, cut, read, summarize, tap, write
from assay.graph.encoder import Encoder
from assay.graph.facts import to_json
from assay.graph.schema import TABLES, UNIONS
from assay.linting import lint
from assay.report.graph_html import render_graph

#: Numbers that off-by-one errors, signs and overflows are made of.
EVIL = [0, 1, 2, 3, 4, 7, 8, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF]
EVIL += [0x80000000, 0xFFFFFFFC, 0xFFFFFFFE, 0xFFFFFFFF]


def exercise(data: bytes) -> bool:
    """Read a file and use every function on what it gives. Any exception but GraphError is a failure.

    Returns:
        True if the file could be read.
    """
    try:
        model = read(data)
    except GraphError as error:
        assert str(error)
        return False
    to_json(summarize(model))
    for subgraph in model.subgraphs:
        str(subgraph)
        for tensor in subgraph.tensors:
            repr(tensor)
            if tensor.is_constant and len(model.buffers[tensor.buffer]) < 1 << 16:
                _refusable(lambda tensor=tensor: model.data(tensor))
    _refusable(lambda: render_graph(model))
    _refusable(lambda: lint(model).to_json())
    _rewrite(model)
    main = model.subgraphs[0]
    if main.nodes:
        _refusable(lambda: write(cut(model, [main.nodes[-1].index])))
        _refusable(lambda: write(tap(model, main.nodes[0].outputs[:1])))
    return True


def _rewrite(model: Model) -> None:
    try:
        written = write(model)
    except GraphError:
        return
    again = read(written)
    assert [str(subgraph) for subgraph in again.subgraphs] == [str(subgraph) for subgraph in model.subgraphs]
    assert [bytes(b.data) for b in again.buffers] == [bytes(b.data) for b in model.buffers or [Buffer()]]


def _refusable(call: Any) -> None:
    try:
        call()
    except GraphError as error:
        assert str(error)


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A file with one to eight wounds."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if len(out) < 16:
            break
        # Structure is mostly at the two ends of a file; weights, which nothing checks, are in between.
        reach = min(len(out) - 8, rng.choice((64, 1024, 16384, len(out))))
        place = rng.randrange(reach) if rng.random() < 0.6 else len(out) - 8 - rng.randrange(reach)
        kind = rng.randrange(8)
        if kind == 0:
            out[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[place] = rng.randrange(256)
        elif kind == 2:
            struct.pack_into("<I", out, place & ~3, rng.choice(EVIL))
        elif kind == 3:
            struct.pack_into("<H", out, place & ~1, rng.choice(EVIL) & 0xFFFF)
        elif kind == 4:
            struct.pack_into("<I", out, place & ~3, rng.randrange(len(out)))
        elif kind == 5:
            (value,) = struct.unpack_from("<i", out, place & ~3)
            moved = value + rng.choice((-8, -4, -1, 1, 4, 8))
            struct.pack_into("<I", out, place & ~3, moved & 0xFFFFFFFF)
        elif kind == 6:
            source, length = rng.randrange(len(out)), rng.choice((4, 16, 64))
            out[place : place + length] = out[source : source + length]
        else:
            del out[place : place + rng.choice((1, 4, len(out)))]
    return bytes(out)


def tables(name: str, depth: int = 6) -> st.SearchStrategy[dict[str, Any]]:
    """Tables of the schema that encode, with any values: indices into nothing, negative shapes, cycles."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in TABLES[name]:
        if field.name and field.kind[0] != "|" and not field.name.endswith("_type"):
            fields[field.name] = _values(field.kind, depth)
    plain = st.fixed_dictionaries({}, optional=fields)
    union = {"Operator": "BuiltinOptions"}.get(name)
    if union is None or depth == 0:
        return plain

    def with_options(table: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        numbers = st.integers(1, len(UNIONS[union]) - 1)
        return numbers.flatmap(
            lambda number: tables(UNIONS[union][number], depth - 1).map(
                lambda options: table | {"builtin_options_type": number, "builtin_options": options}
            )
        )

    return plain | plain.flatmap(with_options)


_RANGES = {"?": (0, 1), "b": (-128, 127), "B": (0, 255), "h": (-(2**15), 2**15 - 1), "H": (0, 2**16 - 1)}
_RANGES |= {"i": (-(2**31), 2**31 - 1), "I": (0, 2**32 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}


def _values(kind: str, depth: int) -> st.SearchStrategy[Any]:
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return st.integers(max(low, -2), min(high, 4)) | st.integers(low, high)
    if kind in "fd":
        return st.floats(width=32)
    if kind == "s":
        return st.text(max_size=8)
    if kind[0] == ":":
        return tables(kind[1:], depth - 1) if depth else st.none()
    if depth == 0 and kind[1] == ":":
        return st.none()
    return st.lists(_values(kind[1:], depth), max_size=4)


def encoded(root: dict[str, Any]) -> bytes:
    """A file with this root table, whatever is in it."""
    return b"".join(Encoder().file("Model", root, b"TFL3"))


def plausible() -> st.SearchStrategy[dict[str, Any]]:
    """Root tables that mostly read: six tensors, nodes in order, and any op, options, types and sparsity."""
    stored = {"data": st.binary(max_size=40)}
    tensor = {
        "type": st.integers(0, 24),
        "name": st.text(max_size=8),
        "quantization": tables("QuantizationParameters", 1),
        "is_variable": st.booleans(),
        "variant_tensors": st.lists(tables("VariantSubType", 0), max_size=2),
    }
    weights = tensor | {"buffer": st.integers(0, 2), "sparsity": tables("SparsityParameters", 2)}
    shape = {"shape": st.lists(st.integers(0, 5), max_size=5)}
    node = {
        "custom_options": st.binary(max_size=8),
        "intermediates": st.lists(st.integers(-1, 5), max_size=2),
        "mutating_variable_inputs": st.lists(st.booleans(), max_size=2),
    }

    def operators(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each node reads what there is before it and writes the next tensor."""
        return [
            one | {"opcode_index": i, "inputs": [min(t, 2 + i) for t in one["inputs"]], "outputs": (3 + i,)}
            for i, one in enumerate(nodes)
        ]

    inputs = st.fixed_dictionaries({"inputs": st.lists(st.integers(-1, 5), max_size=5)}, optional=node)
    options = st.integers(1, len(UNIONS["BuiltinOptions"]) - 1).flatmap(
        lambda number: st.fixed_dictionaries(
            {
                "builtin_options_type": st.just(number),
                "builtin_options": tables(UNIONS["BuiltinOptions"][number], 0),
            }
        )
    )
    nodes = st.lists(st.tuples(inputs, options).map(lambda pair: pair[0] | pair[1]), min_size=3, max_size=3)
    before = st.fixed_dictionaries(shape, optional=weights)
    after = st.fixed_dictionaries(shape, optional=tensor)
    graph = st.fixed_dictionaries(
        {
            "tensors": st.tuples(before, before, before, after, after, after),
            "operators": nodes.map(operators),
            "inputs": st.just((0,)),
            "outputs": st.lists(st.integers(0, 5), max_size=3),
        }
    )
    code = st.fixed_dictionaries({"builtin_code": st.integers(0, 215)})
    return st.fixed_dictionaries(
        {
            "operator_codes": st.tuples(code, code, code),
            "subgraphs": st.tuples(graph),
            "buffers": st.tuples(st.just({}), st.fixed_dictionaries(stored), st.fixed_dictionaries(stored)),
        },
        optional={"description": st.text(max_size=8)},
    )
