"""tests/long.txt names tests that are there."""

from pathlib import Path

TESTS = Path(__file__).parent


def test_each_case_is_one_of_a_test():
    _, *names = (TESTS / "long.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(names)) == len(names) > 0
    for name in names:
        file, _, case = name.partition("::")
        test, _, _ = case.partition("[")
        assert f"\ndef {test}(" in (TESTS.parent / file).read_text(encoding="utf-8"), name
