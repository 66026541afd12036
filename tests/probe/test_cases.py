"""Cases and their models: JSON round trip, the CPU's reference, tolerance, the grid."""

import json

import numpy as np
import pytest

from assay.graph import read, write
from assay.probe import grid
from assay.probe.cases import Case, Operand, Result, build, probed
from assay.probe.reference import complete, difference, inputs_of, resolve, tolerance
from assay.probe.worker import signature_text

CONV = Case(
    "CONV_2D",
    (Operand((1, 5, 5, 4)), Operand((8, 3, 3, 4), half=True), Operand((8,), constant=True)),
    options={"padding": "SAME", "stride_w": 1, "stride_h": 1},
)


def test_json_round_trip_keeps_the_id():
    again = Case.from_json(json.loads(json.dumps(CONV.to_json())))
    assert again == CONV
    assert again.id == CONV.id


def test_the_cpu_says_the_output_shape_and_numbers():
    finished, data, reference = complete(CONV)
    assert data is not None
    assert finished.outputs[0].shape == (1, 5, 5, 8)
    assert reference.outputs is not None and reference.outputs[0].shape == (1, 5, 5, 8)


def test_half_weights_have_their_dequantize_before_the_op():
    model = build(CONV)
    assert [node.op for node in model.subgraphs[0].nodes] == ["DEQUANTIZE", "CONV_2D"]
    assert probed(model, "CONV_2D").op == "CONV_2D"
    assert "const float16[4]" in signature_text(complete(CONV)[0])


def test_a_case_that_no_kernel_takes_has_no_file():
    case = Case("ABS", (Operand((1, 4), "bool"),), (Result("bool"),))
    _, data, reference = complete(case)
    assert data is None
    assert reference.error


def test_a_sparse_constant_densifies_to_every_other_value():
    case = Case("DENSIFY", (Operand((2, 6), constant=True, domain="sparse"),), (Result(shape=(2, 6)),))
    model = build(case)
    dense = model.data(model.subgraphs[0].tensors[0])
    assert (dense[:, 1::2] == 0).all()
    assert (dense[:, ::2] != 0).all()
    _, data, reference = complete(case)
    assert data is not None and reference.outputs is not None
    added = inputs_of(case)[0]
    np.testing.assert_allclose(reference.outputs[0], added + dense)


def test_weight_only_ops_are_compared_on_real_weights():
    case = Case(
        "FULLY_CONNECTED",
        (Operand((1, 8)), Operand((4, 8), "int8", "c", 0, True)),
        options={"keep_num_dims": True},
    )
    finished, data, reference = complete(case)
    model = read(data)
    weights = model.subgraphs[0].tensors[1]
    real = model.data(weights).astype(np.float32) * np.asarray(weights.quantization.scales, np.float32)[:, None]
    np.testing.assert_allclose(reference.outputs[0], inputs_of(finished)[0] @ real.T, rtol=1e-5)


def test_tolerance_is_two_steps_for_quantized_and_none_for_booleans():
    quantized = Case("ABS", (Operand((4,), "int8", "t"),), (Result("int8", "t"),))
    assert tolerance(quantized, [np.zeros(4, np.int8)]) == 2
    boolean = Case("LESS", (Operand((4,)), Operand((4,))), (Result("bool"),))
    assert tolerance(boolean, [np.zeros(4, bool)]) == 0
    assert tolerance(CONV, [np.full(3, 5.0, np.float32)]) == pytest.approx(0.05)


def test_nan_on_one_side_is_an_infinite_difference():
    nan, one = np.array([np.nan]), np.array([1.0])
    assert difference([nan], [nan]) == 0
    assert difference([one], [nan]) == float("inf")
    assert difference([np.array([np.inf])], [np.array([np.inf])]) == 0


def test_plain_kernels_and_xnnpack_agree_on_a_convolution():
    finished, data, reference = complete(CONV)
    other = resolve(data, inputs_of(finished), "BUILTIN").outputs
    assert difference(reference.outputs, other) < 1e-4


def test_the_grid_covers_the_builtin_ops_with_distinct_cases():
    ops = grid.known_ops()
    assert len(ops) > 140
    assert {"CONV_2D", "BROADCAST_TO", "GATHER_ND", "DENSIFY", "IF", "VAR_HANDLE"} <= set(ops)
    some = list(grid.cases(["SOFTMAX", "BROADCAST_TO"]))
    assert len({case.id for case in some}) == len(some) > 100
    assert {case.op for case in some} == {"SOFTMAX", "BROADCAST_TO"}


def test_signature_in_the_probe_is_that_of_the_file():
    from assay.linting.signature import signature_of

    finished, data, _ = complete(CONV)
    model = read(data)
    subgraph = model.subgraphs[0]
    node = subgraph.nodes[-1]
    assert str(signature_of(model, subgraph, node)) == signature_text(finished)
    assert write(model)
