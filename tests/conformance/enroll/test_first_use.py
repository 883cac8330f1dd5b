"""The first minute with the program."""

import re

import evidence
from machine import ENLIST, run


def test_one_command_shows_a_node_coming_to_life(place):
    """`enlist dev --once` in a fresh directory ends with 0 and tells everything on one screen."""
    done = run(ENLIST, "dev", "--once", "--dir", place / "d", "--listen", "127.0.0.1:0", cwd=place, patience=120)
    assert done.code == 0, done
    assert len(done.out.splitlines()) < 25, done
    text = done.out.lower()
    assert "everything works" in text and str(place / "d") in done.out, done
    assert "enroll_" not in done.out, "no token that nobody can use any more"
    assert "active" in text, done
    assert "not for production" in text, done


def test_a_second_try_in_the_same_directory_works_too(place):
    """`enlist dev --once` may be repeated: what the first run left does not stand in its way."""
    for _ in range(2):
        done = run(ENLIST, "dev", "--once", "--dir", place / "d", "--listen", "127.0.0.1:0", cwd=place, patience=120)
        assert done.code == 0, done
        for token in re.findall(r"enroll_[A-Za-z0-9_-]{43}", done.out):
            evidence.token(token)
