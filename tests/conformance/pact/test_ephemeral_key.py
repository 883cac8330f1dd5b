"""The key of the CA in memory is in the memory of one process and nowhere else.

It is found there first, by its public key, so that the search is known to find it; then every byte is searched that the
process has written, could have written, or leaves behind when it dies. Proves PACT-02, D12.
"""

import subprocess

import ephemeral
import evidence
import memory
import native
import pytest
from ephemeral import anchor, current
from machine import scratch


@pytest.fixture
def dumping(programs):
    plane = ephemeral.Dumping().found().start()
    yield plane
    plane.close()


def secret_of(plane) -> list[bytes]:
    """The key of the present issuer, as it might be written anywhere."""
    key = memory.private_key(plane.process.pid, anchor(plane))
    assert key, "the key is not where it must be: in the memory of the process"
    evidence.key("ephemeral issuer", key.private_numbers().private_value.to_bytes(32, "big"))
    return memory.spellings(key)


def searched(plane, secrets: list[bytes]) -> int:
    """Searches the data directory, both outputs and wherever a dump could be; answers with the number of files."""
    found = [path for place in (plane.dir, plane.cores) for path in place.rglob("*")] + [plane.out, plane.err]
    assert not [path for path in found if memory.holds(path, secrets)]
    return len(found)


def use(plane) -> None:
    """It signs, and what it signed is shown."""
    node = native.enroll(plane)
    node.confirm()
    node.renewed()


def test_the_search_finds_a_key_that_is_written(tmp_path):
    """The search itself: each way to write a key down is found."""
    import certs

    key = certs.ec_key()
    for form, text in {
        "pem": certs.key_pem(key),
        "raw": b"x" * 11 + key.private_numbers().private_value.to_bytes(32, "big"),
        "hex": b"k=%064x" % key.private_numbers().private_value,
    }.items():
        file = tmp_path / form
        file.write_bytes(text)
        assert memory.holds(file, memory.spellings(key)), form
    assert not memory.holds(tmp_path / "pem", memory.spellings(certs.ec_key()))


def test_the_key_is_in_memory_and_in_no_file(dumping):
    """Proves PACT-02: while it runs, after a clean stop, and after a SIGKILL; and it is another one after each start."""
    secrets = []
    for end in (dumping.stop, dumping.kill, dumping.stop):
        secrets += secret_of(dumping)
        use(dumping)
        assert searched(dumping, secrets) > 5
        end()
        searched(dumping, secrets)
        dumping.start()
        later = secret_of(dumping)
        assert not set(later) & set(secrets)
        searched(dumping, secrets + later)


def test_a_crash_leaves_no_core_dump(dumping):
    """Proves PACT-02: where a dump is allowed and another program leaves one, the control plane leaves none, to file or collector."""
    secrets = secret_of(dumping)
    use(dumping)
    place = scratch("cores")
    other = subprocess.Popen(["sleep", "60"], cwd=place, preexec_fn=ephemeral.unlimited)
    if not ephemeral.crashed(other):
        print("no program leaves a core dump on this machine")
    assert not dumping.crash(), "a core dump was made"
    assert not list(dumping.cores.iterdir())
    searched(dumping, secrets)
    dumping.start()
    assert current(dumping)["state"] == "active"


def test_its_memory_is_not_swapped_out(dumping):
    """As root, which may lock memory: what is resident is locked."""
    use(dumping)
    locked, resident = dumping.status("VmLck"), dumping.status("VmRSS")
    print(f"locked {locked} kB of resident {resident} kB")
    assert locked > 0 and "swap" not in dumping.log()
