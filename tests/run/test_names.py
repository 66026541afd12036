"""A file's name becomes a model's id: one that records take, another for another file, the same every time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.models.artifact import LONGEST_ID, check_id, identify, model_ids, slug


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("face_landmark", "face_landmark"),
        ("My Model (v2)", "my-model-v2"),
        ("_private", "private"),
        (".tflite", "tflite"),
        ("modèle", "modele"),
        ("模型 v2", "v2-7f68f079"),
        ("模型", "unnamed-c98e118e"),
        ("x" * 101, "x" * 91 + "-c675a2e6"),
    ],
)
def test_the_name_that_comes_of_a_text(text: str, name: str):
    assert slug(text) == name


@given(st.text())
def test_records_take_every_name(text: str):
    check_id(slug(text))


def test_composed_and_decomposed_letters_are_the_same():
    assert slug("한글") == slug("\u1112\u1161\u11ab\u1100\u1173\u11af")


@given(st.lists(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1), unique=True))
def test_no_two_files_share_an_id(names: list[str]):
    paths = [Path("/models") / f"{name}.tflite" for name in names]
    assert len(set(model_ids(paths))) == len(paths)


def test_a_folder_tells_files_of_one_name_apart():
    assert model_ids([Path("/a/m.tflite"), Path("/b/m.tflite"), Path("/b/n.tflite")]) == ["a__m", "b__m", "n"]


def test_one_file_twice_has_one_id():
    assert model_ids([Path("/a/m.tflite"), Path("/a/../a/m.tflite")]) == ["m", "m"]


@pytest.mark.parametrize("name", ["", "../evil", ".hidden", "a b", "x" * (LONGEST_ID + 1), "模型"])
def test_ids_that_records_do_not_take(name: str):
    with pytest.raises(AssayError):
        check_id(name)


def test_what_is_no_file(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AssayError, match="cannot be read"):
        identify(tmp_path / "loop")
    assert model_ids([tmp_path / "loop"]) == ["loop"]
    with pytest.raises(AssayError, match="no regular file"):
        identify(Path("/dev/zero"))
    with pytest.raises(AssayError, match="not UTF-8"):
        identify(tmp_path / "bad\udcff.tflite")
