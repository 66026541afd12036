"""The door: `import assay` and what a library user does with it, in processes of their own."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import assay

PACKAGE = Path(assay.__file__).parent


def python(code: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = assay.graph.GraphBuilder()
    x = builder.input("x", (1, 4))
    weights = builder.constant(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    y = builder.op(
        "FULLY_CONNECTED", [x, weights, builder.constant(np.ones(3, np.float32), "b")], (1, 3), name="scores"
    )
    path = tmp_path_factory.mktemp("door") / "small.tflite"
    assay.graph.save(builder.finish([y]), path)
    return path


def test_importing_assay_imports_next_to_nothing() -> None:
    code = "import sys; before = set(sys.modules); import assay; print(*sorted(set(sys.modules) - before))"
    loaded = python(code).split()
    assert [name for name in loaded if name.startswith("assay")] == ["assay", "assay.lazy", "assay.version"]
    assert {name.partition(".")[0] for name in loaded} - {"assay"} <= sys.stdlib_module_names
    assert len(loaded) < 40


def test_every_name_of_the_door_loads_and_is_documented() -> None:
    assert set(assay.__all__) <= set(dir(assay))
    for name in assay.__all__:
        value = getattr(assay, name)
        assert name == "__version__" or inspect.getdoc(value), name
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'nothing'"):
        assay.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_functions_say_what_they_take_and_give() -> None:
    for name in assay.__all__:
        value = getattr(assay, name)
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in signature.parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, (name, parameter.name)


def test_no_module_takes_the_name_of_a_function() -> None:
    """Importing `assay.x` sets the attribute `x` of `assay`: a function of that name would be gone."""
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    modules |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {"lanes", "linting"} <= modules
    for name in modules & set(assay.__all__):
        assert inspect.ismodule(getattr(assay, name)), name


def test_functions_stay_when_everything_below_is_imported() -> None:
    code = (
        "import assay.linting.check, assay.diagnosis.engine, assay.conversion, assay.catalog, assay.measure.run\n"
        "import assay.cli.lint, assay.cli.diagnose, assay.cli.convert, assay.cli.run, assay.cli.inspect\n"
        "import assay, inspect\n"
        "names = ('run', 'sweep', 'inspect', 'lint', 'diagnose', 'convert', 'build_card')\n"
        "print([name for name in names if not inspect.isfunction(getattr(assay, name))], assay.catalog.__name__)"
    )
    assert python(code) == "[] assay.catalog\n"


def test_a_model_is_run_and_its_card_read(model: Path, tmp_path: Path) -> None:
    code = (
        "import assay, sys\n"
        "from pathlib import Path\n"
        "told = []\n"
        "changes = dict(lanes=('cpu_reference', 'cpu_xnnpack'), runs=2, warmup=0, out=Path('here'))\n"
        "report = assay.run(sys.argv[1], done=told.append, **changes)\n"
        "assert told == report.results\n"
        "print([result.lane for result in report.results], report.exit_code)\n"
        "card = assay.catalog.find_card('here', 'small')\n"
        "print(len(card.device.records), assay.check_card('here', 'small').findings)\n"
        "print(assay.build_card('here', 'small').as_posix())\n"
    )
    assert python(code, model, cwd=tmp_path) == (
        "['cpu_reference', 'cpu_xnnpack'] 0\n2 []\nhere/cards/small/card.json\n"
    )
    assert (tmp_path / "here/cards/small/CARD.md").is_file()


def test_settings_are_checked(model: Path) -> None:
    with pytest.raises(assay.AssayError, match=r"no setting .nothing."):
        assay.run(model, nothing=1)
    with pytest.raises(assay.AssayError, match="no lane"):
        assay.run([model], assay.Settings(lanes=("none",)))


def test_verbs_that_run_nothing(model: Path, tmp_path: Path) -> None:
    code = (
        "import assay, json, sys\n"
        "report = assay.lint(sys.argv[1])\n"
        "same = assay.lint(assay.graph.read(sys.argv[1]), lane=report.lane)\n"
        "print(json.dumps([report.delegated, same.delegated, list(assay.inspect(sys.argv[1]).models)]))"
    )
    assert json.loads(python(code, model)) == [1, 1, ["small.tflite"]]


def test_a_lane_is_diagnosed_and_the_finding_kept(model: Path, tmp_path: Path) -> None:
    faults = {"faults": [{"output": "scores", "kind": "offset"}]}
    finding = assay.diagnose(model, "assay.lanes.fault:FaultLane", options=faults, out=tmp_path, model_id="mine")
    assert [node.outputs for node in finding.nodes] == [("scores",)]
    assert (tmp_path / "cards/mine/pitfalls.json").is_file()
    assert (tmp_path / "diagnose/small__FaultLane/minimized.tflite").is_file()
