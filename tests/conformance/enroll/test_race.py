"""Many at once with one token."""

import certs
import native

REDEMPTIONS, CONNECTIONS = 1000, 40


def test_one_token_redeemed_a_thousand_times_at_once_makes_one_node(plane):
    """One is granted, 999 are `token_used`, and the trail counts them in at most two lines. Proves PLFM-01."""
    token = plane.token()
    csrs = [certs.csr(certs.ec_key()) for _ in range(REDEMPTIONS)]
    doors = [native.door(plane) for _ in range(CONNECTIONS)]
    for door in doors:
        native.grpc.channel_ready_future(door.channel).result(native.PATIENCE)
    calls = [doors[i % CONNECTIONS].begin(token, csr, patience=120) for i, csr in enumerate(csrs)]
    granted, refused = [], []
    for call in calls:
        try:
            granted.append(call.result())
        except native.grpc.RpcError as error:
            refused.append(native.Refused(error).code)
    for door in doors:
        door.close()
    assert len(granted) == 1
    assert refused == ["token_used"] * (REDEMPTIONS - 1), {code: refused.count(code) for code in refused}
    (answer,) = granted
    assert [node["node_id"] for node in plane.nodes()] == [answer.node_id]
    assert certs.verifies(answer.certificate.encode(), (answer.chain + answer.bundle).encode())

    plane.restart()
    lines = [line for line in plane.audit("enrollment.refused") if line["reason"] == "token_used"]
    assert len(lines) <= 2
    assert sum(line["count"] for line in lines) == REDEMPTIONS - 1
    assert all(len(line["samples"]) <= 8 for line in lines)
    assert [node["cert_serial"] for node in plane.nodes()] == [answer.cert_serial]
    assert plane.cli("audit", "verify").json()["ok"]


def test_many_tokens_redeemed_at_once_make_as_many_nodes(plane):
    """Each token leads to exactly one node, each node has its own serial."""
    before = {node["node_id"] for node in plane.nodes()}
    tokens = [plane.token() for _ in range(200)]
    key = certs.ec_key()
    with native.door(plane) as door:
        calls = [door.begin(token, certs.csr(key)) for token in tokens]
        answers = [call.result() for call in calls]
    assert len({answer.node_id for answer in answers}) == 200
    assert len({answer.cert_serial for answer in answers}) == 200
    assert {node["node_id"] for node in plane.nodes()} - before == {answer.node_id for answer in answers}
