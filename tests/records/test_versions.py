from hypothesis import given
from hypothesis import strategies as st

from assay.records import versions


def test_versions_sort_as_releases_do() -> None:
    names = [
        "0.16.0",
        "2.1.6",
        "2.2.0.dev20260804",
        "2.2.0.dev20260805",
        "2.2.0a1",
        "2.2.0rc1",
        "2.2.0",
        "2.2.0.post1",
        "2.3.0",
        "2.10.0",
        "10.0",
    ]
    assert sorted(names, key=versions.order) == names


def test_spellings_of_one_version_are_equal() -> None:
    assert versions.order("v2.2") == versions.order("2.2.0") == versions.order(" 2.2.0 ")
    assert versions.order("2.5.3-alpha.1") < versions.order("2.5.3")


def test_named_versions_are_a_family_of_their_own() -> None:
    assert versions.family("gallery-1.0.15") == "gallery"
    assert versions.family("2.2.0") == ""
    assert versions.order("gallery-1.0.9") < versions.order("gallery-1.0.15")


def test_words_after_a_version_do_not_hide_it() -> None:
    name = "0.10.0 (editable dev checkout 115a136 + local patches)"
    assert versions.order("0.9.0") < versions.order(name) < versions.order("0.11.0")
    assert not versions.is_prerelease(name)


def test_the_newest_is_a_release_where_there_is_one() -> None:
    assert versions.newest(["2.2.0", "2.4.0.dev20261101", "2.3.0"]) == "2.3.0"
    assert versions.newest(["2.4.0.dev1", "2.4.0.dev2"]) == "2.4.0.dev2"
    assert versions.newest([]) is None


@given(st.text())
def test_any_text_has_an_order(name: str) -> None:
    assert versions.order(name) == versions.order(name)


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
)
def test_numbers_compare_as_numbers(a: list[int], b: list[int]) -> None:
    padded = [part + [0] * (5 - len(part)) for part in (a, b)]
    names = [".".join(map(str, part)) for part in (a, b)]
    assert (versions.order(names[0]) < versions.order(names[1])) == (padded[0] < padded[1])


def test_thousands_of_digits_cost_nothing() -> None:
    assert versions.order("9" * 100_000) > versions.order("1")
