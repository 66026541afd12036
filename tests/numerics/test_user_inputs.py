import numpy as np
import pytest

from assay.errors import AssayError
from assay.graph import GraphBuilder, Quantization
from assay.numerics.inputs import resolve_shapes
from assay.numerics.source import source_outputs
from assay.numerics.user_inputs import InputSet, load_inputs


def signature_of(*inputs):
    """A signature with inputs (name, shape, dtype, options) that are its outputs too."""
    g = GraphBuilder()
    tensors = [g.input(name, shape, dtype, **options) for name, shape, dtype, options in inputs]
    return g.finish(tensors).signatures[0]


IMAGE = ("image", (1, 4, 6, 3), "float32", {})
TOKENS = ("tokens", (1, 5), "int32", {})


def load(path, *inputs, **options):
    signature = signature_of(*inputs)
    return load_inputs(path, signature, resolve_shapes(signature), **options)


def picture(path, size=(12, 8)):
    pil = pytest.importorskip("PIL.Image")
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[:, : size[0] // 2] = (255, 0, 0)
    pil.fromarray(pixels).save(path)
    return path


def test_arrays_by_name_by_position_and_alone(tmp_path):
    image, tokens = np.ones((1, 4, 6, 3)), np.arange(5).reshape(1, 5)
    named, placed, alone = tmp_path / "named.npz", tmp_path / "placed.npz", tmp_path / "alone.npy"
    np.savez(named, tokens=tokens, image=image)
    np.savez(placed, **{"0": image, "1": tokens})
    np.save(alone, image.astype(np.float32))
    for path in (named, placed):
        (one,) = load(path, IMAGE, TOKENS)
        assert one.name == path.name
        assert [a.dtype for a in one.arrays] == [np.float32, np.int32]
        assert np.array_equal(one.arrays[1], tokens)
    assert load(alone, IMAGE)[0].arrays[0].shape == (1, 4, 6, 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp"])
def test_an_image_is_scaled_into_the_input(tmp_path, suffix):
    path = picture(tmp_path / f"red{suffix}")
    (one,) = load(path, IMAGE)
    red = one.arrays[0]
    assert red.dtype == np.float32 and red.shape == (1, 4, 6, 3)
    assert red[0, :, 0, 0].min() > 0.95 and red[0, :, 0, 1].max() < 0.05
    signed = load(path, IMAGE, image_range=(-1.0, 1.0))[0].arrays[0]
    assert np.allclose(signed, red * 2 - 1, atol=1e-6)
    first = load(path, ("image", (1, 3, 4, 6), "float32", {}))[0].arrays[0]
    assert np.array_equal(first[0].transpose(1, 2, 0), red[0])


def test_an_image_for_integer_inputs(tmp_path):
    path = picture(tmp_path / "red.png")
    raw = load(path, ("image", (1, 4, 6, 3), "uint8", {}))[0].arrays[0]
    assert raw.dtype == np.uint8 and raw.max() == 255
    scale = {"quantization": Quantization(scales=[1 / 255], zero_points=[-128])}
    steps = load(path, ("image", (1, 4, 6, 3), "int8", scale))[0].arrays[0]
    assert steps[0, 0, 0].tolist() == [127, -128, -128]


def test_a_folder_is_a_set_for_each_file(tmp_path):
    picture(tmp_path / "b.png")
    np.save(tmp_path / "a.npy", np.zeros((1, 4, 6, 3), np.float32))
    (tmp_path / "notes.txt").write_text("nothing")
    assert [one.name for one in load(tmp_path, IMAGE)] == ["a.npy", "b.png"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.npz", None, "does not exist"),
        ("text.txt", b"hello", "not a kind"),
        ("broken.npz", b"PK\x03\x04nothing", "cannot be read"),
        ("broken.npy", b"\x93NUMPY\x01\x00", "cannot be read"),
        ("broken.png", b"\x89PNG\r\n\x1a\n123", "cannot be read as an image"),
    ],
)
def test_bad_files_are_named_with_their_cause(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AssayError, match=words) as caught:
        load(path, IMAGE)
    assert name in str(caught.value)


def test_arrays_that_do_not_fit(tmp_path):
    path = tmp_path / "x.npz"
    for arrays, words in [
        ({"other": np.zeros(3), "more": np.zeros(3)}, "no array for the input 'image'"),
        ({"image": np.zeros((1, 4, 6)), "tokens": np.zeros((1, 5), int)}, "shape 1x4x6"),
        ({"image": np.zeros((1, 4, 6, 3)), "tokens": np.zeros((1, 5))}, "is float64"),
        ({"image": np.zeros((1, 4, 6, 3)), "tokens": np.full((1, 5), 2**40)}, "do not fit"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(AssayError, match=words):
            load(path, IMAGE, TOKENS)
    np.savez(path, image=np.array([{"a": 1}], dtype=object))
    with pytest.raises(AssayError, match="cannot be read"):
        load(path, IMAGE)
    with pytest.raises(AssayError, match="holds no inputs"):
        (tmp_path / "empty").mkdir()
        load(tmp_path / "empty", IMAGE)


def test_images_need_one_image_like_input(tmp_path):
    path = picture(tmp_path / "x.png")
    with pytest.raises(AssayError, match="2 inputs"):
        load(path, IMAGE, TOKENS)
    with pytest.raises(AssayError, match="images go into"):
        load(path, TOKENS)


X = np.arange(5, dtype=np.float32).reshape(1, 5)
VALUES = ("x", (1, 5), "float32", {})


def test_a_source_given_as_outputs(tmp_path):
    signature = signature_of(VALUES)
    path = tmp_path / "out.npz"
    one, two = InputSet("a.npy", [X]), InputSet("b.npy", [X + 1])
    np.savez(path, x=X)
    assert np.array_equal(source_outputs(str(path), signature, [one])[0][0], X)
    np.savez(path, **{"a.npy/x": X, "b.npy/0": X + 1})
    found = source_outputs(str(path), signature, [one, two])
    assert np.array_equal(found[1][0], X + 1)
    np.savez(path, y=X)
    with pytest.raises(AssayError, match="no array 'x'"):
        source_outputs(str(path), signature, [one])
    np.savez(path, x=X.T)
    with pytest.raises(AssayError, match="shape"):
        source_outputs(str(path), signature, [one])


def test_a_source_in_pytorch(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\ndef twice():\n    return lambda x: {'y': x * 2}\ndef bad():\n    return 1 / 0\n"
    )
    signature, sets = signature_of(VALUES), [InputSet("a", [X])]
    assert np.array_equal(source_outputs(f"{path}:twice", signature, sets)[0][0], X * 2)
    with pytest.raises(AssayError, match="no function"):
        source_outputs(f"{path}:thrice", signature, sets)
    with pytest.raises(AssayError, match="does not exist"):
        source_outputs(f"{tmp_path / 'none.py'}:f", signature, sets)
    with pytest.raises(AssayError, match="ZeroDivisionError"):
        source_outputs(f"{path}:bad", signature, sets)
    with pytest.raises(AssayError, match="not understood"):
        source_outputs("nonsense", signature, sets)


def test_a_missing_onnx_file_or_runtime_is_said(tmp_path):
    with pytest.raises(AssayError, match=r"onnxruntime|does not exist"):
        source_outputs(str(tmp_path / "m.onnx"), signature_of(VALUES), [InputSet("a", [X])])
