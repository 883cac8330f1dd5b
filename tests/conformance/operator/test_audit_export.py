"""An exported trail, checked with the CA or its pin alone."""

import json

import pytest

from machine import ENLIST, run
from plane import ControlPlane
from trails import busy, other_byte


@pytest.fixture(scope="module")
def export():
    """The lines of an export, the bundle and pin to check it with, and a place to write changed ones."""
    with ControlPlane() as plane:
        busy(plane)
        done = run(ENLIST, "audit", "export", "--dir", plane.dir)
        assert done.code == 0, done
        bundle = plane.base / "bundle.pem"
        bundle.write_bytes(plane.bundle)
        yield plane.base, done.out.splitlines(keepends=True), bundle, plane.pin


def check(export, lines: list[str], by: str = "--ca-file"):
    base, _, bundle, pin = export
    file = base / "export.jsonl"
    file.write_text("".join(lines))
    trust = pin if by == "--ca-pin" else bundle
    return run(ENLIST, "audit", "verify", "--file", file, by, trust, "--json")


@pytest.mark.parametrize("by", ["--ca-file", "--ca", "--ca-pin"])
def test_an_export_verifies_with_the_ca_or_its_pin_alone(export, by):
    """No control plane is needed; the footer is last."""
    done = check(export, export[1], by)
    assert done.code == 0 and done.json()["ok"], done
    assert "event_type" not in json.loads(export[1][-1])


def faults(done) -> str:
    assert done.code == 3, done
    report = done.json()
    assert report["ok"] is False
    return report["fault"]["what"]


@pytest.mark.parametrize("content", ["", "# notes\n", '{"a": 1}\n', "[1, 2]\n", '{"a": 1}\n{"b": 2}\n', "\n"])
def test_a_file_that_is_no_export_is_called_so(export, content):
    """Code `not_an_export`, exit 3, with a remedy of its own: no trail was changed, and comparing exports would not help."""
    done = check(export, [content])
    assert "not an export" in faults(done), done
    assert done.error()["code"] == "not_an_export" and "enlist audit export" in done.error()["hint"], done


@pytest.mark.parametrize("what", ["a directory", "missing"])
def test_what_cannot_be_read_is_named_with_what_to_give_instead(export, what):
    """Code `file`, exit 1: the path, and that an export is wanted."""
    path = export[0] if what == "a directory" else export[0] / "nowhere.jsonl"
    done = run(ENLIST, "audit", "verify", "--file", path, "--ca-file", export[2], "--json")
    assert (done.code, done.error()["code"]) == (1, "file"), done
    assert str(path) in done.error()["message"] and "enlist audit export" in done.error()["hint"], done


def test_an_export_cut_short_is_truncated(export):
    """Without its footer, whether lines are missing or not."""
    lines = export[1]
    assert "truncated" in faults(check(export, lines[:-1]))
    assert "truncated" in faults(check(export, lines[:3]))
    cut = check(export, lines[:-1])
    assert cut.error()["code"] == "audit_fault" and "export the trail again" in cut.error()["hint"], cut
    for last in (-1, -2):
        halved = check(export, [*lines[:last], lines[last][:100]])
        assert "truncated" in faults(halved) and halved.error()["hint"] == cut.error()["hint"], halved


def test_an_export_with_lines_missing_before_the_footer_is_found(export):
    """The footer says where the trail ended, so it cannot be put under a shorter one."""
    lines = export[1]
    assert faults(check(export, [*lines[:-3], lines[-1]]))
    assert faults(check(export, lines[1:]))
    assert faults(check(export, [*lines[:4], *lines[5:]]))


def test_a_reordered_export_is_found(export):
    """Two lines that changed places."""
    lines = list(export[1])
    lines[2], lines[3] = lines[3], lines[2]
    done = check(export, lines)
    assert faults(done) and done.json()["fault"]["seq"] in (3, 4)


def test_a_changed_line_in_an_export_is_named(export):
    """One byte of one line."""
    lines = list(export[1])
    lines[4] = other_byte(lines[4])
    done = check(export, lines)
    assert faults(done) and done.json()["fault"]["seq"] == 5


def test_an_export_of_another_domain_does_not_verify(export):
    """The signature chains to another root."""
    with ControlPlane(domain="elsewhere.example") as other:
        foreign = run(ENLIST, "audit", "export", "--dir", other.dir).out.splitlines(keepends=True)
    assert faults(check(export, foreign))
    assert faults(check(export, foreign, "--ca-pin"))
