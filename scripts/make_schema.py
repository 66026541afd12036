"""Write src/assay/graph/schema.json: the .tflite schema of the installed runtime, compact, for our own reader.

Usage: python scripts/make_schema.py [OUTPUT]

The schema's enums, unions and tables are read out of the classes that `ai_edge_litert` ships. Those classes do
not say which integers are enums; `ENUM_FIELDS` below adds that. A test checks the committed file against a
fresh one.

A table is a list of fields in slot order, `[name, kind, default, enum]`. Kinds: a scalar is its `struct` code,
`s` a string, `:Name` a table, `|Union` a union (its type is the field before); a leading `[` makes a vector.
A union is the list of its members' names in order, `NONE` first.
"""

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as generated

OUTPUT = Path(__file__).resolve().parent.parent / "src" / "assay" / "graph" / "schema.json"

SCALARS = {
    "Bool": "?",
    "Int8": "b",
    "Uint8": "B",
    "Int16": "h",
    "Uint16": "H",
    "Int32": "i",
    "Uint32": "I",
    "Int64": "q",
    "Uint64": "Q",
    "Float32": "f",
    "Float64": "d",
}

#: A slot that the schema no longer uses.
GONE = ["", "", None, None]

#: Field name (or Table.field where the name alone is not enough) -> enum of its value.
ENUM_FIELDS = {
    "fused_activation_function": "ActivationFunctionType",
    "padding": "Padding",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
    "quantized_bias_type": "TensorType",
    "kernel_type": "LSTMKernelType",
    "combiner": "CombinerType",
    "in_data_type": "TensorType",
    "out_data_type": "TensorType",
    "output_type": "TensorType",
    "out_type": "TensorType",
    "idx_out_type": "TensorType",
    "key_dtype": "TensorType",
    "value_dtype": "TensorType",
    "mode": "MirrorPadMode",
    "comparison_direction": "StablehloComparisonDirection",
    "compare_type": "StablehloComparisonType",
    "precision_config": "StablehloPrecisionConfig",
    "algorithm": "RngAlgorithm",
    "reduce_function": "ReduceWindowFunction",
    "type_": "TensorType",
    "LSHProjectionOptions.type": "LSHProjectionType",
    "Tensor.type": "TensorType",
    "VariantSubType.type": "TensorType",
    "format": "DimensionType",
    "builtin_code": "BuiltinOperator",
    "custom_options_format": "CustomOptionsFormat",
}


def snake(name: str) -> str:
    """`fusedActivationFunction` -> `fused_activation_function`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def numbers(cls: type) -> dict[str, int]:
    """The constants of an enum class, by name."""
    return {key: value for key, value in vars(cls).items() if isinstance(value, int) and key[0] != "_"}


def field(table: str, name: str, add: str, cls_source: str) -> list[Any]:
    """One field, from the source of the table's `Add` function and of its class."""
    call = re.search(r"Prepend(\w+?)(?:Relative)?Slot\(\d+, .+, (\S+)\)\n", add)
    if call is None:
        raise SystemExit(f"{table}: cannot read {add!r}")
    kind, default = call[1], call[2]
    key = snake(name).rstrip("_")
    enum = ENUM_FIELDS.get(f"{table}.{key}", ENUM_FIELDS.get(key))
    if kind != "UOffsetT":
        text = {"True": "1", "False": "0"}.get(default, default)
        value = bool(int(text)) if kind == "Bool" else float(text) if kind.startswith("Float") else int(text)
        return [key, SCALARS[kind], value, enum]
    accessor = re.search(rf"    def {name}\(self.*?(?=\n    # |\Z)", cls_source, re.S)
    if accessor is None:
        raise SystemExit(f"{table}: no accessor for {name}")
    body = accessor[0]
    vector = "[" if "(self, j)" in body else ""
    if "self._tab.Union(" in body:
        union = {"builtin_options": "BuiltinOptions", "builtin_options2": "BuiltinOptions2"}.get(key)
        if union is None:
            union = "QuantizationDetails" if table == "QuantizationParameters" else "SparseIndexVector"
        return [key, f"|{union}", None, None]
    if made := re.search(r"obj = (\w+)\(\)", body):
        return [key, f"{vector}:{made[1]}", None, None]
    if "self._tab.String(" in body:
        return [key, f"{vector}s", None, None]
    scalar = re.search(r"number_types\.(\w+)Flags, a \+", body)
    if scalar is None:
        raise SystemExit(f"{table}: cannot read {body!r}")
    # `padding` of the StableHLO ops is a vector of numbers; the only vector of an enum is this one.
    return [key, f"[{SCALARS[scalar[1]]}", None, enum if key == "precision_config" else None]


def sources(path: Path) -> dict[str, str]:
    """The source of each function and class of a module, by name."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    return {
        item.name: "".join(lines[item.lineno - 1 : item.end_lineno])
        for item in ast.parse(text).body
        if isinstance(item, ast.FunctionDef | ast.ClassDef)
    }


def schema() -> dict[str, Any]:
    """The whole schema as plain data."""
    enums: dict[str, dict[str, int]] = {}
    unions: dict[str, list[str]] = {}
    tables: dict[str, list[list[Any]]] = {}
    classes = dict(inspect.getmembers(generated, inspect.isclass))
    source = sources(Path(generated.__file__))
    for name, cls in classes.items():
        if f"{name}Creator" in source:
            values = numbers(cls)
            unions[name] = sorted(values, key=values.__getitem__)
            if [values[member] for member in unions[name]] != list(range(len(values))):
                raise SystemExit(f"union {name} has gaps")
        elif f"{name}T" in classes:
            fields: dict[int, list[Any]] = {}
            for adder, add in source.items():
                slot = re.search(r"Slot\((\d+),", add)
                if slot is not None and re.fullmatch(rf"{name}Add[A-Z]\w*", adder):
                    fields[int(slot[1])] = field(name, adder[len(name) + 3 :], add, source[name])
            tables[name] = [fields.get(slot, GONE) for slot in range(max(fields, default=-1) + 1)]
        elif not name.endswith("T") and numbers(cls):
            enums[name] = numbers(cls)
    return {"enums": enums, "tables": tables, "unions": unions}


def render(document: dict[str, Any]) -> str:
    """JSON with one enum, table or union a line: compact, and readable in a diff."""
    parts: list[str] = []
    for section, entries in document.items():
        lines = [f'  "{name}": {json.dumps(entries[name])}' for name in sorted(entries)]
        parts.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    output = Path(sys.argv[1]) if sys.argv[1:] else OUTPUT
    output.write_text(render(schema()))
    print(output)
