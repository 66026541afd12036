"""The envelope and the verdict, on real models and real kernels."""

import dataclasses
import json

import numpy as np
import pytest

from assay.errors import AssayError
from assay.graph import GraphBuilder, read, save
from assay.measure.judge import Judge, seeded_sets
from assay.numerics import faults
from assay.numerics.consistency import plan_sequence
from assay.numerics.envelope import Envelope, OutputNoise, deviation, learn
from assay.numerics.inputs import resolve_shapes
from assay.numerics.noise import PRECISIONS, natural_scales, noisy, summands
from assay.numerics.verdict import judge, judge_uncalibrated

KINDS = ("uniform", "structured")


def run(path, sets, plain=False):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else OpResolverType.BUILTIN
    try:
        interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise AssayError(str(error)) from error
    inputs = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    results = []
    for arrays in sets:
        for index, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        results.append([interpreter.get_tensor(index) for index in outputs])
    return results


class Subject:
    def __init__(self, path, folder):
        self.path, self.folder, self.model = path, folder, read(path)
        self.signature = self.model.signatures[0]
        self.sets = seeded_sets(self.model, self.signature, resolve_shapes(self.signature), 0, KINDS)
        self.inputs = [one.arrays for one in self.sets]
        self.names = [entry.name for entry in self.signature.outputs]
        self.reference = run(path, self.inputs)
        self.envelopes = {
            name: learn(self.model, run, self.inputs, self.reference, folder, precision=name, draws=4)
            for name in ("fp32", "fp16")
        }

    def judge(self, outputs, *precisions):
        levels = [self.envelopes[name] for name in precisions or ("fp32", "fp16")]
        scales = natural_scales(self.model, self.signature)
        return judge(self.reference, outputs, self.names, levels, set_names=list(KINDS), scales=scales)

    def changed(self, precision):
        path = self.folder / "changed.tflite"
        save(noisy(self.model, precision, 0), path)
        return run(path, self.inputs)


@pytest.fixture(scope="module")
def face(real_models, tmp_path_factory):
    return Subject(real_models["face_detection_short_range"], tmp_path_factory.mktemp("face"))


@pytest.fixture(scope="module")
def iris(real_models, tmp_path_factory):
    return Subject(real_models["iris_landmark"], tmp_path_factory.mktemp("iris"))


@pytest.mark.parametrize("name", ["face", "iris"])
def test_other_fp32_kernels_match_and_the_expected_error_is_near(name, request):
    subject = request.getfixturevalue(name)
    verdict = subject.judge(run(subject.path, subject.inputs, plain=True))
    assert verdict.label == "match", verdict.sentence
    assert verdict.output_match is True
    assert 0.2 < verdict.times_expected < 4


@pytest.mark.parametrize("name", ["face", "iris"])
def test_fp16_arithmetic_is_noise_for_an_fp16_lane_and_wrong_for_an_fp32_one(name, request):
    subject = request.getfixturevalue(name)
    half = subject.changed(dataclasses.replace(PRECISIONS["fp16"], sums=0.0, stored=0.0))
    verdict = subject.judge(half)
    assert verdict.label == "precision_noise", verdict.sentence
    assert verdict.max_abs_diff > 1e-3
    assert subject.judge(half, "fp32").label == "wrong"


def test_the_same_outputs_match_to_the_last_bit(face):
    verdict = face.judge(face.reference)
    assert verdict.label == "match"
    assert "last bit" in verdict.sentence


@pytest.mark.parametrize("kind", faults.KINDS)
def test_faults_in_an_output_are_wrong(face, kind):
    for size in faults.SIZES:
        outputs = [
            [faults.inject(kind, row[0], size=size, seed=3, previous=face.reference[s - 1][0]), row[1]]
            for s, row in enumerate(face.reference)
        ]
        if all(np.array_equal(a[0], b[0]) for a, b in zip(outputs, face.reference, strict=True)):
            continue
        verdict = face.judge(outputs)
        assert verdict.label == "wrong", (kind, size, verdict.sentence)
        assert "regressors" in verdict.sentence


def test_one_bad_channel_on_one_set_is_found_and_named(face):
    outputs = [list(row) for row in face.reference]
    bad = outputs[1][0].copy()
    bad[..., 5] += 20 * np.sqrt(face.envelopes["fp16"].noise[1][0].square[..., 5].mean())
    outputs[1][0] = bad
    verdict = face.judge(outputs)
    assert verdict.label == "wrong"
    assert "slice 5 of axis 2" in verdict.sentence or "times further" in verdict.sentence
    assert "'structured'" in verdict.sentence


def test_nan_another_shape_and_lost_outputs(face):
    nan = [[faults.inject("nan", row[0], size="small"), row[1]] for row in face.reference]
    assert "NaN" in face.judge(nan).sentence and face.judge(nan).label == "wrong"
    short = [[row[0][:, :-1], row[1]] for row in face.reference]
    assert face.judge(short).label == "wrong" and "shape" in face.judge(short).sentence


def test_an_output_on_which_zeros_pass_says_nothing(face):
    tiny = [[np.full((1, 4), 1e-12, np.float32)] for _ in KINDS]
    envelope = face.envelopes["fp32"]
    noise = dataclasses.replace(envelope.noise[0][0], square=np.full((1, 4), 1e-12, np.float32), rms=1e-6)
    envelope = dataclasses.replace(envelope, noise=[[noise], [noise]])
    verdict = judge(tiny, tiny, ["flag"], [envelope], set_names=list(KINDS))
    assert verdict.label == "not_measured"
    assert verdict.output_match is None
    assert "'flag' says nothing" in verdict.notes[0]


def test_the_verdict_is_json_and_deterministic(face):
    again = learn(face.model, run, face.inputs, face.reference, face.folder, precision="fp16", draws=4)
    assert again.noise[0][0].square.tobytes() == face.envelopes["fp16"].noise[0][0].square.tobytes()
    verdict = face.judge(run(face.path, face.inputs, plain=True))
    text = json.dumps(verdict.to_dict(), allow_nan=False)
    assert json.loads(text)["outputs"][0]["by_inputs"]["uniform"]["label"] == "match"
    assert set(verdict.metrics()) >= {"verdict", "verdict_sentence", "correlation"}


def test_int8_weights_are_noise_at_their_precision(iris):
    envelope = learn(iris.model, run, iris.inputs, iris.reference, iris.folder, precision="int8_weights", draws=4)
    lane = iris.changed(dataclasses.replace(PRECISIONS["int8_weights"], sums=0.0, stored=0.0, nearest=True))
    verdict = judge(iris.reference, lane, iris.names, [iris.envelopes["fp32"], envelope], set_names=list(KINDS))
    assert verdict.label == "precision_noise", verdict.sentence
    assert iris.judge(lane, "fp32").label == "wrong"


def overflowing(tmp_path):
    """x * 1000, squared, its mean and root again: fp16 overflows on the way, fp32 does not."""
    g = GraphBuilder()
    fused = {"fused_activation_function": "NONE"}
    x = g.input("x", (1, 64))
    big = g.op("MUL", [x, g.constant(np.float32(1000))], (1, 64), options=fused)
    square = g.op("MUL", [big, big], (1, 64), options=fused)
    axes = g.constant(np.array([1], np.int32))
    mean = g.op("MEAN", [square, axes], (1, 1), options={"keep_dims": True})
    y = g.op("SQRT", [mean], (1, 1))
    z = g.op("DIV", [big, y], (1, 64), options=fused)
    model = g.finish([z])
    path = tmp_path / "overflow.tflite"
    save(model, path)
    return Subject(path, tmp_path)


def test_an_overflow_that_fp16_explains_is_still_wrong(tmp_path):
    subject = overflowing(tmp_path)
    zeros = [[np.zeros_like(row[0])] for row in subject.reference]
    verdict = subject.judge(zeros)
    assert verdict.label == "wrong"
    assert "fp16 overflows" in verdict.sentence
    # A lane that does not overflow there is not blamed for what another would do.
    assert subject.judge(subject.reference).label == "match"


def test_a_model_that_cannot_be_calibrated_is_only_judged_where_it_is_certain():
    r = [[np.arange(10, dtype=np.float32)]]
    names, sets = ["y"], {"set_names": ["uniform"]}
    assert judge_uncalibrated(r, r, names, "no op", **sets).label == "match"
    near = [[r[0][0] + 0.01]]
    assert judge_uncalibrated(r, near, names, "no op", **sets).label == "not_measured"
    far = [[r[0][0] + 5]]
    assert judge_uncalibrated(r, far, names, "no op", **sets).label == "wrong"


def test_labels_count_changes_and_values_count_size():
    assert deviation(np.array([3, 900]), np.array([3, 1])).tolist() == [0, 1]
    assert deviation(np.array([3], np.int8), np.array([-3], np.int8)).tolist() == [-6]
    assert deviation(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])).tolist() == [0, 0]


def test_noise_leaves_the_model_alone_and_keeps_its_interface(face):
    before = [len(face.model.subgraphs[0].nodes), len(face.model.subgraphs[0].tensors), len(face.model.buffers)]
    changed = noisy(face.model, PRECISIONS["fp16"], 0)
    assert before == [
        len(face.model.subgraphs[0].nodes),
        len(face.model.subgraphs[0].tensors),
        len(face.model.buffers),
    ]
    assert [e.name for e in changed.signatures[0].inputs] == [e.name for e in face.signature.inputs]
    assert [e.name for e in changed.signatures[0].outputs] == face.names
    convolutions = [n for n in face.model.subgraphs[0].nodes if n.op == "CONV_2D"]
    assert summands(face.model.subgraphs[0], convolutions[0]) == 75


def test_an_unknown_precision(face):
    with pytest.raises(AssayError, match="no precision"):
        learn(face.model, run, face.inputs, face.reference, face.folder, precision="fp3")


class Lanes:
    """A judge of the face model, with the CPU lanes run in this process."""

    def __init__(self, face):
        self.calls = []
        self.sequence = plan_sequence(len(face.sets))
        self.judge = Judge(face.model, face.signature, face.sets, self.numbers, face.folder)
        outputs = run(face.path, [face.inputs[i] for i in self.sequence], plain=True)
        self.judge.set_reference("cpu_reference", self.sequence, outputs, 10.0)

    def numbers(self, lane, path, sets):
        self.calls.append(lane)
        return run(path, sets)


def test_the_judge_learns_only_what_it_needs(face):
    lanes = Lanes(face)
    right = run(face.path, [face.inputs[i] for i in lanes.sequence])
    found = lanes.judge.judge("gpu", "fp16", lanes.sequence, right)
    assert found.verdict.label == "match" and found.output_match is True
    assert [e["precision"] for e in found.envelopes] == ["fp32"]
    assert found.consistency.label == "consistent"
    json.dumps(found.to_dict(), allow_nan=False)
    assert lanes.judge.judge("cpu_reference", "fp32", lanes.sequence, right).verdict is None


def test_right_the_first_time_only_is_wrong(face):
    lanes = Lanes(face)
    outputs = run(face.path, [face.inputs[i] for i in lanes.sequence])
    outputs = [row if position == 0 else [row[0] * 1.5, row[1]] for position, row in enumerate(outputs)]
    found = lanes.judge.judge("gpu", "fp16", lanes.sequence, outputs)
    assert found.consistency.label == "first_run_only"
    assert found.verdict.label == "wrong"
    assert "first inference" in found.verdict.sentence


def test_a_bad_conversion_is_told_from_a_bad_lane(face):
    lanes = Lanes(face)
    right = run(face.path, [face.inputs[i] for i in lanes.sequence])
    lanes.judge.source = [[row[0] * 2, row[1]] for row in face.reference]
    found = lanes.judge.judge("gpu", "fp16", lanes.sequence, right)
    assert found.verdict.label == "match"
    assert found.source.label == "wrong"
    assert found.output_match is False


@pytest.mark.parametrize(
    ("share", "label"), [(0.001, "match"), (0.05, "precision_noise"), (0.5, "not_measured"), (50.0, "wrong")]
)
def test_a_wide_envelope_does_not_make_a_visible_difference_a_match(share, label):
    """Where the model blows rounding up, a lane that differs visibly is not said to agree."""
    right = np.random.default_rng(0).normal(size=(1, 100)).astype(np.float32)
    noise = OutputNoise(np.full((1, 100), 0.5, np.float32), rms=0.7, max_abs=2.0, lost=0.0)
    envelope = Envelope("fp32", 8, [[noise]])
    given = right + np.float32(share * right.std())
    verdict = judge([[right]], [[given]], ["y"], [envelope], set_names=["uniform"])
    judged = verdict.outputs[0].label
    assert judged == label
