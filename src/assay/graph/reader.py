"""From the bytes of a `.tflite` file to a `Model`: mapped into memory, checked once, weights untouched."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from assay.graph import associated
from assay.graph.check import check
from assay.graph.columns import Array, Rows, first
from assay.graph.errors import GraphError
from assay.graph.flatbuffer import Corrupt, Decoder, text_of
from assay.graph.model import Model, Subgraph
from assay.graph.outline import Outline
from assay.graph.parts import Buffer, Metadata, Node, OpCode, Quantization, Signature, SignatureTensor, Tensor
from assay.graph.schema import DTYPES, ENUMS, UNIONS, op_name

_CUSTOM = ENUMS["BuiltinOperator"]["CUSTOM"]
_NONE: tuple[Any, ...] = ()
#: The tables that a large model has by the thousand.
_APART = frozenset({"Buffer", "Operator", "Tensor"})


def read(source: Path | str | bytes | memoryview, *, path: Path | None = None) -> Model:
    """Read a `.tflite` model.

    The file is mapped, not loaded: a model of any size opens in milliseconds, and weights are read from the
    disk only when asked for. Everything that the file says is checked, in bounded time and memory, so that the
    objects can be walked without further care: indices are in range, shapes are not negative, nodes come after
    those that they depend on, subgraphs do not call themselves.

    Args:
        source: The file, or its bytes.
        path: Where bytes came from, for messages and `Model.path`.

    Raises:
        GraphError: The file cannot be read or is not a sound `.tflite` model. The message names file and cause.

    Example:
        >>> model = read("selfie_segmentation.tflite")
        >>> print(model.subgraphs[0].nodes[0])
        %245 = CONV_2D(%0, %1, %2) {padding=SAME, stride_w=2, ...}
    """
    if isinstance(source, (bytes, memoryview)):
        data, where = memoryview(source).cast("B"), path
    else:
        where = Path(source)
        data = map_file(where)
    name = str(where) if where else "the model"
    if bytes(data[:8]) == b"LITERTLM" or bytes(data[:4]) == b"PK\x03\x04":
        raise GraphError(
            f"{name} is a bundle of models, not one .tflite",
            fix="Read its models with assay.graph.read_all",
        )
    try:
        with collector_paused():
            model = _decode(data)
            model.path = where
            check(model)
    except Corrupt as error:
        raise GraphError(
            f"{name} is not a valid .tflite model: {error}", fix="Fetch or convert the file again"
        ) from None
    return model


@contextmanager
def collector_paused() -> Generator[None]:
    """Hold back Python's garbage collector while thousands of objects are made and none is given up."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def map_file(path: Path) -> memoryview:
    """The bytes of a file, mapped into memory.

    Raises:
        GraphError: There is no such file, it cannot be read, or it is empty.
    """
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise GraphError(f"{path} does not exist") from None
    except ValueError:
        raise GraphError(f"{path} is empty") from None
    except OSError as error:
        raise GraphError(f"{path} cannot be read: {error.strerror}") from None


def _decode(data: memoryview) -> Model:
    if bytes(data[4:8]) != b"TFL3":
        raise Corrupt("it has no TFL3 mark at byte 4")
    decoder = Decoder(data, apart=_APART)
    root = decoder.root("Model")
    buffers = _Buffers(decoder, root["buffers"] or _NONE)
    codes = [_op_code(code) for code in root["operator_codes"] or _NONE]
    subgraphs = [
        _subgraph(index, fields, codes, buffers, decoder)
        for index, fields in enumerate(root["subgraphs"] or _NONE)
    ]
    model = Model(
        description=root["description"] or "",
        version=root["version"],
        subgraphs=subgraphs,
        metadata=_metadata(root, buffers),
        op_codes=codes,
        external_buffer_groups=root["external_buffer_groups"] or [],
        external_buffers=root["external_buffers"] or [],
        metadata_buffer=tuple(root["metadata_buffer"] or _NONE),
        unknown=tuple(sorted(decoder.unknown)),
        trailing=associated.find(data, buffers.end),
        nbytes=len(data),
    )
    _check_signatures(root["signature_defs"] or _NONE, subgraphs)
    model.make_later(
        buffers=buffers.objects, signatures=lambda: _signatures(root["signature_defs"] or _NONE, subgraphs)
    )
    return model


def _outside(offsets: Array, sizes: Array, total: int, claim: str) -> Array:
    """Which of many have their bytes outside of the flatbuffer, after a check that these lie in the file.

    Args:
        offsets: Where the bytes are; 0 and 1 mean in the flatbuffer.
        sizes: How many there are.
        total: Bytes of the file.
        claim: The message's beginning, with a place for the position of the first that is wrong.
    """
    outside = offsets > 1
    # No sum of the two: it may overflow.
    bad = outside & ((offsets > total) | (sizes > total - np.minimum(offsets, total)))
    if (index := first(bad)) is not None:
        start = int(offsets[index])
        raise Corrupt(f"{claim.format(index)} {start:,} to {start + int(sizes[index]):,}, past the end")
    return outside


class _Buffers:
    """The buffers of a file.

    Attributes:
        sizes: Their sizes in bytes.
        end: Where in the file the last external one ends.
    """

    def __init__(self, decoder: Decoder, positions: Sequence[int]) -> None:
        self._data = decoder.data
        rows = Rows(decoder, "Buffer", positions)
        self._starts, self.sizes = rows.vectors("data")
        offsets, sizes = rows.numbers("offset"), rows.numbers("size")
        self._external = _outside(offsets, sizes, len(self._data), "buffer {} claims bytes")
        self._starts = np.where(self._external, offsets, self._starts).astype(np.int64)
        self.sizes = np.where(self._external, sizes, self.sizes).astype(np.int64)
        self.end = int(((self._starts + self.sizes) * self._external).max(initial=0))

    def __len__(self) -> int:
        return len(self.sizes)

    def bytes_of(self, index: int) -> memoryview:
        """The bytes of one buffer."""
        start = int(self._starts[index])
        return self._data[start : start + int(self.sizes[index])]

    def objects(self) -> list[Buffer]:
        """All buffers."""
        data, ends = self._data, (self._starts + self.sizes).tolist()
        return [
            Buffer(data[start:end] if start else b"", external)
            for start, end, external in zip(self._starts.tolist(), ends, self._external.tolist(), strict=True)
        ]


def _op_code(fields: dict[str, Any]) -> OpCode:
    # Files from before 2020 have only the old one-byte field; newer ones have both. The larger counts.
    number = max(fields["builtin_code"], fields["deprecated_builtin_code"])
    if number < 0:
        raise Corrupt(f"an op has the number {number}")
    if number == _CUSTOM:
        return OpCode(fields["custom_code"] or "", fields["version"], is_custom=True)
    return OpCode(op_name(number), fields["version"])


def _subgraph(
    index: int,
    fields: dict[str, Any],
    codes: list[OpCode],
    buffers: _Buffers,
    decoder: Decoder,
) -> Subgraph:
    tensors = _Tensors(decoder, fields["tensors"] or _NONE, buffers)
    nodes = _Nodes(decoder, fields["operators"] or _NONE, codes)
    subgraph = Subgraph(
        index=index,
        name=fields["name"] or "",
        tensors=[],
        nodes=[],
        inputs=_listed(fields["inputs"], decoder),
        outputs=_listed(fields["outputs"], decoder),
        debug_metadata_index=fields["debug_metadata_index"],
    )
    subgraph.make_later(tensors=tensors.objects, nodes=nodes.objects)
    subgraph.keep_outline(
        Outline(
            shapes=tensors.shapes,
            signatures=tensors.signatures,
            dtypes=tensors.dtypes,
            constant=tensors.constant,
            variable=tensors.variable,
            sparse=tensors.sparsity > 0,
            scales=tensors.scales,
            ops=codes,
            codes=nodes.codes,
            reads=nodes.reads,
            writes=nodes.writes,
            intermediates=nodes.intermediates,
            options=[options for options, _ in nodes.options],
            option_ids=nodes.option_ids,
            custom=nodes.custom,
            inputs=subgraph.inputs,
            outputs=subgraph.outputs,
            name=tensors.name,
            constant_bytes=tensors.constant_bytes,
        )
    )
    return subgraph


def _listed(numbers: Sequence[int] | None, decoder: Decoder) -> list[int]:
    """A vector as a list. Many tables may share one long vector, so that its length counts each time."""
    if not numbers:
        return []
    if not isinstance(numbers, tuple):
        decoder.spend(len(numbers))
    return list(numbers)


class _Tensors:
    """The tensors of a subgraph, decoded and checked as far as nothing else has to look at them again."""

    def __init__(self, decoder: Decoder, positions: Sequence[int], buffers: _Buffers) -> None:
        self._decoder, self._buffers = decoder, buffers
        rows = Rows(decoder, "Tensor", positions)
        self._rows = rows
        self._numbers = rows.numbers("buffer").astype(np.int64)
        if (index := first(self._numbers >= len(buffers))) is not None:
            raise Corrupt(f"tensor {index} has buffer {int(self._numbers[index])} of {len(buffers)}")
        self._outer = rows.numbers("external_buffer")
        self._starts, self._ends = rows.strings("name")
        self.shapes = rows.lists("shape")
        self.signatures = rows.lists("shape_signature")
        self.dtypes = [DTYPES.get(code) or f"type_{code}" for code in rows.numbers("type").tolist()]
        self.constant = (buffers.sizes[self._numbers] > 0) | (self._outer != 0) if len(rows) else self._outer != 0
        self.variable = rows.numbers("is_variable")
        self.sparsity = rows.references("sparsity")
        self._sparse = self._values("sparsity", ":SparsityParameters")
        self._variants = self._values("variant_tensors", "[:VariantSubType")
        self._quantize(rows)

    def _quantize(self, rows: Rows) -> None:
        targets = rows.targets("quantization")
        self._quantized = np.flatnonzero(targets)
        self._decoder.count_tables(len(self._quantized))
        self._parameters = parameters = Rows(self._decoder, "QuantizationParameters", targets[self._quantized])
        self.scales = np.zeros(len(rows), np.int64)
        self.scales[self._quantized] = parameters.vectors("scale")[1]
        # Converters write an empty table for tensors that are not quantized.
        filled = parameters.references("details") > 0
        for name in ("min", "max", "scale", "zero_point"):
            filled |= parameters.vectors(name)[1] > 0
        self._filled = np.flatnonzero(filled).tolist()
        kinds, details = parameters.numbers("details_type").tolist(), parameters.references("details").tolist()
        self._details: dict[int, tuple[str, Any]] = {}
        for place in np.flatnonzero(parameters.references("details")).tolist():
            name = self._decoder.union_member("QuantizationDetails", kinds[place])
            if name is not None:
                self._details[place] = name, self._decoder.value(f":{name}", details[place])

    def _values(self, name: str, kind: str) -> dict[int, Any]:
        """Tables that few tensors have, by tensor."""
        references = self._rows.references(name)
        return {
            index: self._decoder.value(kind, int(references[index]))
            for index in np.flatnonzero(references).tolist()
        }

    def name(self, index: int) -> str:
        return text_of(self._decoder.data[self._starts[index] : self._ends[index]])

    def constant_bytes(self, index: int) -> memoryview:
        return self._buffers.bytes_of(int(self._numbers[index]))

    def objects(self) -> list[Tensor]:
        data = self._decoder.data
        quantizations = self._quantizations()
        columns = zip(
            zip(self._starts.tolist(), self._ends.tolist(), strict=True),
            self.dtypes,
            self.shapes.tuples(),
            self.signatures.tuples(),
            self._numbers.tolist(),
            self.constant.tolist(),
            self.variable.tolist(),
            self._rows.numbers("has_rank").tolist(),
            self._outer.tolist(),
            strict=True,
        )
        # By position: these are made by the thousand.
        return [
            Tensor(
                index,
                text_of(data[start:end]),
                dtype,
                shape,
                signature or None,
                quantizations.get(index),
                buffer,
                constant,
                variable,
                self._sparse.get(index),
                has_rank,
                self._variants.get(index),
                outer,
            )
            for index, (
                (start, end),
                dtype,
                shape,
                signature,
                buffer,
                constant,
                variable,
                has_rank,
                outer,
            ) in enumerate(columns)
        ]

    def _quantizations(self) -> dict[int, Quantization]:
        parameters, value = self._parameters, self._decoder.value
        vectors = {name: parameters.references(name).tolist() for name in ("min", "max", "scale", "zero_point")}
        axes = parameters.numbers("quantized_dimension").tolist()
        owners = self._quantized.tolist()

        def vector(name: str, place: int, kind: str) -> Sequence[Any]:
            reference = vectors[name][place]
            return value(kind, reference) if reference else _NONE

        found: dict[int, Quantization] = {}
        for place in self._filled:
            details_type, details = self._details.get(place, (None, None))
            quantization = Quantization(
                scales=vector("scale", place, "[f"),
                zero_points=vector("zero_point", place, "[q"),
                axis=axes[place],
                min=vector("min", place, "[f"),
                max=vector("max", place, "[f"),
                details_type=details_type,
                details=details,
            )
            found[owners[place]] = quantization
        return found


class _Nodes:
    """The nodes of a subgraph, decoded and checked as far as nothing else has to look at them again."""

    def __init__(self, decoder: Decoder, positions: Sequence[int], ops: list[OpCode]) -> None:
        self._decoder, self._ops = decoder, ops
        self._rows = rows = Rows(decoder, "Operator", positions)
        self.codes = rows.numbers("opcode_index").astype(np.int64)
        if (index := first(self.codes >= len(ops))) is not None:
            raise Corrupt(f"node {index} has op code {int(self.codes[index])} of {len(ops)}")
        self.reads = rows.lists("inputs")
        self.writes = rows.lists("outputs")
        self.intermediates = rows.lists("intermediates")
        self._mutating = rows.lists("mutating_variable_inputs")
        starts, lengths = rows.vectors("custom_options")
        decoder.count_bytes(int(lengths.sum()), "options")
        self.custom = {
            index: bytes(decoder.data[int(starts[index]) : int(starts[index] + lengths[index])])
            for index in np.flatnonzero(lengths).tolist()
        }
        self._large = self._large_options(rows)
        self.options: list[tuple[dict[str, Any], str | None]] = [({}, None)]
        self.option_ids = self._read_options(rows)

    def _large_options(self, rows: Rows) -> dict[int, memoryview]:
        """Options that lie outside of the flatbuffer, by node."""
        places, sizes = rows.numbers("large_custom_options_offset"), rows.numbers("large_custom_options_size")
        data = self._decoder.data
        outside = _outside(places, sizes, len(data), "node {} claims options at bytes")
        return {
            index: data[int(places[index]) : int(places[index]) + int(sizes[index])]
            for index in np.flatnonzero(outside).tolist()
        }

    def _read_options(self, rows: Rows) -> list[int]:
        """Each node's options, as a position in `options`, where equal ones stand once."""
        ids = [0] * len(rows)
        known: dict[Any, int] = {}
        # No op has both: the second union only holds what was added when the first was full.
        for union, field in (("BuiltinOptions", "builtin_options"), ("BuiltinOptions2", "builtin_options2")):
            targets = rows.targets(field)
            if not targets.any():
                continue
            columns = (rows.numbers(f"{field}_type"), targets, rows.vtables(targets), rows.references(field))
            listed = zip(*(column.tolist() for column in columns), strict=True)
            for index, (kind, target, vtable, reference) in enumerate(listed):
                if target:
                    ids[index] = self._options(union, kind, target, vtable, reference, known) or ids[index]
        return ids

    def _options(
        self, union: str, kind: int, target: int, vtable: int, reference: int, known: dict[Any, int]
    ) -> int:
        # First the size of tables of this kind with this vtable, if equal bytes say that they are equal.
        size = known.get((union, kind, vtable))
        if size is None:
            name = self._decoder.union_member(union, kind)
            size = -1 if name is None else self._decoder.plain_size(name, vtable)
            known[union, kind, vtable] = size
        if size < 0:
            return 0
        content = bytes(self._decoder.data[target + 4 : target + size])
        key: Any = (union, kind, vtable, content)
        if size and key in known:
            return known[key]
        name = UNIONS[union][kind]
        table: dict[str, Any] = self._decoder.value(f":{name}", reference)
        if not size:
            key = (name, tuple(table.values()))
            try:
                if key in known:
                    return known[key]
            except TypeError:
                # Long vectors and tables inside of it: not worth a comparison.
                key = len(self.options)
        known[key] = len(self.options)
        self.options.append((table, name))
        return known[key]

    def objects(self) -> list[Node]:
        ops, options = self._ops, self.options
        no_mutating, no_inner = (
            (self._rows.references(name) == 0).tolist() for name in ("mutating_variable_inputs", "intermediates")
        )
        columns = zip(
            self.codes.tolist(),
            self.reads.tuples(),
            self.writes.tuples(),
            self.option_ids,
            self._mutating.tuples(),
            self.intermediates.tuples(),
            no_mutating,
            no_inner,
            self._rows.numbers("debug_metadata_index").tolist(),
            strict=True,
        )
        # By position: these are made by the thousand.
        return [
            Node(
                index,
                ops[code].op,
                ops[code].version,
                list(reads),
                list(writes),
                dict(options[option][0]),
                options[option][1],
                ops[code].is_custom,
                self.custom.get(index, b""),
                self._large.get(index),
                None if mutating_absent else mutating,
                None if inner_absent else list(inner),
                debug,
            )
            for index, (
                code,
                reads,
                writes,
                option,
                mutating,
                inner,
                mutating_absent,
                inner_absent,
                debug,
            ) in enumerate(columns)
        ]


def _metadata(root: dict[str, Any], buffers: _Buffers) -> list[Metadata]:
    entries = [Metadata(fields["name"] or "", fields["buffer"]) for fields in root["metadata"] or _NONE]
    for entry in entries:
        if entry.buffer >= len(buffers):
            raise Corrupt(f"metadata {entry.name!r} has buffer {entry.buffer} of {len(buffers)}")
    return entries


def _check_signatures(definitions: Sequence[dict[str, Any]], subgraphs: list[Subgraph]) -> None:
    for fields in definitions:
        number = fields["subgraph_index"]
        if number >= len(subgraphs):
            raise Corrupt(f"a signature has subgraph {number} of {len(subgraphs)}")
        outline = subgraphs[number].outlined()
        count = len(outline.dtypes) if outline else 0
        for entry in (*(fields["inputs"] or _NONE), *(fields["outputs"] or _NONE)):
            if entry["tensor_index"] >= count:
                raise Corrupt(f"a signature has tensor {entry['tensor_index']} of {count}")


def _signatures(definitions: Sequence[dict[str, Any]], subgraphs: list[Subgraph]) -> list[Signature]:
    if not definitions:
        return [default_signature(subgraphs[0])]
    signatures: list[Signature] = []
    for fields in definitions:
        number = fields["subgraph_index"]
        tensors = subgraphs[number].tensors
        sides: list[list[SignatureTensor]] = []
        for side in ("inputs", "outputs"):
            entries = fields[side] or _NONE
            sides.append(
                [SignatureTensor(entry["name"] or "", tensors[entry["tensor_index"]]) for entry in entries]
            )
        signatures.append(Signature(fields["signature_key"] or "", number, *sides))
    return signatures


def default_signature(subgraph: Subgraph) -> Signature:
    """The signature that stands in where a model has none: inputs and outputs by their tensors' names."""

    def named(indices: list[int]) -> list[SignatureTensor]:
        return [SignatureTensor(subgraph.tensors[i].name, subgraph.tensors[i]) for i in indices]

    return Signature(None, subgraph.index, named(subgraph.inputs), named(subgraph.outputs))
