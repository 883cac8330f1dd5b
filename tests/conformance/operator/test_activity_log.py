"""The log says what was done in the audit trail's words: each line has its line there, under the same request."""

import re

import native
from machine import until
from streams import Live

LINE = re.compile(r'event="?([a-z_.]+)"? .*?request_id="?([A-Za-z0-9._-]+)"?')


def test_the_log_names_acts_as_the_trail_does(plane):
    """Every act on tokens, nodes, tenants, operators, policy and alerts; nothing is logged that the trail does not hold."""

    def act(request: str, method: str, path: str, body=None):
        answer = plane.api(method, path, body, {"X-Request-Id": request})
        assert answer.status < 300, answer
        return answer

    token = act("r-token", "POST", "/v1/tokens", {}).json()
    act("r-revoke-token", "DELETE", f"/v1/tokens/{token['token_id']}")
    node = native.enroll(plane)
    node.confirm()
    for request in ("drain", "undrain", "quarantine", "release", "rotate"):
        act(f"r-{request}", "POST", f"/v1/nodes/{node.id}/{request}", {})
    for instance in ("first", "second", "first"):
        with Live(node, instance):
            pass
    alerts = lambda: plane.items(f"/v1/alerts?node={node.id}&kind=clone_suspected")
    (alert,) = until(alerts, "the copy was noticed")
    act("r-ack", "POST", f"/v1/alerts/{alert['alert_id']}/ack")
    # It is in no quarantine: only the alert ends.
    act("r-unsuspect", "POST", f"/v1/nodes/{node.id}/release", {})
    act("r-revoke", "POST", f"/v1/nodes/{node.id}/revoke", {"reason": "lost"})
    act("r-reinstate", "POST", f"/v1/nodes/{node.id}/reinstate", {})
    act("r-tenant", "POST", "/v1/tenants", {"name": "blue"})
    act("r-policy", "PUT", "/v1/policy", {"key": "renew.drain", "value": "9m"})

    trail: dict[str, set] = {}
    for line in plane.audit():
        trail.setdefault(line["request_id"], set()).add(line["event_type"])

    def logged() -> dict[str, str]:
        return {request: event for event, request in LINE.findall(plane.err.read_text()) if request.startswith("r-")}

    until(lambda: "r-policy" in logged(), "the last act was logged")
    assert len(logged()) == 13, logged()
    assert {request: event for request, event in logged().items() if event not in trail[request]} == {}
