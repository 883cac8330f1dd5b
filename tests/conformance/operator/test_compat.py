"""The pages of docs/compat name every statement of their documents, and tests that exist and say so themselves."""

import ast
import re

import pytest

from machine import ROOT

IDS = {
    "plfm": ("PLFM", 37),
    "pact": ("PACT", 43),
    "probectl": ("PROBE", 29),
    "taskrun": ("TASK", 21),
    "gpuaas": ("GPU", 37),
}
PAGES = sorted(page for page in (ROOT / "docs" / "compat").glob("*.md") if page.stem in IDS)
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
WHOLE = re.compile(r"\btest_\w+\.py(?!::test_)")
"""A file is no proof: nobody can see which of its tests would fail."""
NOTHING_TO_SHOW = {"PLFM-37", "PROBE-29", "GPU-37"}
"""Non-goals, residuals and open questions of the documents."""
LATER: dict[str, tuple] = {}
"""What waits for a part that is not there yet: the row says which. By number, because nothing here proves them."""


def docstrings(file: str) -> dict[str, str]:
    """The tests of a file and what each says that it proves."""
    (found,) = (ROOT / "tests" / "conformance").rglob(file)
    tree = ast.parse(found.read_text())
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_statement_is_shown_or_out_of_scope(page):
    """One row for each id, in order; it names tests, not files, and each of them exists and names the id."""
    prefix, count = IDS[page.stem]
    rows = re.findall(rf"^\| ({prefix}-\d+) \|(.*)$", page.read_text(), re.MULTILINE)
    assert [id for id, _ in rows] == [f"{prefix}-{number:02}" for number in range(1, count + 1)]
    later = {f"{prefix}-{number:02}" for number in LATER.get(page.stem, ())}
    for id, row in rows:
        *cells, end = row.split("|")
        assert cells and all(cell.strip() for cell in cells) and not end.strip(), id
        assert not WHOLE.search(row), f"{id} names a whole file: {WHOLE.search(row).group()}"
        named = NAMED.findall(row)
        assert id not in later or row.rsplit("|", 2)[1].strip().startswith("later: "), f"{id} does not say what it waits for"
        assert named or id in NOTHING_TO_SHOW | later, f"{id} names no test"
        for file, test in named:
            known = docstrings(file)
            assert test in known, f"{id}: {file} has no {test}"
            assert id in known[test], f"{id} is not named by {file}::{test}"
