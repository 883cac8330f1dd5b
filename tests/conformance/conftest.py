"""Fixtures of the black-box suites, and the order in which they run."""

import os
import shutil
import signal
import threading

import pytest

import evidence
import machine

# A shell ignores SIGINT and SIGQUIT for what it runs in the background, nohup SIGHUP. Every program that a test starts would inherit
# that, and would not end by the signal that the test sends it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    # Goes on by itself all the same; a handler is not inherited as an ignored signal is.
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items):
    """The search for secrets looks at what all others have left, so it comes last."""
    items.sort(key=lambda item: item.module.__name__ == "test_secrets")


def pytest_sessionfinish(exitstatus):
    """What a run leaves is kept if something failed, and its own directories are removed if not.

    A process of a larger run leaves what it saw and knew to the search for secrets.
    """
    evidence.write_down()
    if exitstatus == 0:
        for directory in (*machine.made, *([] if os.environ.get("ENLIST_EVIDENCE") else [evidence.RUN])):
            shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"\nlogs and directories of this run: {evidence.DIR}, /tmp/enl-*")


@pytest.fixture(scope="session", autouse=True)
def programs():
    """Both programs are there; what anyone could see of them is sampled during the whole run."""
    for program in (machine.ENLIST, machine.AGENT):
        if not program.exists():
            pytest.fail(f"{program} is missing: build it, or set ENLIST_BIN_DIR", pytrace=False)
    stop = threading.Event()
    sampler = threading.Thread(target=evidence.watch_arguments, args=(stop,), daemon=True)
    sampler.start()
    yield
    stop.set()
    sampler.join()


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane shared by the tests of one file, without the limit on failures."""
    from plane import ControlPlane

    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        yield running


@pytest.fixture
def plane_of_its_own(programs):
    """A control plane that a test may stop, kill and bend."""
    from plane import ControlPlane

    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        yield running


@pytest.fixture
def door(plane):
    """A connection to the native door without a client certificate."""
    import native

    with native.door(plane) as connection:
        yield connection


@pytest.fixture(scope="session")
def names(programs):
    """Both programs under other documents' names."""
    from linked import Names

    return Names()


@pytest.fixture
def place():
    """A directory of one test."""
    return machine.scratch()


@pytest.fixture(scope="module")
def tenants(plane):
    """Two tenants with a node and a token in each."""
    import native

    found = {}
    for name in ("red", "blue"):
        assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201
        node = native.enroll(plane, plane.token(tenant=name))
        found[name] = node, plane.mint(tenant=name)
    return found


@pytest.fixture(scope="session")
def minute(programs):
    """Hosts whose certificates end meanwhile."""
    from minute import Minute

    made = Minute()
    try:
        yield made.begin()
    finally:
        made.close()


@pytest.fixture
def stopped():
    """A control plane with something in it, stopped."""
    import native
    from plane import ControlPlane

    plane = ControlPlane().found().start()
    native.enroll(plane)
    plane.stop()
    yield plane
    plane.close()
