"""LiteRT.js in the cache: integrity, safe unpacking, versions."""

import base64
import hashlib
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.lanes.browser import litertjs


def archive(path, entries):
    """An npm archive with the entries given as name -> bytes or a prepared TarInfo."""
    with tarfile.open(path, "w:gz") as target:
        for name, content in entries.items():
            if isinstance(content, tarfile.TarInfo):
                target.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                target.addfile(info, io.BytesIO(content))
    return path


def integrity(path, kind="sha512"):
    return f"{kind}-{base64.b64encode(hashlib.new(kind, path.read_bytes()).digest()).decode()}"


@pytest.mark.parametrize("kind", ["sha256", "sha384", "sha512"])
def test_the_right_hash_passes_and_a_changed_byte_does_not(tmp_path, kind):
    path = archive(tmp_path / "a.tgz", {"package/a.js": b"1"})
    expected = integrity(path, kind)
    litertjs.check_integrity(path, expected)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(AssayError, match="its hash is"):
        litertjs.check_integrity(path, expected)


def test_a_weak_hash_is_no_hash(tmp_path):
    path = archive(tmp_path / "a.tgz", {"package/a.js": b"1"})
    with pytest.raises(AssayError, match="unknown kind"):
        litertjs.check_integrity(path, "sha1-abc")


def test_unpacks_the_package(tmp_path):
    path = archive(tmp_path / "a.tgz", {"package/dist/index.js": b"code", "package/package.json": b"{}"})
    litertjs.unpack(path, tmp_path / "out")
    assert (tmp_path / "out" / "dist" / "index.js").read_bytes() == b"code"


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "entries",
    [
        {"package/../../evil": b"x"},
        {"/etc/evil": b"x"},
        {"evil": b"x"},
        {"package/..\\evil": b"x"},
        {"package/l": link("package/l", "/etc/passwd", tarfile.SYMTYPE)},
        {"package/l": link("package/l", "../../x", tarfile.LNKTYPE)},
        {"package/f": link("package/f", "", tarfile.FIFOTYPE)},
    ],
)
def test_nothing_is_written_outside_and_no_links_are_made(tmp_path, entries):
    path = archive(tmp_path / "a.tgz", entries)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(AssayError, match="refused its entry"):
        litertjs.unpack(path, tmp_path / "deep" / "out")
    assert {p for p in tmp_path.rglob("*") if p.is_file() or p.is_symlink()} <= before


@given(data=st.binary(max_size=200))
def test_any_bytes_for_an_archive_are_refused_cleanly(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.tgz").write_bytes(data)
    with pytest.raises(AssayError, match=r"a\.tgz"):
        litertjs.unpack(folder / "a.tgz", folder / "out")


@pytest.mark.parametrize("version", ["../x", "2.5", "2.5.3/..", "", "latest", "2.5.3\n"])
def test_a_version_names_a_folder_so_it_is_checked(version):
    with pytest.raises(AssayError, match="not a version"):
        litertjs.check_version(version)


def test_versions_live_side_by_side_and_a_cached_one_needs_no_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    for version in ("2.10.0", "2.5.3", "2.5.10"):
        folder = tmp_path / "litertjs" / version
        folder.mkdir(parents=True)
        note = {"integrity": {}, "pinned": version == "2.5.3", "version": version}
        (folder / "installed.json").write_text(json.dumps(note))
    assert [one.version for one in litertjs.installed()] == ["2.5.3", "2.5.10", "2.10.0"]
    assert litertjs.install("2.5.3").pinned
    with pytest.raises(AssayError, match="no npm here"):
        litertjs.install("9.9.9")
    with pytest.raises(AssayError, match="not installed") as error:
        litertjs.require("9.9.9")
    assert error.value.fix == "assay browser install --litertjs 9.9.9"


def test_the_installed_runtime_is_the_pinned_one(runtime):
    assert runtime.pinned
    assert set(runtime.integrity) == set(litertjs.PINNED)
    assert runtime.integrity == litertjs.PINNED
