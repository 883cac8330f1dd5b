"""Machines that are known by their hardware, made up: addresses and serial numbers that no other test uses."""

import itertools

_numbers = itertools.count(1)


def number() -> int:
    return next(_numbers)


def mac(value: int | None = None) -> str:
    """A locally administered address of its own."""
    value = number() if value is None else value
    return "02:" + ":".join(f"{byte:02x}" for byte in value.to_bytes(5, "big"))


def register(plane, node_id: str, **fields) -> dict:
    """Registers a machine over REST; what is not said is made up."""
    asked = {"node_id": node_id, "mac": [mac()], **fields}
    answer = plane.api("POST", "/v1/nodes", asked)
    assert answer.status == 201, answer
    return {**asked, **answer.json()}


def vcluster(plane, name: str, **fields) -> dict:
    answer = plane.api("POST", "/v1/vclusters", {"name": name, **fields})
    assert answer.status == 201, answer
    return answer.json()


def csv(ids, header: str = "node_id,mac,bmc_serial", serial: str = "SN") -> str:
    """A file with a machine for each id."""
    return header + "\n" + "".join(f"{id},{mac()},{serial}-{id}\n" for id in ids)
