"""Models that PyPI wheels carry: fetched by pip once, unpacked, never installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from fetch_models import DEFAULT_CACHE, unpacked_wheel

#: Wheels beside the one that scripts/fetch_models.py fetches, pinned by hash.
WHEELS = {
    "pyopen-wakeword==1.1.0": "754347a59de2b3d378a0cbc404a8b41164036e74fa1c185f88056974e4bfb6b4",
    "pymicro-wakeword==2.5.0": "3869f536402b1254e3be3549d3a462ecd6ed21ce2c3e77ec8eb501c3c700417c",
    "basic-pitch==0.4.0": "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
}


def fetch_wheels() -> dict[str, list[Path]]:
    """The `.tflite` files of each wheel of `WHEELS`."""
    platform = ["--platform=manylinux_2_35_x86_64"]
    return {
        wheel: sorted(unpacked_wheel(wheel, digest, DEFAULT_CACHE, platform).glob("*.tflite"))
        for wheel, digest in WHEELS.items()
    }
