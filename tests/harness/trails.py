"""An audit trail worth changing, and a change."""

import native


def busy(plane) -> None:
    """A bit of everything."""
    plane.api("POST", "/v1/tenants", {"name": "acme"})
    plane.policy("token.default_ttl", "30m")
    node = native.enroll(plane)
    node.confirm()
    minted = plane.mint()
    plane.api("DELETE", f"/v1/tokens/{minted['token_id']}")
    with native.door(plane) as connection:
        connection.refused("enroll_" + "A" * 43, "x")
    native.enroll(plane)


def other_byte(line: str) -> str:
    """The line with one character of a value changed, still valid JSON."""
    place = line.index('"event_type":"') + len('"event_type":"')
    return line[:place] + chr(ord(line[place]) ^ 1) + line[place + 1 :]
