import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay import records
from assay.report.card import render_card
from assay.report.text import code, escape, link, number, plain
from record_data import SEED

GOLDEN = Path(__file__).parent / "golden"


def seed() -> dict[str, Any]:
    return json.loads(SEED.read_text())


def rendered(value: Any) -> str:
    return render_card(records.parse(json.dumps(value).encode(), records.Card, "x"))


def test_the_seed_card_as_markdown() -> None:
    assert rendered(seed()) == (GOLDEN / "seed_card.md").read_text()


def test_front_matter_is_what_hubs_accept() -> None:
    value = seed()
    front = yaml.safe_load(rendered(value).split("---")[1])
    assert front["license"] == "apache-2.0" and front["pipeline_tag"] == "mask-generation"
    value["model"] |= {"license": "My Own License", "task": "tap-to-segment"}
    front = yaml.safe_load(rendered(value).split("---")[1])
    assert (front["license"], front["license_name"]) == ("other", "My Own License")
    assert "pipeline_tag" not in front and "tap-to-segment" in front["tags"]


def test_language_models_have_a_table_of_their_own() -> None:
    value = seed()
    run = value["device"]["records"][0]["run"]
    run |= {"decode_tokens_per_s": 28.14, "latency_p50_ms": None, "context_length": 4096}
    text = rendered(value)
    assert "| 28.14 |" in text and "context 4096" in text


def test_failures_are_told_with_their_reason() -> None:
    value = seed()
    run = value["device"]["records"][0]["run"]
    run |= {"loads": False, "runs": False, "failure_class": "engine_create_failed", "error": "a | `line`"}
    text = rendered(value)
    assert "**no: engine create failed**" in text
    assert "engine_create_failed: `` a \\| `line` ``" in text


def test_an_example_says_so() -> None:
    value = seed()
    assert "Example data" not in rendered(value)
    value["device"]["records"][0]["run"]["provenance"] = "example"
    assert "Example data" in rendered(value)


NASTY = "| x |\n\n# Title <script>alert(1)</script> [a](javascript:b) ![c](d) `e` **f** \x1b[2J"


def test_strangers_texts_stay_texts() -> None:
    value = seed()
    plain_lines = len(rendered(value).splitlines())
    value["pitfalls"][0] = NASTY
    value["model"] |= {"task": NASTY, "family": NASTY, "source_url": NASTY}
    value["device"]["records"][0]["run"]["env"]["soc"] = NASTY
    text = rendered(value)
    assert len(text.splitlines()) <= plain_lines + 3  # the front matter has three lines more
    body = text.split("---", 2)[2]
    assert "<script" not in body.replace("\\<", "")
    assert "\n# Title" not in body


@given(st.text())
def test_any_text_fits_into_a_table_cell(text: str) -> None:
    for cell in (escape(text), code(text or "x")):
        assert "\n" not in cell and "\r" not in cell
        assert "|" not in cell.replace("\\|", "")
    assert all(c.isprintable() for c in plain(text))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (398.045, "398"),
        (10.548, "10.55"),
        (4352.9, "4353"),
        (123456.7, "123457"),
        (4.196e-05, "4.196e-05"),
        (50, "50"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_keep_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_only_web_addresses_are_links() -> None:
    assert link("https://example.org/a") == "<https://example.org/a>"
    assert "<" not in link("javascript:alert(1)")
    assert link(None) == "-"
