"""Rolling the intermediate under load: nodes connected, renewing and enrolling all the while. D12, D34.

40 nodes, 8 of them real agents; in `just soak` more (ENLIST_ROLL_NODES, ENLIST_ROLL_AGENTS).
"""

import os
import time

import certs
import pytest
from fleets import Fleet, refused
from machine import until
from plane import ControlPlane
from rolls import prepare, states, status

NODES = int(os.environ.get("ENLIST_ROLL_NODES", "40"))
AGENTS = int(os.environ.get("ENLIST_ROLL_AGENTS", "8"))


@pytest.fixture
def fleet(programs):
    """Agents renew every few seconds; the light streams first when they are told."""
    plane = ControlPlane().found().start()
    plane.policy("failures.per_minute", "0")
    plane.policy("renew.drain", "5s")
    made = []

    def make(agents: int, lights: int, lifetime: str, renew_before: str) -> Fleet:
        fleet = Fleet(plane, lights)
        made.append(fleet)
        plane.policy("profile.default.lifetime", lifetime)
        plane.policy("profile.default.renew_before", renew_before)
        fleet.add_agents(agents)
        return fleet

    yield make
    for fleet in made:
        fleet.close()
    plane.close()


def on(issuer, pem: bytes | str) -> bool:
    return certs.certificate(pem).issuer == issuer.subject


def all_on(fleet, issuer) -> bool:
    return all(on(issuer, light.node.answer.certificate) for light in fleet.lights) and all(
        on(issuer, agent.files[0].read_bytes()) for agent in fleet.agents
    )


def tell_lights_to_renew(fleet) -> None:
    for light in fleet.lights:
        answer = fleet.plane.api("POST", f"/v1/nodes/{light.node.id}/rotate")
        assert answer.status == 200, answer


def retire(fleet) -> None:
    retired = lambda: fleet.plane.cli("ca", "roll", "retire", ok=False).code == 0  # noqa: E731
    fleet.until(retired, "nothing hangs on the old issuer any more")
    assert states(fleet.plane) == ["active", "retired"]


def well(fleet, before: dict) -> None:
    """Everyone is there and nobody was refused anything."""
    plane = fleet.plane
    for agent in fleet.agents:
        agent.wait_connected()
        assert agent.keys_match()
    assert not fleet.troubles(), fleet.troubles()
    assert refused(plane) == before
    ids = {light.node.id for light in fleet.lights} | {agent.node_id() for agent in fleet.agents}
    for node in ids:
        until(lambda node=node: plane.node(node)["connected"], f"{node} is connected")
        assert plane.node(node)["state"] == "active"
    assert not plane.items("/v1/alerts"), plane.items("/v1/alerts")
    assert plane.cli("audit", "verify").json()["ok"]


def test_a_roll_under_load_loses_nobody(fleet):
    fleet = fleet(AGENTS, NODES - AGENTS, "60s", "50s")
    plane, began = fleet.plane, time.monotonic()
    before = refused(plane)
    fleet.more_newcomers()
    issuer = certs.certificate(prepare(plane).read_bytes())
    version = status(plane)["bundle_version"]

    def all_have_it() -> bool:
        # Of one moment: a newcomer counts from its enrollment on, and has said nothing yet.
        said = status(plane)
        return not said["missing"] and said["adoption"]["current"] == said["adoption"]["total"] >= NODES

    fleet.until(all_have_it, "everyone has the new bundle")
    adopted = time.monotonic() - began
    for light in fleet.lights:
        assert plane.node(light.node.id)["evidence"]["bundle_version"] == version
    fleet.more_newcomers()
    fleet.until(lambda: plane.cli("ca", "roll", "activate", ok=False).code == 0, "no newcomer holds it up at that moment")
    tell_lights_to_renew(fleet)
    fleet.until(lambda: all_on(fleet, issuer), "everyone is on the new issuer")
    moved = time.monotonic() - began
    fleet.more_newcomers()
    retire(fleet)
    well(fleet, before)
    lost = [fleet.reconnects(agent) for agent in fleet.agents]
    print(
        f"{NODES} nodes, {AGENTS} agents: adopted after {adopted:.0f} s, moved after {moved:.0f} s,"
        f" retired after {time.monotonic() - began:.0f} s; {fleet.newcomers.count} newcomers,"
        f" {sum(light.renewals for light in fleet.lights)} renewals of light nodes, reconnects {lost}"
    )
    assert all(light.renewals for light in fleet.lights)
    assert max(lost) <= 1


def test_an_agent_that_is_away_holds_up_a_roll_but_not_for_ever(fleet):
    """It comes back within its certificate's life, by itself, and ends where all others are."""
    fleet = fleet(3, 5, "10m", "590s")
    plane = fleet.plane
    before = refused(plane)
    away = fleet.agents[0]
    name = away.node_id()
    assert away.stop() == 0
    issuer = certs.certificate(prepare(plane).read_bytes())
    fleet.until(lambda: status(plane)["missing"] == [name], "only the one that is away has not got it")
    refusal = plane.cli("ca", "roll", "activate", ok=False)
    assert (refusal.code, refusal.error()["code"]) == (3, "not_adopted")
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    assert states(plane) == ["active", "retiring"]
    tell_lights_to_renew(fleet)
    assert not on(issuer, away.files[0].read_bytes())
    away.start().wait_connected()
    assert away.node_id() == name
    fleet.until(lambda: all_on(fleet, issuer), "everyone is on the new issuer")
    retire(fleet)
    well(fleet, before)
    assert max(fleet.reconnects(agent) for agent in fleet.agents) <= 1
