"""The committed schema is the installed runtime's."""

from pathlib import Path

import make_schema
import pytest

from assay.graph import read
from assay.graph.schema import OPS, TABLES, UNIONS, op_name, op_number, options_type


def test_committed_schema_is_the_installed_one() -> None:
    assert make_schema.OUTPUT.read_text() == make_schema.render(make_schema.schema())


def test_tables_that_all_models_need() -> None:
    assert [field.name for field in TABLES["Conv2DOptions"]][:4] == [
        "padding",
        "stride_w",
        "stride_h",
        "fused_activation_function",
    ]
    assert TABLES["Tensor"][1].enum == "TensorType"
    # Two slots that the schema gave up, and a vector of numbers that only sounds like an enum.
    assert [field.name for field in TABLES["ResizeBilinearOptions"]][:2] == ["", ""]
    assert {field.name: field.enum for field in TABLES["StablehloConvolutionOptions"]}["padding"] is None


def test_op_names_go_both_ways() -> None:
    assert len(OPS) > 200
    for name, number in OPS.items():
        assert op_name(number) == name
        assert op_number(name) == number
    assert op_name(9999) == "BUILTIN_9999"
    assert op_number("BUILTIN_9999") == 9999
    assert op_number("Convolution2DTransposeBias") is None
    assert op_number("xBUILTIN_1") is None


def test_every_options_table_belongs_to_an_op() -> None:
    of_ops = {options_type(op) for op in OPS}
    assert {t for union in ("BuiltinOptions", "BuiltinOptions2") for t in UNIONS[union]} - {"NONE"} <= of_ops


@pytest.mark.parametrize("op", ["ADD", "CONV_2D", "MEAN", "MAX_POOL_2D", "STABLEHLO_COMPOSITE", "ATAN2"])
def test_options_type_names(op: str) -> None:
    expected = {
        "ADD": "AddOptions",
        "ATAN2": "ATan2Options",
        "CONV_2D": "Conv2DOptions",
        "MAX_POOL_2D": "Pool2DOptions",
        "MEAN": "ReducerOptions",
        "STABLEHLO_COMPOSITE": "StableHLOCompositeOptions",
    }
    assert options_type(op) == expected[op]


def test_options_types_of_real_models(real_models: dict[str, Path]) -> None:
    for path in real_models.values():
        for _, node in read(path).nodes():
            if node.options_type is not None:
                assert node.options_type == options_type(node.op)
