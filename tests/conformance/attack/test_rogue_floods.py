"""A stolen issuing key plays the control plane and sends without end: what that costs a host is limited, in memory, in open files, in
lines of its log, and in what it writes to its disk."""

import datetime
import hashlib
import os
import threading
import time

import pytest

import certs
from faults import Patient
from impostors import Crossing, behind, home
from machine import PATIENCE, scratch, until
from native import pb
from rogue import Rogue, Thief
from written import Written

REMEMBERED = 16
"""Orders."""
FLOOD = 450
MARK = 2**40
"""The version of the bundle after a flood: a host that has it has read the flood."""


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def plane(crossing):
    with behind(crossing) as made:
        yield made


@pytest.fixture
def patient(plane, crossing):
    """A host that was well, and is switched off."""
    home(plane, crossing)
    hosts = scratch("hosts") / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    made = Patient(plane, plane.token(), ENLIST_AGENT_CHECK_INTERVAL="1s", ENLIST_AGENT_HOSTS_FILE=str(hosts))
    made.hosts = hosts
    made.start().wait_connected()
    made.wait_token()
    until(lambda: (made.current / "node-issuers.pem").exists(), "it knows the issuers of nodes")
    made.spiffe = made.status()["spiffe_id"]
    made.stop()
    yield made
    made.stop()
    made.note_secrets()


def order(order_id: str):
    return pb.LiveDown(order=pb.Order(order_id=order_id, renew_now=pb.RenewNow()))


class Ordering(Rogue):
    """Sends what it is given on the first connection, and answers no renewal until it may."""

    def __init__(self, plane, patient, flood):
        super().__init__(plane)
        self.spiffe, self.flood = patient.spiffe, flood
        self.may_renew = threading.Event()
        self.opened: list[float] = []
        self.done: dict[str, bool] = {}

    def Live(self, messages, context):
        next(messages)
        self.opened.append(time.monotonic())
        standing = pb.Standing(state="active")
        yield pb.LiveDown(welcome=pb.Welcome(server_time_ms=int(time.time() * 1000), standing=standing, heartbeat_ms=1000))
        yield from self.flood(len(self.opened))
        for message in messages:
            if message.WhichOneof("message") == "order_done":
                self.done[message.order_done.order_id] = message.order_done.ok
            yield pb.LiveDown(ack=pb.Ack(server_time_ms=int(time.time() * 1000)))

    def Renew(self, request, context):
        self.may_renew.wait(60)
        return super().Renew(request, context)


def trusted_version(patient) -> int:
    return (patient.status() or {}).get("trust", {}).get("bundle_version", 0)


def test_orders_with_ids_of_any_length_fill_neither_memory_nor_log(plane, crossing, patient):
    """The id is as long as those of the protocol, or the connection ends; also where it comes with every connection."""

    def flood(_):
        for number in range(2000):
            yield order(f"{number:08}" * 7500)

    with Ordering(plane, patient, flood) as rogue:
        patient.start()
        patient.wait_connected()
        crossing.lead(rogue.port)
        until(lambda: len(rogue.opened) >= 3, "it has come again", 60)
        assert patient.memory_kib() < 100 * 1024
        said = patient.whole_log()
        assert "the id of an order is longer than 64 bytes" in said and "renewal ordered" not in said
        assert len(said) < 64 * 1024
        rogue.may_renew.set()
    home(plane, crossing)
    patient.well(60)


def test_of_orders_without_end_the_newest_are_answered(plane, crossing, patient):
    """Each is new, and none is fulfilled while they come. They are read as fast as the host wants to, and logged together."""

    def flood(connection: int):
        if connection == 1:
            yield from (order(f"order-{number}") for number in range(FLOOD))
            yield pb.LiveDown(bundle=pb.Bundle(version=MARK, pem=plane.bundle.decode()))

    with Ordering(plane, patient, flood) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: trusted_version(patient) == MARK, "it has read them all", 60)
        assert time.monotonic() - rogue.opened[0] > 4, "two hundred at once, then fifty a second"
        assert 1 <= patient.whole_log().count("renewal ordered by the control plane") <= 2
        rogue.may_renew.set()
        newest = {f"order-{number}" for number in range(FLOOD - REMEMBERED, FLOOD)}
        until(lambda: newest <= rogue.done.keys(), "the newest are answered", 60)
        assert set(rogue.done) <= newest | {"order-0"} and all(rogue.done[one] for one in newest), rogue.done


def generation(patient) -> int:
    return int(os.readlink(patient.current))


def bundle(plane, version: int, issuers: str):
    offered = {"node_issuers": issuers, "node_issuers_version": version}
    return pb.LiveDown(bundle=pb.Bundle(version=version, pem=plane.bundle.decode(), **offered))


def test_numbers_alone_make_no_generation(plane, crossing, patient):
    """What a host trusts is the same, so nothing is written; it says the number that it was given last."""
    before, issuers = generation(patient), (patient.current / "node-issuers.pem").read_text()
    pushes = tuple(bundle(plane, 90 + number, issuers) for number in range(300))
    with Rogue(plane, pushes=pushes) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: trusted_version(patient) == 389, "it has read them all", 60)
        assert generation(patient) == before
    home(plane, crossing)
    patient.well(60)


def test_offers_without_end_make_few_generations_and_the_newest_is_kept(plane, crossing, patient):
    """Each differs from the one before; then the true control plane's take their place again."""
    before, true = generation(patient), (patient.current / "node-issuers.pem").read_text()
    issuers = [certs.pem(Thief(plane).certificate).decode() for _ in range(3)]
    pushes = [bundle(plane, 90 + number, issuers[number % 2]) for number in range(300)]
    began = time.monotonic()
    with Rogue(plane, pushes=(*pushes, bundle(plane, 390, issuers[2]))) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: (patient.current / "node-issuers.pem").read_text() == issuers[2], "the newest is kept", 60)
        assert before < generation(patient) <= before + paced(began)
        assert patient.whole_log().count("trust bundle updated") <= paced(began)
    home(plane, crossing)
    until(lambda: (patient.current / "node-issuers.pem").read_text() == true, "the control plane's are back", 60)


def test_messages_of_an_unknown_kind_count_as_messages(plane, crossing, patient):
    """They are passed over, but read no faster than others."""

    def flood(connection: int):
        if connection == 1:
            yield from (pb.LiveDown() for _ in range(FLOOD))
            yield pb.LiveDown(bundle=pb.Bundle(version=MARK, pem=plane.bundle.decode()))

    with Ordering(plane, patient, flood) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: trusted_version(patient) == MARK, "it has read them all", 60)
        assert time.monotonic() - rogue.opened[0] > 4, "two hundred at once, then fifty a second"


NAMES = 64


def paced(began: float) -> int:
    """Ten at once, then one every five seconds for as long as a flood lasts; and what is there before it."""
    return 12 + int((time.monotonic() - began) / 5)


def profile(number: int):
    names = {f"h{number}-{place}.enlist.test": "192.0.2.1" for place in range(NAMES)}
    return pb.LiveDown(endpoint_profile=pb.EndpointProfile(id=f"site-{number}", hosts=names))


def config(number: int):
    text = b'{"number": %d}' % number
    whole = pb.Config(sequence=2**40 + number, base_version=number + 1, base=text, base_checksum=hashlib.sha256(text).hexdigest())
    return pb.LiveDown(config=whole)


def granted(plane, number: int):
    recovery = pb.RecoveryProfile(id="default", url=plane.url, ca=plane.bundle.decode())
    token = "recovery_" + f"{number:043}"
    grant = pb.RecoveryGrant(token_id=f"01ROGUE{number}", token=token, expires_at="2090-01-01T00:00:00Z", profile=recovery)
    return pb.LiveDown(recovery=grant)


def welcomed(number: int):
    spans = {"grace_ms": 60_000 + number, "clock_tolerance_ms": 60_000 + number, "heartbeat_ms": 1000}
    return pb.LiveDown(welcome=pb.Welcome(server_time_ms=int(time.time() * 1000), standing=pb.Standing(state="active"), **spans))


KINDS = {
    "profile": (lambda plane, number: profile(number), "a/endpoint_profile.json", "endpoint profile changed"),
    "config": (lambda plane, number: config(number), "config/received.json", "configuration changed"),
    "grant": (granted, "recovery/token", None),
    "welcome": (lambda plane, number: welcomed(number), "a/liveness_grace", None),
}
"""How to make one that differs from all others, the file that each is written to, and the line that each is logged with."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stored_is_taken_up_at_a_pace_and_the_newest_is_kept(plane, crossing, patient, kind):
    """Of 300 that differ few are written to the disk and logged; that others were passed over is logged with their number."""
    make, place, line = KINDS[kind]
    last = 299
    (patient.dir / "config").mkdir(mode=0o700, exist_ok=True)
    newest = {
        "profile": lambda: f"site-{last}" in (patient.dir / "endpoint_profile.json").read_text(),
        "config": lambda: f'"number":{last}' in (patient.dir / "config" / "current.json").read_text().replace(" ", ""),
        "grant": lambda: (patient.dir / "recovery" / "token").read_text().strip() == "recovery_" + f"{last:043}",
        "welcome": lambda: (patient.dir / "liveness_grace").read_text() == f"{60_000 + last}\n",
    }[kind]

    def is_kept() -> bool:
        try:
            return newest()
        except FileNotFoundError:
            return False

    pushes, began = tuple(make(plane, number) for number in range(last + 1)), time.monotonic()
    with Rogue(plane, pushes=pushes) as rogue, Written(patient.dir, patient.dir / "config", patient.dir / "recovery") as written:
        crossing.lead(rogue.port)
        patient.start()
        until(is_kept, "the newest is kept", 60)
        until(lambda: "more than is taken up" in patient.whole_log(), "it says how many were not", 60)
        assert 1 <= written.counts[place] <= paced(began), written.counts
        if line:
            assert 1 <= patient.whole_log().count(line) <= paced(began)
        assert len(patient.whole_log()) < paced(began) * NAMES * 500
        if kind == "profile":
            # The profile is stored first, and the names of the host follow.
            until(lambda: f"h{last}-{NAMES - 1}.enlist.test" in patient.hosts.read_text(), "its names are on the host", 60)


def test_a_grace_period_without_end_is_not_stored(plane, crossing, patient):
    """By it the host would never turn to its recovery endpoint."""
    with Rogue(plane) as rogue:
        rogue.terms = {"grace_ms": 2**64 - 1, "clock_tolerance_ms": 2**64 - 1}
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: rogue.heard and patient.connected(), "it is welcomed", 60)
        day = "86400000\n"
        until(lambda: (patient.dir / "clock_tolerance").read_text() == day, "what it was told is stored", 60)
        until(lambda: (patient.dir / "liveness_grace").read_text() == day, "a day at most", 60)


class Draining(Rogue):
    """Orders a renewal on every connection, lets each be drained without end, and sends on the ones before."""

    def __init__(self, plane, patient, orders: int, flood: int = 0):
        super().__init__(plane)
        self.spiffe, self.orders, self.flood = patient.spiffe, orders, flood
        # A thread for each connection that is never given up.
        self.workers = 40
        self.contexts: list = []
        self.renewed: list[float] = []
        self.replaced, self.sent = threading.Event(), None

    def Live(self, messages, context):
        next(messages)
        self.contexts.append(context)
        number = len(self.contexts)
        if number == 2:
            self.replaced.set()
        welcome = pb.Welcome(
            server_time_ms=int(time.time() * 1000), standing=pb.Standing(state="active"), heartbeat_ms=1000, drain_ms=2**64 - 1
        )
        yield pb.LiveDown(welcome=welcome)
        if number <= self.orders:
            yield order(f"order-{number}")
        for _ in messages:
            yield pb.LiveDown(ack=pb.Ack(server_time_ms=int(time.time() * 1000)))
        # It has half-closed the stream.
        if self.flood and number == 1:
            begun = time.monotonic()
            yield from (pb.LiveDown(config=pb.Config(base=b"x" * 20_000)) for _ in range(self.flood))
            self.sent = time.monotonic() - begun
            return
        closed = threading.Event()
        if context.add_callback(closed.set):
            closed.wait(PATIENCE * 4)

    def Renew(self, request, context):
        self.renewed.append(time.monotonic())
        return super().Renew(request, context)

    @property
    def open(self) -> int:
        return sum(context.is_active() for context in self.contexts)


class Hurrying(Draining):
    """Issues certificates that are to be renewed at once, and have little jitter."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.thief.life = datetime.timedelta(minutes=1)

    def _issued(self, csr: str) -> dict:
        issued = super()._issued(csr)
        begin = certs.certificate(issued["certificate"]).not_valid_before_utc
        return {**issued, "renew_at": begin.strftime("%Y-%m-%dT%H:%M:%SZ")}


RENEWALS = 14


@pytest.mark.parametrize(("thief", "orders"), [(Draining, RENEWALS), (Hurrying, 1)])
def test_renewals_without_end_leave_one_drained_connection_and_few_generations(plane, crossing, patient, thief, orders):
    """Ordered on each connection, or by what the certificate says, and each connection may be drained for ever: the host keeps one
    beside the one in use, and renews ten times at once, then every five seconds."""
    before = generation(patient)
    with thief(plane, patient, orders) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: len(rogue.contexts) > RENEWALS, "it has renewed and come again", 120)
        assert generation(patient) - before <= len(rogue.renewed) + 1
        assert rogue.renewed[RENEWALS - 1] - rogue.renewed[0] > (RENEWALS - 10) * 5 - 2, "the pace"
        # The one in use, the one before, and one that is just being opened.
        until(lambda: rogue.open <= 3, "it has closed the others", 60)
    home(plane, crossing)


def test_a_drained_connection_is_read_no_faster_than_another(plane, crossing, patient):
    """More than the network holds by itself, so that the sender waits for the host."""
    flood = 1200
    with Draining(plane, patient, 1, flood) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        assert rogue.replaced.wait(60), "the first connection is replaced"
        until(lambda: rogue.sent is not None, "all is sent", 120)
        assert rogue.sent > 5, "of 24 MB, two hundred messages at once, then fifty a second"
    home(plane, crossing)
