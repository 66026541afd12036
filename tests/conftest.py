"""What all tests share: real models, and where the software GPU's driver is."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import fetch

from assay.lanes.browser import litertjs

# A busy machine is no fault of the code: no example has a deadline.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")


@pytest.fixture(scope="session")
def real_models() -> dict[str, Path]:
    """The 14 models of the mediapipe wheel: stem -> path. Fetched by pip once, then cached."""
    return {path.stem: path for path in sorted(fetch().glob("*.tflite"))}


@pytest.fixture(scope="session", autouse=True)
def support_on_path() -> None:
    """Let the lanes in tests/support be found, here and in child processes."""
    support = str(Path(__file__).resolve().parent / "support")
    sys.path.insert(0, support)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def runtime() -> Iterator[litertjs.Runtime]:
    """LiteRT.js of the default version; npm fetches it once."""
    before = os.environ.get("ASSAY_CACHE")
    os.environ["ASSAY_CACHE"] = str(Path(__file__).resolve().parents[1] / ".cache" / "assay")
    yield litertjs.install()
    if before is None:
        del os.environ["ASSAY_CACHE"]
    else:
        os.environ["ASSAY_CACHE"] = before
