"""The verbs' misuse: one clear line, the fix, exit code 2, before anything is measured."""

import json

import pytest

from assay import cli


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["assay", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "x.tflite", "--lane", "webnn"], "add --experimental"),
        (["run", "x.tflite", "--jspi", "--wasm-threads", "2"], "no build with both JSPI and threads"),
        (["run", "x.tflite", "--litertjs", "1.2.3"], "assay browser install --litertjs 1.2.3"),
        (["run", "x.tflite", "--adapter", "gpu"], "choose from auto, swiftshader, hardware"),
        (["sweep", "/no/such/folder"], "name a folder with .tflite files"),
        (["browser", "check", "--no-open", "--litertjs", "1.2.3"], "assay browser install --litertjs 1.2.3"),
        (["browser", "install", "--litertjs", "../x"], "not a version"),
    ],
)
def test_misuse(monkeypatch, capsys, arguments, said):
    code, output = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert said in output.err and "Traceback" not in output.err
    assert output.out == ""


def test_an_installed_runtime_as_json(monkeypatch, capsys, runtime):
    code, output = call(monkeypatch, capsys, "browser", "install", "--json")
    assert code in (0, None)
    document = json.loads(output.out)
    assert document["version"] == runtime.version and document["pinned"] is True
    assert runtime.version in document["installed"]
