"""A server that is not the control plane, and sends what is expensive to read."""

import resource

import pytest

import certs
import hostile
from agents import enroll
from certs import x509
from cryptography.hazmat.primitives import hashes
from impostors import Authority, Impostor, built, common_name

MOST = 0.5
"""CPU seconds more than for a server that sends one unknown certificate."""


class Cross(Authority):
    """Sends, with its own certificate, many CAs that issue each other, and the domain's root, which anybody can read."""

    def __init__(self, root: bytes, count: int):
        self.root, self.web = root, hostile.web(count)

    def files(self, name: str = "127.0.0.1") -> tuple:
        key = certs.ec_key()
        builder = built(common_name("server"), self.web[0].subject, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        leaf = builder.sign(certs.ec_key(), hashes.SHA256())
        chain = "".join(certs.pem(one).decode() for one in self.web) + self.root.decode()
        return certs.identity(hostile.scratch("cross"), key, certs.pem(leaf).decode(), chain)


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(plane, place, trust, authority) -> float:
    """CPU seconds of an agent that is led to an impostor; the token must not be sent."""
    with Impostor("garbage", authority) as impostor:
        before = spent()
        done = enroll(plane, place, token=plane.token(), server=impostor.url, trust=trust)
        assert done.code != 0, done
        assert not impostor.heard, "something was sent to an impostor"
        assert impostor.connections, "the agent never came"
        return spent() - before


@pytest.mark.parametrize("trust", ["ca_file", "pin"])
def test_cas_that_issue_each_other_cost_a_host_nothing(plane, place, trust):
    """Both with a CA file and with a pin, a chain longer than any real one is refused before paths are built."""
    root = certs.pem(certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[-1])
    given = ("--ca-pin", plane.pin) if trust == "pin" else ("--ca-file", plane.dir / "ca" / "bundle.pem")
    plain = cost(plane, place / "plain", given, Cross(root, 1))
    for count in (5, hostile.WEB):
        more = cost(plane, place / str(count), given, Cross(root, count)) - plain
        assert more < MOST, f"{count} CAs cost {more:.2f} s"
