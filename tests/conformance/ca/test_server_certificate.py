"""The control plane's own certificate as its year goes by. Its names and its beginning: test_taskrun.py, test_certificates.py."""

import datetime

import certs
import clocks
import pytest
import workers
from machine import tool
from plane import ControlPlane

DAY = datetime.timedelta(days=1)


class Years:
    """A control plane that is stopped and lives on at another day."""

    def __init__(self):
        self.plane = ControlPlane(init=workers.TASKRUN, env=clocks.shifted(0)).found().start()

    def at(self, day: int) -> list:
        """What the listener presents then: leaf, issuer and root, good at that time by what openssl says."""
        pid = self.plane.process.pid
        self.plane.stop()
        clocks.sweep(pid)
        self.plane.env = clocks.shifted(24 * day)
        self.plane.start("--accept-clock")
        shown = tool(
            *("env", *(f"{name}={value}" for name, value in self.plane.env.items())),
            *("openssl", "s_client", "-showcerts", "-connect", f"127.0.0.1:{self.plane.port}", "-verify_return_error"),
            *("-CAfile", self.plane.dir / "ca" / "bundle.pem", "-verify_ip", "127.0.0.1"),
        )
        assert "Verify return code: 0 (ok)" in shown.out, shown
        pems = [part.split("-----END")[0] for part in shown.out.split("-----BEGIN CERTIFICATE-----")[1:]]
        return [certs.certificate(f"-----BEGIN CERTIFICATE-----{pem}-----END CERTIFICATE-----\n") for pem in pems]

    def close(self) -> None:
        self.plane.close()
        clocks.sweep(self.plane.process.pid)


@pytest.fixture
def years(programs):
    made = Years()
    yield made
    made.close()


def test_it_is_renewed_at_two_thirds_of_its_year(years):
    """Proves TASK-03: the same until day 243, and by day 245 another with the same names. It never outlives its issuer."""
    first, *_ = certs.certificates((years.plane.dir / "ca" / "server.pem").read_bytes())
    assert abs(first.not_valid_after_utc - first.not_valid_before_utc - 365 * DAY) < DAY
    still, *_ = years.at(242)
    assert certs.serial(still) == certs.serial(first)
    renewed, issuer, *_ = years.at(245)
    assert certs.serial(renewed) != certs.serial(first)
    assert certs.public_der(renewed.public_key()) != certs.public_der(first.public_key()), "a key of its own"
    assert (renewed.subject, set(certs.names(renewed))) == (first.subject, set(certs.names(first)))
    began = renewed.not_valid_before_utc - first.not_valid_before_utc
    assert abs(began - 245 * DAY) < DAY
    assert renewed.not_valid_after_utc == min(renewed.not_valid_before_utc + 365 * DAY, issuer.not_valid_after_utc)
    after, *_ = years.at(246)
    assert certs.serial(after) == certs.serial(renewed), "once"
