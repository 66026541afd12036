"""What follows from measurements and what does not."""

import json

import pytest

from assay.errors import AssayError
from assay.linting.matrix import OpMatrix, joined, load
from assay.linting.signature import NodeSignature


def op_matrix(**by_status: list[str]) -> OpMatrix:
    outcomes = [
        {
            "status": status,
            "reason": None if status == "supported" else f"{status} it",
            "evidence": ["a line"],
            "date": "2026-12-01",
            "signatures": dict.fromkeys(signatures, 0.0 if status == "supported" else None),
        }
        for status, signatures in by_status.items()
    ]
    return OpMatrix("POOL", {"outcomes": outcomes})


def sig(rank: int = 4, version: int = 1, dtype: str = "float32", **traits: str) -> str:
    listed = sorted({**traits, "version": str(version)}.items())
    return f"{dtype}[{rank}] -> {dtype}[{rank}] | " + ", ".join(f"{name}={value}" for name, value in listed)


def ask(matrix: OpMatrix, text: str):
    return matrix.answer(NodeSignature.parse("POOL", text))


def test_measured_is_measured():
    answer = ask(op_matrix(supported=[sig()]), sig())
    assert (answer.status, answer.basis, answer.numbers, answer.date) == (
        "supported",
        "measured",
        "right",
        "2026-12-01",
    )


def test_nothing_measured_is_unknown_never_fine():
    assert ask(op_matrix(), sig()).status == "unknown"
    assert ask(op_matrix(supported=[sig(rank=4)]), sig(rank=3)).status == "unknown"


def test_values_that_never_made_a_difference_are_equivalent():
    matrix = op_matrix(
        supported=[sig(4, a="x"), sig(4, a="y"), sig(3, a="x"), sig(3, a="y"), sig(2, a="x")],
    )
    answer = ask(matrix, sig(2, a="y"))
    assert answer.status == "supported"
    assert "a=y (changes nothing in 2 measured pairs)" in answer.basis
    assert answer.numbers == "not measured"


def test_one_pair_is_not_enough():
    matrix = op_matrix(supported=[sig(4, a="x"), sig(4, a="y"), sig(2, a="x")])
    assert ask(matrix, sig(2, a="y")).status == "unknown"


def test_a_single_difference_ends_an_equivalence():
    same = [sig(rank, a=value) for rank in (1, 3, 4) for value in ("x", "y")]
    matrix = op_matrix(supported=[*same, sig(2, a="x"), sig(5, a="x")], refused=[sig(5, a="y")])
    assert ask(matrix, sig(2, a="y")).status == "unknown"


def test_refusals_say_nothing_of_support():
    # Both values are refused at ranks 3 and 4: that does not make y as good as x at rank 2.
    refused = [sig(rank, a=value) for rank in (3, 4) for value in ("x", "y")]
    matrix = op_matrix(refused=refused, supported=[sig(2, a="x")])
    assert ask(matrix, sig(2, a="y")).status == "unknown"


def test_what_was_always_refused_for_a_feature_is_refused():
    matrix = op_matrix(
        refused=[sig(4, dtype="int64"), sig(3, dtype="int64"), sig(2, dtype="int64")],
        supported=[sig(4), sig(3), sig(2)],
    )
    answer = ask(matrix, sig(1, dtype="int64"))
    assert answer.status == "refused"
    assert "a runtime tensor of int64" in answer.basis
    assert ask(matrix, sig(1)).status == "unknown"


def test_an_op_that_was_refused_whenever_it_was_tried_is_refused():
    assert ask(op_matrix(refused=[sig(4)]), sig(2, a="z")).status == "refused"


def test_a_signature_that_went_both_ways_is_unknown():
    answer = ask(op_matrix(supported=[sig()], refused=[sig()]), sig())
    assert answer.status == "unknown"
    assert "both ways" in answer.basis


def test_wrong_in_one_size_is_wrong():
    answer = ask(op_matrix(supported=[sig()], wrong=[sig()]), sig())
    assert answer.status == "wrong"
    assert answer.taken
    assert "right in 1 of 2" in (answer.reason or "")


def test_a_folder_that_is_no_matrix_is_named(tmp_path):
    with pytest.raises(AssayError, match=r"matrix\.json"):
        load(tmp_path)
    (tmp_path / "matrix.json").write_text(json.dumps({"kind": "card"}))
    with pytest.raises(AssayError, match="not a support matrix"):
        load(tmp_path)


def test_matrices_of_other_lanes_do_not_join(tmp_path):
    for lane in ("a", "b"):
        header = {"kind": "support_matrix", "lane": lane, "runtime_version": "1", "ops": {}}
        (tmp_path / lane).mkdir()
        (tmp_path / lane / "matrix.json").write_text(json.dumps(header))
    with pytest.raises(AssayError, match="different lanes"):
        joined(load(tmp_path / "a"), load(tmp_path / "b"))
