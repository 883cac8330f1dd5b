//! Certificates go on record, are denied and are forgotten. Only folds call this.

use crate::names::{BootstrapName, NodeId, OperatorName, ReplicaId, Serial};
use crate::registry::{Certificate, CertificateStatus, Issued, Owner, State};
use std::sync::Arc;

impl State {
    pub(in crate::registry) fn record_certificate(&mut self, node: &NodeId, issued: &Issued) {
        let mut certificate = Certificate::of(Owner::Node(node.clone()), issued, self.at);
        certificate.bundle = self.bundle_version;
        self.certificates.insert(issued.serial.clone(), Arc::new(certificate));
        self.certified_keys.insert(issued.key, issued.serial.clone());
        self.record_external(issued);
    }

    /// Its bytes are not kept: a lost answer is followed by another renewal.
    pub(in crate::registry) fn record_operator_certificate(&mut self, name: &OperatorName, issued: &Issued) {
        let mut record = Certificate::of(Owner::Operator(name.clone()), issued, self.at);
        record.der = None;
        self.certificates.insert(issued.serial.clone(), Arc::new(record));
    }

    /// Its bytes are not kept: the replica has them, or is given another.
    pub(in crate::registry) fn record_replica_certificate(&mut self, replica: ReplicaId, issued: &Issued) {
        let mut record = Certificate::of(Owner::Replica(replica), issued, self.at);
        record.der = None;
        self.certificates.insert(issued.serial.clone(), Arc::new(record));
    }

    /// Its bytes are not kept: a lost answer is followed by another certificate.
    pub(in crate::registry) fn record_bootstrap_certificate(
        &mut self,
        name: &BootstrapName,
        issued: &Issued,
    ) {
        let mut record = Certificate::of(Owner::Bootstrap(name.clone()), issued, self.at);
        record.der = None;
        self.certificates.insert(issued.serial.clone(), Arc::new(record));
    }

    pub(in crate::registry) fn deny<'a>(&mut self, serials: impl IntoIterator<Item = &'a Serial>) {
        let at = self.at;
        for serial in serials {
            if let Some(certificate) = self.certificates.get_mut(serial).map(Arc::make_mut) {
                // What was refused already stays refused since then.
                let ended = certificate.grace_end();
                let since = ended.map_or(at, |until| until.min(at));
                let was_denied = certificate.status == CertificateStatus::Denied;
                certificate.status = CertificateStatus::Denied;
                certificate.der = None;
                certificate.denied_at.get_or_insert(since);
                let denied = certificate.clone();
                self.denials += 1;
                if !was_denied {
                    self.owe_revocation(serial, &denied, ended.is_some());
                }
            }
        }
    }

    pub(in crate::registry) fn forget_certificate(&mut self, serial: &Serial) {
        let Some(gone) = self.certificates.remove(serial) else { return };
        if self.certified_keys.get(&gone.key) == Some(serial) {
            self.certified_keys.remove(&gone.key);
        }
        match &gone.owner {
            Owner::Node(id) => self.change_node(id, |node| node.serials.retain(|known| known != serial)),
            Owner::Operator(name) => {
                if let Some(operator) = self.operators.get_mut(name) {
                    operator.replaced.retain(|known| known != serial);
                    operator.renewed.take_if(|known| known == serial);
                }
            }
            Owner::Bootstrap(name) => self.forget_bootstrap(name, serial),
            Owner::Replica(id) => {
                if let Some(replica) = self.replicas.get_mut(id) {
                    replica.serial.take_if(|known| known == serial);
                    replica.previous.take_if(|known| known == serial);
                }
            }
        }
    }

    /// Serials of a node that are not denied yet.
    pub(in crate::registry) fn undenied(&self, serials: &[Serial]) -> Vec<Serial> {
        let denied = |serial: &Serial| {
            let held = self.certificates.get(serial);
            held.is_none_or(|held| held.status == CertificateStatus::Denied)
        };
        serials.iter().filter(|serial| !denied(serial)).cloned().collect()
    }
}
