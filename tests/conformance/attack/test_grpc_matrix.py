"""Who may call what over gRPC: every method of the .proto files with every kind of credential that somebody could hold, and what each
pair is answered. A method or a credential that the table lacks fails the test."""

import itertools
import queue
import re

import certs
import evidence
import hostile_peers
import native
import pacts
import pytest
import racks
import workers
from clusters import Replica, cluster_token
from false_spire import FalseSpire
from machine import PATIENCE, PROTO, until
from operators import make_key
from protos import OWN, compiled
from spires import accepted

import grpc

OTHER, MINE, THEIRS = "zebra", "mine", "theirs"
SHORT = 60
"""Seconds: the shortest life that a certificate may have."""
AGENT, ENROLLMENT = "enlist.agent.v1.Agent", "pact.enrollment.EnrollmentService"
BOOT, RUN = "pact.stream.BootConfigService", "taskrun.v1.RunService"
pb, enrollment, config = native.pb, pacts.pb, pacts.config_pb
health, _ = compiled("grpc_health.proto", OWN)
reflection, _ = compiled("grpc_reflection.proto", OWN)
workload, _ = compiled("spiffe/workload.proto")
numbers = itertools.count(1)
RPC = re.compile(r"rpc (\w+)\((stream )?\w+\) returns \((stream )?\w+\)")


def methods() -> dict[str, tuple]:
    """Of all .proto files: whether the requests are a stream, and whether the answers are."""
    found = {}
    for file in PROTO.rglob("*.proto"):
        text = file.read_text()
        package = re.search(r"^package ([\w.]+);", text, re.M)
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.M | re.S):
            name = f"{package[1]}.{service}" if package else service
            found |= {f"{name}/{method}": (bool(up), bool(down)) for method, up, down in RPC.findall(body)}
    return found


class Caller:
    """Somebody with a client certificate, an API key, both or neither."""

    def __init__(self, plane, files: tuple | None = None, key: str | None = None, named: str | None = None):
        pair = [file.read_bytes() for file in reversed(files)] if files else [None, None]
        credentials = grpc.ssl_channel_credentials(plane.bundle, *pair)
        self.channel = grpc.secure_channel(f"127.0.0.1:{plane.port}", credentials, options=native.OPTIONS)
        self.metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self.serial = certs.serial(certs.certificates(files[0].read_bytes())[0]) if files else "1"
        self.named = named

    def answer(self, method: str, request: bytes) -> str:
        """`ok`, the code of the refusal, or `handshake` if the certificate is refused before anything is asked."""
        up, down = METHODS[method]
        kind = ("stream" if up else "unary") + "_" + ("stream" if down else "unary")
        says: queue.Queue = queue.Queue()
        says.put(request)
        sent = iter(says.get, None) if up else request
        try:
            call = getattr(self.channel, kind)(f"/{method}")(sent, metadata=self.metadata, timeout=PATIENCE)
            # A subscription may have nothing to say yet; a refusal comes without headers of its own.
            if down and not (method.endswith("/SubscribeConfigUpdates") and call.initial_metadata()):
                next(call)
            if down:
                call.cancel()
            return "ok"
        except grpc.RpcError as error:
            refused = native.Refused(error)
            return refused.code or (HANDSHAKE if refused.status is grpc.StatusCode.UNAVAILABLE else refused.status.name)
        finally:
            says.put(None)


METHODS = methods()
HANDSHAKE = "handshake"


class World:
    """A control plane, whom requests are about, and all callers."""

    def __init__(self, spire: FalseSpire):
        self.spire = spire
        self.plane = Replica(config=accepted(spire)).found().start("--reflection")
        self.plane.policy("failures.per_minute", "0")
        self.plane.policy("enroll.max_per_minute", "0")
        self.plane.policy("profile.short.lifetime", f"{SHORT}s")
        pacts.allow_hardware(self.plane)
        assert self.plane.api("POST", "/v1/tenants", {"name": OTHER}).status == 201
        for name in (MINE, THEIRS):
            racks.vcluster(self.plane, name)
        self.callers = dict(self.people())

    def people(self):
        plane = self.plane
        brief = native.enroll(plane, plane.token(profile="short"))
        brief.confirm()
        self.node, self.worker = native.enroll(plane), workers.enroll(plane)
        self.node.confirm()
        yield "nobody", Caller(plane)
        yield "node", Caller(plane, self.node.files)
        yield "worker", Caller(plane, self.worker.files)
        neighbour, foreign = native.enroll(plane), native.enroll(plane, plane.token(tenant=OTHER))
        yield "neighbour", Caller(plane, neighbour.files)
        yield "foreign node", Caller(plane, foreign.files)
        held = self.confirmed("quarantine")
        yield "quarantined", Caller(plane, held.files, named=held.id)
        yield "revoked node", Caller(plane, self.confirmed("revoke").files)
        yield "decommissioned", Caller(plane, self.confirmed("decommission").files)
        renewed = native.enroll(plane)
        renewed.renewed().confirm()
        yield "superseded", Caller(plane, renewed.files, named=renewed.id)
        yield from self.shared_and_foreign()
        yield from self.operators()
        until(lambda: native.alert(plane, brief.files) is not None, "it has expired", SHORT + PATIENCE)
        yield "expired", Caller(plane, brief.files)

    def confirmed(self, verb: str) -> native.Node:
        node = native.enroll(self.plane)
        node.confirm()
        answer = self.plane.api("POST", f"/v1/nodes/{node.id}/{verb}", {})
        assert answer.status == 200, answer
        return node

    def shared_and_foreign(self):
        plane = self.plane
        for name in ("image", "lost-image"):
            plane.cli("ca", "bootstrap", name, "--out", plane.base / name)
            evidence.private_key("bootstrap", (plane.base / name / "key.pem").read_bytes())
        plane.cli("ca", "bootstrap", "lost-image", "--revoke")
        yield "bootstrap", Caller(plane, pair(plane.base / "image"))
        yield "revoked bootstrap", Caller(plane, pair(plane.base / "lost-image"))
        racks.register(plane, "web-1")
        racks.register(plane, "web-2")
        yield "svid", Caller(plane, self.spire.svid("/enlist/web-1"), named="web-1")
        yield "unregistered svid", Caller(plane, self.spire.svid("/enlist/web-9"))
        plane.revoke("web-2")
        yield "revoked svid", Caller(plane, self.spire.svid("/enlist/web-2"))
        # Issued under another key, for the name of a node that there is.
        yield "stranger", Caller(plane, FalseSpire("stranger.example").svid("/enlist/web-1"))
        cluster_token(plane)
        yield "replica", Caller(plane, hostile_peers.identity(plane))

    def operators(self):
        plane = self.plane
        for role in ("viewer", "operator", "platform-admin"):
            place = plane.base / role
            plane.cli("operator", "add", f"a-{role}", "--role", role, "--out", place)
            evidence.private_key("operator", (place / "key.pem").read_bytes())
            yield role, Caller(plane, pair(place))
            yield f"{role} key", Caller(plane, key=make_key(plane, role)["key"])
            yield f"foreign {role} key", Caller(plane, key=make_key(plane, role, "--tenant", OTHER)["key"])
        plane.cli("operator", "add", "gone", "--role", "platform-admin", "--out", plane.base / "gone")
        evidence.private_key("operator", (plane.base / "gone/key.pem").read_bytes())
        plane.cli("operator", "remove", "gone")
        yield "removed operator", Caller(plane, pair(plane.base / "gone"))
        narrowed = make_key(plane, "operator", "--vcluster", MINE)["key"]
        yield "narrowed key", Caller(plane, key=narrowed)
        revoked = make_key(plane, "platform-admin")
        plane.cli("operator", "key", "revoke", revoked["key_id"])
        yield "revoked key", Caller(plane, key=revoked["key"])
        yield "unknown key", Caller(plane, key="enlist_key_" + "A" * 43)
        yield "node with admin key", Caller(plane, self.node.files, make_key(plane, "platform-admin")["key"])
        yield "node with unknown key", Caller(plane, self.node.files, "x")

    # Requests: each of a new machine where it is about one that the answer may change.

    def machine(self, vcluster: str | None = None) -> str:
        named = {"vcluster": vcluster} if vcluster else {}
        return racks.register(self.plane, f"m-{next(numbers)}", **named)["node_id"]

    def request(self, method: str, caller: Caller):
        """Enlist and pact have methods of the same name, so that both parts of it count."""
        service, name = method.split("/")
        machine = caller.named or self.node.id
        match name:
            case "Enroll" if service == AGENT:
                return pb.EnrollRequest(token=self.plane.token(), csr=certs.good_csr())
            case "Confirm":
                return pb.ConfirmRequest(status=pb.CONFIRM_STATUS_OK)
            case "Renew":
                return pb.RenewRequest(csr=certs.good_csr())
            case "Recover":
                return pb.RecoverRequest(token="enlist_rec_" + "A" * 43, csr=certs.good_csr())
            case "Live":
                return pb.LiveUp(hello=pb.Hello(node_id=machine, instance_id="i", bundle_version=1))
            case "Check" if service == AGENT:
                return pb.CheckRequest()
            case "BootConfig":
                return pb.BootConfigRequest()
            case "StreamConnect":
                info = workers.pb.WorkerInfo(worker_id=caller.named or self.worker.id)
                return workers.pb.RunClientMessage(hello=workers.pb.WorkerHello(info=info))
            case "StreamBootConfig":
                return config.BootConfigRequest(node_id=machine)
            case "SubscribeConfigUpdates":
                return config.SubscribeRequest(node_id=machine)
            case "RenewCert":
                return enrollment.RenewCertRequest(current_cert_serial=caller.serial, csr=pacts.csr(), node_id=machine)
            case "Check" | "Watch":
                return health.HealthCheckRequest()
            case "ServerReflectionInfo":
                return reflection.ServerReflectionRequest(list_services="")
            case "FetchX509SVID":
                return workload.X509SVIDRequest()
            case _:
                return self.registering(name)

    def registering(self, name: str):
        """pact's methods about machines that are registered."""
        match name:
            case "Enroll":
                mac = racks.mac()
                racks.register(self.plane, f"e-{next(numbers)}", mac=[mac])
                return enrollment.EnrollRequest(hardware_identity=pacts.hardware(mac), csr=pacts.csr())
            case "RegisterNode":
                return entry()
            case "BatchRegisterNodes":
                return enrollment.BatchRegisterNodesRequest(nodes=[entry()])
            case "DecommissionNode":
                return enrollment.DecommissionNodeRequest(node_id=self.machine())
            case "AssignNode":
                return enrollment.AssignNodeRequest(node_id=self.machine(), vcluster_id=THEIRS)
            case "UnassignNode":
                return enrollment.UnassignNodeRequest(node_id=self.machine(THEIRS))
            case "MoveNode":
                return enrollment.MoveNodeRequest(node_id=self.machine(MINE), to_vcluster_id=THEIRS)
            case "ListNodes":
                return enrollment.ListNodesRequest()
            case "InspectNode":
                return enrollment.InspectNodeRequest(node_id=self.node.id)
            case _:
                raise AssertionError(f"there is no request for {name}: write one, and its row in the table")


def entry():
    return enrollment.RegisterNodeRequest(node_id=f"r-{next(numbers)}", hardware_identity=pacts.hardware())


def pair(place) -> tuple:
    return place / "cert.pem", place / "key.pem"


@pytest.fixture(scope="module")
def world(programs):
    made = World(FalseSpire())
    yield made
    for caller in made.callers.values():
        caller.channel.close()
    made.plane.close()


# Who there is.
SHUT_OUT = {"revoked node", "decommissioned", "revoked bootstrap", "revoked svid", "removed operator", "expired", "stranger", "replica"}
"""Their certificates are refused at the handshake, so that they can ask nothing."""
NO_CREDENTIAL = {"nobody", "unknown key", "revoked key"}
NODES = {"node", "worker", "neighbour", "foreign node", "quarantined", "superseded", "svid"}
NODE_AND_KEY = {"node with admin key", "node with unknown key"}
WITH_CERTIFICATE = {"viewer", "operator", "platform-admin"}
KEYS = {"viewer key", "operator key", "platform-admin key"}
FOREIGN_KEYS = {f"foreign {name}" for name in KEYS}
NARROWED = {"narrowed key"}
ALL_OPERATORS = WITH_CERTIFICATE | KEYS | FOREIGN_KEYS | NARROWED
OTHERS = {"bootstrap", "unregistered svid"}
EVERYBODY = NO_CREDENTIAL | NODES | NODE_AND_KEY | ALL_OPERATORS | OTHERS
"""All who come through the handshake."""
ADMINS = {"platform-admin", "platform-admin key", "node with admin key"}
OPERATORS = ADMINS | {"operator", "operator key"}
VIEWERS = OPERATORS | {"viewer", "viewer key"}


def row(*answers: tuple) -> dict[str, str]:
    """Each answer with whom it is for; of two, the later one counts."""
    return {name: HANDSHAKE for name in SHUT_OUT} | {name: answer for answer, names in answers for name in names}


def to_all(answer: str) -> dict[str, str]:
    """Whoever brings the credential that is in the request, whoever else they are; or nobody."""
    return row((answer, EVERYBODY))


def to_nodes(*answers: tuple) -> dict[str, str]:
    """By the client certificate alone: a key that comes with it neither gives nor takes anything."""
    return row(
        ("unauthenticated", NO_CREDENTIAL | KEYS | FOREIGN_KEYS | NARROWED),
        ("forbidden", WITH_CERTIFICATE | {"bootstrap"}),
        ("node_not_registered", {"unregistered svid"}),
        ("ok", NODES | NODE_AND_KEY),
        *answers,
    )


def to_operators(*answers: tuple) -> dict[str, str]:
    """A key that is no good is not made good by the certificate that comes with it."""
    return row(
        ("unauthenticated", NO_CREDENTIAL | {"node with unknown key"}),
        ("node_not_registered", {"unregistered svid"}),
        ("forbidden", NODES | ALL_OPERATORS | {"bootstrap"}),
        *answers,
    )


NOT_OWN = ("not_your_node", {"worker", "neighbour", "foreign node"})
ELSEWHERE = "node_not_found"
"""Whether a node of another tenant is there is not said."""
ASSIGNING = to_operators(("ok", OPERATORS), (ELSEWHERE, {"foreign operator key", "foreign platform-admin key"}))
REGISTERING = to_operators(("ok", ADMINS))
"""Hardware is registered by operators of all tenants, unless policy names the tenant."""

TABLE = {
    f"{AGENT}/Enroll": to_all("ok"),
    f"{AGENT}/Recover": to_all("token_invalid"),
    f"{AGENT}/Confirm": to_nodes(),
    f"{AGENT}/Renew": to_nodes(("certificate_superseded", {"superseded"})),
    f"{AGENT}/Live": to_nodes(NOT_OWN),
    f"{AGENT}/Check": to_nodes(),
    f"{AGENT}/BootConfig": to_nodes(
        ("forbidden", NODES | NODE_AND_KEY | {"unregistered svid"}), ("ok", {"bootstrap"})
    ),
    f"{RUN}/StreamConnect": to_nodes(("not_your_node", NODES | NODE_AND_KEY), ("ok", {"worker"})),
    f"{BOOT}/StreamBootConfig": to_nodes(NOT_OWN, ("node_quarantined", {"quarantined"}), ("ok", {"bootstrap"})),
    f"{BOOT}/SubscribeConfigUpdates": to_nodes(NOT_OWN),
    # An SVID has no serial that is on record.
    f"{ENROLLMENT}/RenewCert": to_nodes(
        NOT_OWN, ("certificate_superseded", {"superseded"}), ("serial_mismatch", {"svid"})
    ),
    f"{ENROLLMENT}/Enroll": to_all("ok"),
    f"{ENROLLMENT}/RegisterNode": REGISTERING,
    f"{ENROLLMENT}/BatchRegisterNodes": REGISTERING,
    f"{ENROLLMENT}/DecommissionNode": to_operators(("ok", ADMINS), (ELSEWHERE, {"foreign platform-admin key"})),
    f"{ENROLLMENT}/AssignNode": ASSIGNING,
    f"{ENROLLMENT}/UnassignNode": ASSIGNING,
    f"{ENROLLMENT}/MoveNode": ASSIGNING,
    f"{ENROLLMENT}/ListNodes": to_operators(("ok", VIEWERS | FOREIGN_KEYS | NARROWED)),
    f"{ENROLLMENT}/InspectNode": to_operators(("ok", VIEWERS), (ELSEWHERE, FOREIGN_KEYS | NARROWED)),
    "grpc.health.v1.Health/Check": to_all("ok"),
    "grpc.health.v1.Health/Watch": to_all("ok"),
    # Only where `server run --reflection` asks for it.
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": to_operators(
        ("ok", NODES | ALL_OPERATORS | {"node with admin key"})
    ),
    # The agent asks this of SPIRE; the control plane does not serve it.
    "SpiffeWorkloadAPI/FetchX509SVID": to_all("method_not_allowed"),
}


def test_the_table_has_every_method_and_every_caller(world):
    assert set(TABLE) == set(METHODS), set(TABLE) ^ set(METHODS)
    for method, answers in TABLE.items():
        assert set(answers) == set(world.callers), (method, set(answers) ^ set(world.callers))


@pytest.mark.parametrize("method", METHODS)
def test_each_caller_is_answered_as_the_table_says(world, method):
    answered = {}
    for name, caller in world.callers.items():
        answered[name] = caller.answer(method, world.request(method, caller).SerializeToString())
    wrong = {name: (got, TABLE[method].get(name)) for name, got in answered.items() if got != TABLE[method].get(name)}
    assert not wrong, f"{method}: answered, and what the table says: {wrong}"


def test_a_list_holds_no_node_of_another_tenant_or_vcluster(world):
    """ListNodes is granted to those who may read something: what they read is theirs."""
    racks.register(world.plane, "of-mine", vcluster=MINE)
    seen = {}
    for name in (*FOREIGN_KEYS, *NARROWED, "viewer key"):
        caller = world.callers[name]
        call = caller.channel.unary_unary(f"/{ENROLLMENT}/ListNodes", None, enrollment.ListNodesResponse.FromString)
        seen[name] = {node.node_id for node in call(b"", metadata=caller.metadata, timeout=PATIENCE).nodes}
    tenants = {node["node_id"]: (node["tenant"], node["vcluster"]) for node in world.plane.nodes()}
    assert {"of-mine", world.node.id} <= seen.pop("viewer key")
    assert {tenants[node][1] for node in seen.pop("narrowed key")} == {MINE}
    for name, nodes in seen.items():
        assert nodes and {tenants[node][0] for node in nodes} == {OTHER}, name
