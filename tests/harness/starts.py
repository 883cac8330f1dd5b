"""Starts that must be refused, and what they must leave alone."""

import hashlib


def picture(place) -> dict:
    """Every file with a hash of what is in it. SQLite's shared-memory index is rebuilt by any reader."""
    files = (path for path in place.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(plane, *arguments, env=None, words: tuple = (), code: int = 1):
    """It does not start, says why and what to do, and changes nothing."""
    before = picture(plane.dir)
    done = plane.run_to_end(*arguments, env=env)
    assert done.code == code, done
    assert done.out == "", "standard output holds only the ready line"
    said = done.err.lower()
    for word in words:
        assert word.lower() in said, (word, done)
    after = picture(plane.dir)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not changed, (changed, done)
    return done
