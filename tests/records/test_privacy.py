"""What is published names files, and neither folders of a person nor the person nor the machine."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.records.privacy import NOWHERE, Here, scrub, scrub_command, scrub_values

ANNA = Here(("/home/anna/work",), ("/home/anna",), "anna", "desk-42.example.org")
WINDOWS = Here((r"C:\Users\Anna K\work",), (r"C:\Users\Anna K",), "Anna K", "DESK-42")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/home/anna/work/models/a.tflite", "models/a.tflite"),
        ("/home/anna/work", "."),
        ("/home/anna/work/../secret/a.tflite", "a.tflite"),
        ("/home/anna/other/a.tflite", "a.tflite"),
        ("/home/anna", "~"),
        ("~/other/a.tflite", "a.tflite"),
        ("~bob/a.tflite", "a.tflite"),
        ("/home/bob", "~"),
        ("/Users/bob/", "~"),
        ("../../bob/a.tflite", "a.tflite"),
        ("/data/anna", "<user>"),
        ("/tmp/assay-ab12/job/model.tflite", "model.tflite"),
        ("/dev/shm/assay-ab12/model.tflite", "model.tflite"),
        ("/usr/local/google/home/bob/a.tflite", "a.tflite"),
        ("/usr/share/vulkan/icd.d/x.json", "/usr/share/vulkan/icd.d/x.json"),
        ("/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "/usr/lib/x86_64-linux-gnu/libvulkan.so.1"),
        ("/dev/dri/renderD128", "/dev/dri/renderD128"),
        ("/sys/class/thermal", "/sys/class/thermal"),
        ("/proc/meminfo", "/proc/meminfo"),
        ("http://127.0.0.1:8000/home/anna/a.tflite", "http://127.0.0.1:8000/home/anna/a.tflite"),
        ("file:///home/anna/a%20b.html", "a b.html"),
        (r"D:\models\a.tflite", "a.tflite"),
        (r"C:\Users\bob", "~"),
        (r"\\server\share\a.tflite", "a.tflite"),
        (r"C:\Windows\System32\vulkan-1.dll", r"C:\Windows\System32\vulkan-1.dll"),
        ("models/a.tflite", "models/a.tflite"),
    ],
)
def test_the_name_for_a_path(text: str, name: str):
    assert scrub(text, ANNA) == name
    assert scrub(f"ERROR: {text}: no such file", ANNA) == f"ERROR: {name}: no such file"
    assert scrub_command(["assay", "run", text, f"--out={text}"], ANNA) == ["assay", "run", name, f"--out={name}"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ERROR: could not open '/tmp/assay-x/my model.tflite'.", "ERROR: could not open 'my model.tflite'."),
        ("[Errno 2] No such file: '/home/anna/My models/a.tflite'", "[Errno 2] No such file: 'a.tflite'"),
        ("PATH=/usr/bin:/home/anna/bin", "PATH=/usr/bin:bin"),
        ("x=/home/anna/a.npy,y=/home/anna/b.npy", "x=a.npy,y=b.npy"),
        ("(/home/anna/a.cc:12)", "(a.cc:12)"),
        ('File "/opt/me/lib/a.py", line 3, in f', 'File "a.py", line 3, in f'),
        ("clang -I/home/anna/include -O2", "clang -Iinclude -O2"),
        ("anna@desk-42: it failed", "<user>@<host>: it failed"),
        ("served by desk-42.example.org", "served by <host>"),
        ("http://desk-42:9222/json", "http://<host>:9222/json"),
        # What only looks like a path, a home or a person.
        ("RESHAPE: Tensor dimensions must be less than 5. /encoder/conv1/Conv_output_0", None),
        ("model_1/model/conv2d_1/Conv2D_dequantize2", None),
        ("I0000 00:00:1796131231.101896 5470 delegate_kernel.cc:984] Initializing WebGPU-based API", None),
        ("1/256 of it, 3 GB/s, and/or N/A, ~5 ms, a // b, external/litert/cc/model.cc", None),
        ("hanna is no anna, nor is annas-desk-42x", None),
    ],
)
def test_a_line_of_a_log(line: str, told: str | None):
    assert scrub(line, ANNA) == (line if told is None else told)


def test_folders_with_spaces():
    assert scrub(r"cannot read C:\Users\Anna K\work\m\a.tflite here", WINDOWS) == r"cannot read m\a.tflite here"
    assert scrub(r"cannot read C:\Users\Anna K\a.tflite here", WINDOWS) == "cannot read a.tflite here"
    browser = r"C:\Program Files\Google\Chrome\Application\chrome.exe"
    assert scrub(browser, WINDOWS) == browser
    command = ["--model", "/home/anna/My models/a b.tflite", "--inputs=x=/srv/My inputs/x.npy", "-o/home/anna/o o"]
    assert scrub_command(command, ANNA) == ["--model", "a b.tflite", "--inputs=x=x.npy", "-oo o"]


def test_values_of_a_document():
    document = {
        "/home/anna/key": ["/home/anna/a.npy", {"driver": "/usr/share/vulkan/icd.d/x.json", "n": 3}],
        "n": None,
    }
    assert scrub_values(document, ANNA) == {
        "/home/anna/key": ["a.npy", {"driver": "/usr/share/vulkan/icd.d/x.json", "n": 3}],
        "n": None,
    }


PIECE = st.sampled_from(
    [*"/\\~.:=,'\"-@ ", "anna", "desk-42", "/home", "..", "C:", "file://", "a.npy", "(", ")", "-I"]
)
WORD = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-éß模", min_size=1, max_size=8).map(
    lambda word: f"q{word}"
)
PATH = st.lists(WORD, min_size=2, max_size=5)
ROOT = st.sampled_from(
    ["/home", "/Users", "/root", "/tmp", "/var/folders", "/mnt/disk", "/data", "/opt", "C:\\Users"]
)
AROUND = st.sampled_from(
    ["{}", "x {} y", "'{}'", '"{}"', "({})", "a={}", "{}: no", "--out={}", "[{}]", "{}, {}", "-I{}"]
)


@given(ROOT, PATH, AROUND)
def test_no_folder_of_a_path_is_left_and_its_name_is(root: str, parts: list[str], around: str):
    separator = "\\" if "\\" in root else "/"
    path = separator.join([root, *parts[:-1], f"{parts[-1]}.tflite"])
    text = scrub(around.replace("{}", path), ANNA)
    assert text == around.replace("{}", f"{parts[-1]}.tflite")


@given(PATH, AROUND)
def test_a_path_below_the_folder_is_relative(parts: list[str], around: str):
    text = scrub(around.replace("{}", "/".join([*ANNA.folders, *parts])), ANNA)
    assert text == around.replace("{}", "/".join(parts))


TEXT = st.text() | st.lists(PIECE).map("".join)


@given(TEXT, PATH, TEXT)
def test_the_home_folder_is_in_no_text(before: str, parts: list[str], after: str):
    for here in (ANNA, NOWHERE):
        path = "/home/anna/" + "/".join(parts)
        for text in (scrub(f"{before} {path} {after}", here), *scrub_command([path, f"{before} {path}"], here)):
            assert "/home/anna" not in text
            assert f"/{parts[0]}/" not in text


@given(st.text() | st.builds(lambda around, parts: around.replace("{}", f"/tmp/{'/'.join(parts)}"), AROUND, PATH))
def test_a_second_time_changes_nothing(text: str):
    once = scrub(text, ANNA)
    assert scrub(once, ANNA) == once
    (argument,) = scrub_command([text], ANNA)
    assert scrub_command([argument], ANNA) == [argument]


@given(st.text().filter(lambda text: not set("/\\@~") & set(text) and "desk-42" not in text))
def test_a_text_without_a_path_is_left_as_it_is(text: str):
    assert scrub(text, ANNA) == text
    assert scrub_command([text], ANNA) == [text]


@given(st.from_regex(r"https?://[a-z0-9.:]+/[a-z0-9/._?=&-]*", fullmatch=True))
def test_addresses_are_left_as_they_are(address: str):
    assert scrub(f"from {address} to", ANNA) == f"from {address} to"
    assert scrub_command([address, f"--cdp={address}"], ANNA) == [address, f"--cdp={address}"]


def test_this_process_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = tmp_path / "homes" / "zoe7"
    (home / "work").mkdir(parents=True)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("LOGNAME", "USER", "USERNAME", "LNAME"):
        monkeypatch.setenv(name, "zoe7")
    monkeypatch.chdir(home / "work")
    here = Here.now()
    assert here.user == "zoe7"
    assert scrub(f"{home}/work/a.npy {home}/b.npy {home} zoe7") == "a.npy b.npy ~ <user>"
    # Above homes, relative paths would name the people who live there.
    monkeypatch.chdir(home.parent)
    assert scrub(f"{home}/work/a.npy {home}/b.npy") == "a.npy b.npy"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_the_folder_is_known_by_the_name_of_the_shell_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    assert scrub(f"{tmp_path}/real/m/a.npy {tmp_path}/link/m/b.npy") == "m/a.npy m/b.npy"
