"""The table of breakages fits the code and the tests; breaking it is for `make sabotage`."""

import re

import pytest

from tests.sabotage.breakage import Breakage
from tests.sabotage.table import BREAKAGES
from tests.sabotage.tree import ROOT


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.name)
def test_what_is_broken_stands_there_once_and_its_tests_exist(breakage: Breakage) -> None:
    assert breakage.broken(ROOT) != (ROOT / breakage.file).read_text("utf-8")
    assert breakage.red
    for test in breakage.red:
        file, _, name = test.partition("::")
        function = re.escape(name.partition("[")[0])
        assert re.search(
            rf"^(async )?def {function}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
        )


def test_each_breakage_has_a_name_of_its_own() -> None:
    names = [one.name for one in BREAKAGES]

    assert len(set(names)) == len(names)
