import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.graph import GraphBuilder, Quantization
from assay.numerics.inputs import KINDS, make_inputs, resolve_shapes


def inputs_of(model, kind="uniform", seed=0, shapes=None):
    signature = model.signatures[0]
    return make_inputs(model, signature, resolve_shapes(signature, shapes), kind, seed)


def one_input(shape=(1, 8, 8, 3), dtype="float32", name="x", **options):
    g = GraphBuilder()
    x = g.input(name, shape, dtype, **options)
    return g.finish([x])


def indexing(op="GATHER", table=(7, 4), indices=(5,), between=None, **options):
    """A graph whose int32 input indexes a table, after a chain of ops."""
    g = GraphBuilder()
    i = g.input("ids", indices, "int32")
    value = i
    for step in between or []:
        value = step(g, value)
    t = g.constant(np.zeros(table, np.float32))
    operands = [value, t] if op == "EMBEDDING_LOOKUP" else [t, value]
    return g.finish([g.op(op, operands, (5, 4), options=options)])


# The bytes must not change between machines or NumPy versions: goldens, one for each kind.
GOLDEN = {
    "uniform": "e8e35e0199cef584",
    "normal": "94d58d60f3596aae",
    "small": "4ef77130ac9d0697",
    "large": "e47632dd2c76d76b",
    "zeros": "ef115a0e0c15cdc4",
    "structured": "fec0b69f64426dae",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_everywhere(kind):
    array = inputs_of(one_input(), kind, seed=7)[0]
    assert hashlib.sha256(array.tobytes()).hexdigest()[:16] == GOLDEN[kind]


@given(st.sampled_from(KINDS), st.integers(-(2**70), 2**70))
@settings(max_examples=30)
def test_any_seed_is_repeatable_and_finite(kind, seed):
    model = one_input((2, 3))
    first, second = inputs_of(model, kind, seed)[0], inputs_of(model, kind, seed)[0]
    assert first.tobytes() == second.tobytes()
    assert np.isfinite(first).all()
    assert first.dtype == np.float32 and first.shape == (2, 3)


def test_distributions():
    model = one_input((1, 100, 100, 3))
    uniform, normal = inputs_of(model, "uniform")[0], inputs_of(model, "normal")[0]
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert abs(inputs_of(model, "large")[0].std() - 16) < 0.3
    assert abs(inputs_of(model, "small")[0].std() - 2**-10) < 1e-4
    assert not inputs_of(model, "zeros")[0].any()
    structured = inputs_of(model, "structured")[0]
    assert structured.min() >= 0 and structured.max() <= 1
    assert not np.array_equal(structured, structured.transpose(0, 2, 1, 3))
    assert not np.array_equal(structured, structured[:, ::-1])
    assert not np.array_equal(structured, np.roll(structured, 1, axis=2))


def test_inputs_of_one_signature_differ():
    g = GraphBuilder()
    a, b = g.input("a", (4,)), g.input("b", (4,))
    model = g.finish([g.op("ADD", [a, b], (4,), options={"fused_activation_function": "NONE"})])
    first, second = inputs_of(model)
    assert not np.array_equal(first, second)


def reshape(g, value):
    return g.op("RESHAPE", [value, g.constant(np.array([5], np.int32))], (5,), dtype="int32")


def plus(offset):
    def step(g, value):
        return g.op("ADD", [value, g.constant(np.array([offset], np.int32))], (5,), dtype="int32")

    return step


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "bound"),
    [
        (indexing(), 7),
        (indexing(axis=1), 4),
        (indexing("EMBEDDING_LOOKUP"), 7),
        (indexing("GATHER_ND", indices=(5, 1)), 7),
        (indexing("GATHER_ND", indices=(5, 2)), 4),
        (indexing(indices=(1, 5), between=[reshape]), 7),
        (indexing(between=[plus(2)]), 5),
        # Adding the table's length repairs negative indices; that arm alone allows none.
        (indexing(between=[plus(7)]), 8),
    ],
)
def test_indices_stay_in_the_table(kind, model, bound):
    values = inputs_of(model, kind, seed=3)[0]
    assert values.dtype == np.int32
    assert values.min() >= 0 and values.max() < bound


def test_one_hot_depth_bounds_the_index():
    g = GraphBuilder()
    i = g.input("i", (64,), "int32")
    depth = g.constant(np.array(3, np.int32))
    on, off = g.constant(np.array(1, np.float32)), g.constant(np.array(0, np.float32))
    model = g.finish([g.op("ONE_HOT", [i, depth, on, off], (64, 3), options={"axis": -1})])
    assert set(inputs_of(model)[0]) == {0, 1, 2}


def test_quantized_inputs_cover_their_range():
    model = one_input((1, 64, 64, 3), "int8", quantization=Quantization(scales=[0.1], zero_points=[-5]))
    uniform = inputs_of(model)[0]
    assert uniform.min() == -128 and uniform.max() == 127
    assert np.unique(inputs_of(model, "zeros")[0]).tolist() == [-5]
    assert abs(float(inputs_of(model, "small")[0].astype(float).mean()) + 5.5) < 1


def test_masks_and_booleans():
    mask = inputs_of(one_input((4, 8), name="attention_mask"))[0]
    assert set(np.unique(mask)) == {0.0, 1.0}
    assert (mask[:, 0] == 1).all()
    assert (inputs_of(one_input((4, 8), name="attention_mask"), "zeros")[0][:, 0] == 1).all()
    flags = inputs_of(one_input((64,), "bool", name="flags"))[0]
    assert flags.dtype == np.bool_ and flags.any() and not flags.all()


def test_shapes():
    model = one_input((1, 8), shape_signature=(-1, 8))
    signature = model.signatures[0]
    assert resolve_shapes(signature) == {"x": (1, 8)}
    assert resolve_shapes(signature, {"x": (4, 8)}) == {"x": (4, 8)}
    for wrong, words in [
        ({"y": (1, 8)}, "no input"),
        ({"x": (8,)}, "dimensions"),
        ({"x": (4, 9)}, "fixed at 8"),
        ({"x": (0, 8)}, "1 or more"),
        ({"x": (2**40, 8)}, "4 GiB"),
    ]:
        with pytest.raises(AssayError, match=words):
            resolve_shapes(signature, wrong)
    with pytest.raises(AssayError, match="no kind"):
        inputs_of(model, "nothing")
    with pytest.raises(AssayError, match="type string"):
        inputs_of(one_input((1,), "string"))


def test_a_cycle_of_long_chains_ends():
    """A hostile graph with thousands of steps does not keep the walk going."""
    chain = [plus(1)] * 3000
    assert inputs_of(indexing(table=(5000, 1), between=chain))[0].max() < 2000
