//! The control plane's own certificate.

use crate::support::{Domain, check, granted, issuer, refused, span};
use lifecycle::names::{Fingerprint, ReplicaId, Serial};
use lifecycle::registry::{Actor, Command, ServerCertificate};

fn certificate(domain: &mut Domain) -> ServerCertificate {
    ServerCertificate {
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        issuer: issuer("i1"),
        not_after: domain.now.plus(span("90d")),
        replica: ReplicaId::FIRST,
    }
}

fn record(certificate: &ServerCertificate) -> (Actor, Command) {
    (Actor::Reconciler, Command::RecordServerCertificate(certificate.clone()))
}

#[test]
fn the_latest_is_on_record_and_recording_it_twice_is_once() {
    let mut domain = Domain::founded();
    for _ in 0..2 {
        let latest = certificate(&mut domain);
        check(&mut domain, record(&latest), granted(&["server_certificate.issued"]));
        check(&mut domain, record(&latest), granted(&[]));
        assert_eq!(domain.state.server_certificate, Some(latest));
    }
}

#[test]
fn what_does_not_fit_is_not_recorded() {
    fn bad(change: impl FnOnce(&mut ServerCertificate, Serial, Serial)) {
        let mut domain = Domain::founded();
        let nodes = domain.enroll().serial;
        let first = certificate(&mut domain);
        check(&mut domain, record(&first), granted(&["server_certificate.issued"]));
        let mut next = certificate(&mut domain);
        change(&mut next, nodes, first.serial);
        check(&mut domain, record(&next), refused("try_again"));
    }
    bad(|next, nodes, _| next.serial = nodes);
    bad(|next, _, own| next.serial = own);
    bad(|next, _, _| next.issuer = issuer("i2"));
    bad(|next, _, _| next.not_after = next.not_after.plus(span("300d")));
}
