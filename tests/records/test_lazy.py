import importlib
import subprocess
import sys

import pytest

PACKAGES = ["assay.records", "assay.catalog"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_loads(package: str) -> None:
    module = importlib.import_module(package)
    assert dir(module)
    for name in dir(module):
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_nothing_heavy_loads_before_a_name_is_used() -> None:
    code = (
        "import sys, assay.records, assay.catalog, assay.conversion\n"
        "heavy = {'pydantic', 'duckdb', 'numpy', 'torch', 'rich', 'ai_edge_litert'} & sys.modules.keys()\n"
        "print(sorted(heavy)); assay.records.dumps; print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["[]", "False", ""]
