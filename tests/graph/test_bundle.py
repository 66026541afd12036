"""Bundles made by LiteRT-LM's own builder, and zips, open to their models; broken ones are refused."""

import io
import random
import struct
import zipfile
from pathlib import Path

import made_models
import pytest
from litert_lm_builder import litertlm_builder

from assay.graph import GraphError, read, read_all, write
from assay.graph.bundle import entries, is_bundle


@pytest.fixture(scope="module")
def litertlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("litertlm")
    for name in ("conv", "half"):
        (folder / f"{name}.tflite").write_bytes(write(made_models.ALL[name]()))
    (folder / "tokenizer.spm").write_bytes(b"pieces")
    kinds = litertlm_builder.TfLiteModelType
    builder = litertlm_builder.LitertLmFileBuilder()
    author = litertlm_builder.Metadata(key="author", value="x", dtype=litertlm_builder.DType.STRING)
    builder.add_system_metadata(author)
    builder.add_tflite_model(str(folder / "conv.tflite"), kinds.PREFILL_DECODE, backend_constraint="cpu")
    builder.add_tflite_model(str(folder / "half.tflite"), kinds.EMBEDDER)
    builder.add_tflite_model(str(folder / "half.tflite"), kinds.EMBEDDER)
    builder.add_sentencepiece_tokenizer(str(folder / "tokenizer.spm"))
    path = folder / "model.litertlm"
    with path.open("wb") as stream:
        builder.build(stream)
    return path


def zipped(compression: int, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_", "."), data)
    return buffer.getvalue()


def test_parts_of_a_litertlm(litertlm: Path) -> None:
    assert is_bundle(litertlm)
    parts = entries(litertlm)
    assert [(part.name, part.kind) for part in parts] == [
        ("prefill_decode", "tflite_model"),
        ("embedder", "tflite_model"),
        ("embedder_2", "tflite_model"),
        ("sentencepiece_tokenizer", "sentencepiece_tokenizer"),
    ]
    assert parts[0].attributes == {"backend_constraint": "cpu"}
    assert bytes(parts[3].data) == b"pieces"


def test_models_of_a_litertlm(litertlm: Path) -> None:
    models = read_all(litertlm)
    assert list(models) == ["prefill_decode", "embedder", "embedder_2"]
    assert write(models["prefill_decode"]) == write(made_models.conv())
    # Constants that lie outside of the flatbuffer are found from the start of the section.
    half = models["embedder_2"]
    stored = next(tensor for tensor in half.subgraphs[0].tensors if tensor.is_constant)
    assert half.data(stored).tolist() == made_models.half().data(stored).tolist()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_models_of_a_task(compression: int, tmp_path: Path) -> None:
    conv, half = write(made_models.conv()), write(made_models.half())
    inner = zipped(compression, hand_tflite=half)
    path = tmp_path / "model.task"
    path.write_bytes(zipped(compression, face_tflite=conv, inner_task=inner, labels_txt=b"a", PREFILL=conv))
    assert [part.name for part in entries(path)] == [
        "face.tflite",
        "inner.task/hand.tflite",
        "labels.txt",
        "PREFILL",
    ]
    models = read_all(path)
    assert list(models) == ["face.tflite", "inner.task/hand.tflite", "PREFILL"]
    assert write(models["inner.task/hand.tflite"]) == write(read(half))


def test_a_tflite_is_its_own_only_model(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(write(made_models.conv()))
    assert not is_bundle(path)
    assert list(read_all(path)) == ["one.tflite"]
    with pytest.raises(GraphError, match=r"neither a \.litertlm nor a \.task"):
        entries(path)


def test_read_says_what_to_do_with_a_bundle(litertlm: Path) -> None:
    with pytest.raises(GraphError, match=r"is a bundle of models.*read_all"):
        read(litertlm)


def test_bundles_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "empty.task"
    path.write_bytes(zipped(zipfile.ZIP_STORED, labels_txt=b"a"))
    with pytest.raises(GraphError, match=r"holds no \.tflite model"):
        read_all(path)


def test_a_zip_that_inflates_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.graph.bundle.MAX_INFLATED", 1 << 20)
    path = tmp_path / "bomb.task"
    path.write_bytes(zipped(zipfile.ZIP_DEFLATED, a=bytes(900_000), b=bytes(900_000)))
    with pytest.raises(GraphError, match="inflates to more than 1,048,576 bytes"):
        read_all(path)


def test_zips_in_zips_end(tmp_path: Path) -> None:
    data = zipped(zipfile.ZIP_STORED, m_tflite=write(made_models.conv()))
    for _ in range(10):
        data = zipped(zipfile.ZIP_STORED, inner_task=data)
    path = tmp_path / "deep.task"
    path.write_bytes(data)
    with pytest.raises(GraphError, match="holds no"):
        read_all(path)


def test_a_litertlm_whose_header_lies(litertlm: Path, tmp_path: Path) -> None:
    data = bytearray(litertlm.read_bytes())
    path = tmp_path / "lie.litertlm"
    struct.pack_into("<Q", data, 24, 2**63)
    path.write_bytes(data)
    with pytest.raises(GraphError, match="header claims to end"):
        read_all(path)
    path.write_bytes(data[:20])
    with pytest.raises(GraphError, match="cut off"):
        read_all(path)


def test_wounded_bundles(litertlm: Path, tmp_path: Path) -> None:
    conv = write(made_models.conv())
    seeds = [
        litertlm.read_bytes()[:40_000],
        zipped(zipfile.ZIP_STORED, face_tflite=conv, labels_txt=b"a"),
        zipped(zipfile.ZIP_DEFLATED, face_tflite=conv, labels_txt=b"a"),
    ]
    rng = random.Random(0)
    path = tmp_path / "wounded.task"
    read_count = 0
    for _ in range(200):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 2, 5))):
            # The header of a .litertlm is at the start, the directory of a zip at the end.
            place = rng.randrange(400) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(200)
            data[place] = rng.randrange(256)
        path.write_bytes(data)
        try:
            read_all(path)
            read_count += 1
        except GraphError as error:
            assert "wounded.task" in str(error)
    assert 0 < read_count < 200
