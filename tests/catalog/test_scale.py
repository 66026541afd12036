"""A few broken files among 100,000: each is named, and nothing else is lost."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.catalog.database import open_catalog
from assay.records.document import MAX_BYTES

RECORDS, MODELS = 100_000, 1_000
BENCHMARK = Path(__file__).parents[2] / "benchmarks/catalog.py"

BREAKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "blank": lambda text: b" \n",
    "cut short": lambda text: text[: len(text) // 2],
    "last brace lost": lambda text: text.rstrip()[:-1],
    "written twice": lambda text: text + text,
    "zeros, as after a power cut": lambda text: bytes(len(text)),
    "not UTF-8": lambda text: text.replace(b"Android", b"\xff\xfe\xfd"),
    "null": lambda text: b"null",
    "a comma too many": lambda text: text.replace(b'"loads"', b',"loads"'),
    "a conflict of versions": lambda text: b"<<<<<<< ours\n" + text,
    "a text for a number": lambda text: text.replace(b'"total_ops": 400', b'"total_ops": "400"')
    .replace(b'"total_ops": null', b'"total_ops": "none"'),
    "a date that is none": lambda text: text.replace(b'"date": "2026-', b'"date": "2026-99-'),
    "a field misspelt": lambda text: text.replace(b'"latency_p50_ms"', b'"latency_p5O_ms"'),
    "of another major version": lambda text: text.replace(b'"1.2"', b'"7.0"'),
    "nested too deep": lambda text: b"[" * 100_000,
    "too large": lambda text: text + b" " * MAX_BYTES,
}  # fmt: skip


def generate(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("catalog_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.generate(root, RECORDS, MODELS)


def seen(root: Path, *, rebuild: bool = False) -> tuple[set[str], set[str]]:
    """Files that queries see runs of, and files that are named as broken."""
    with open_catalog(root, rebuild=rebuild) as catalog:
        records = [row[0] for row in catalog.sql("SELECT record FROM runs").rows]
        problems = [row[0] for row in catalog.sql("SELECT path FROM problems").rows]
        assert len(catalog.problems()) == len(problems)
    assert len(set(records)) == len(records) and len(set(problems)) == len(problems)
    return set(records), set(problems)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_broken_files_among_100_000_are_named_and_all_others_are_there(tmp_path: Path) -> None:
    generate(tmp_path)
    everything = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("data/**/*.json")}
    assert len(everything) == RECORDS
    chosen = sorted(everything)[1234 :: RECORDS // len(BREAKS)]
    planted = dict(zip(chosen, BREAKS.values(), strict=True))
    whole = {path: (tmp_path / path).read_bytes() for path in planted}
    for path, spoil in planted.items():
        broken = spoil(whole[path])
        assert broken != whole[path]
        (tmp_path / path).write_bytes(broken)
    # Cold, with helpers; again from the cache; and cold once more.
    assert seen(tmp_path) == (everything - planted.keys(), set(planted))
    assert seen(tmp_path) == (everything - planted.keys(), set(planted))
    assert seen(tmp_path, rebuild=True) == (everything - planted.keys(), set(planted))
    # Mended, they are there; broken while the cache knows them whole, they go and no other does.
    for path, text in whole.items():
        (tmp_path / path).write_bytes(text)
    assert seen(tmp_path) == (everything, set())
    for path, spoil in planted.items():
        (tmp_path / path).write_bytes(spoil(whole[path]))
    assert seen(tmp_path) == (everything - planted.keys(), set(planted))
