//! Every key of enlist.toml but those of tables that have a file of their own. To add one, add its line and use its field.

use super::audit::{self, AuditConfig, RawAudit};
use super::claims::{self, ClaimsConfig, RawClaims};
use super::endpoint_profile::{self, RawEndpointProfile};
use super::form::{ADDRESS, COMMON_NAME, DOOR, HOST_NAME, KEK, SERVER_URL, WEBHOOK};
use super::journal::{JournalConfig, RawJournal};
use super::key::config_keys;
use super::loki::{self, LokiConfig, RawLoki};
use super::own_certificate::{OwnCertificate, RawTls, both_or_neither};
use super::pkcs11::{self, Pkcs11Config, RawPkcs11};
use super::ready::{RawReady, ReadyConfig};
use super::recovery::{ConfiguredRecovery, RawRecovery};
use super::shape::{FormList, FormTable, ListOr, Optional, OptionalTable, Required, SetOrAll, StringOr};
use super::spire::{RawSpire, SpireConfig};
use super::table_list::TableList;
use api::agent::EndpointProfile;
use client::webhook::Webhook;
use lifecycle::registry::Door;
use pki::seal::KekSource;
use std::net::SocketAddr;

config_keys! {
    /// `enlist.toml` as written.
    pub struct RawConfig as written;
    /// Checked configuration: everything here can be used as it is.
    pub struct ControlPlaneConfig {
        /// Addresses to listen on; port 0 lets the system choose
        "listen" listen: ListOr<SocketAddr> = ListOr(&ADDRESS, &["[::]:8443"]);
        /// Names and addresses in the server certificate, beside `localhost`, `127.0.0.1`, `::1` and the listen addresses
        "names" names: FormList<String> = FormList(&HOST_NAME, "none");
        /// URLs that hosts are directed to
        "advertise" advertise: FormList<String> = FormList(&SERVER_URL, "the first name, else the listen address");
        /// Address for connections between replicas, which is also what other replicas are told. Served once the first
        /// `enlist cluster token` is created
        "peer_listen" peer_listen: Optional<SocketAddr> = Optional(&ADDRESS, "the first listen address, port 8444");
        /// Where the key-encryption key is read from; the key itself is 64 hex digits, or base64 of 32 bytes
        "kek" kek: Required<KekSource> = Required(&KEK, ": the CA key is never stored unsealed");
        /// Common name of the server certificate
        "server_cn" server_cn: StringOr<String> = StringOr(&COMMON_NAME, "enlist-control-plane");
        /// Address of a listener without TLS for scrapers, such as `127.0.0.1:9464`
        "metrics" metrics: Optional<SocketAddr> = Optional(&ADDRESS, "off");
        /// Address of a listener without TLS for load balancers, with `/healthz` and `/readyz` alone
        "health" health: Optional<SocketAddr> = Optional(&ADDRESS, "off");
        "alerts" alerts: FormTable<RawAlerts, AlertsConfig> = FormTable(|_, alerts, _| alerts);
        "audit" audit: FormTable<RawAudit, AuditConfig> = FormTable(audit::usable);
        "ready" ready: FormTable<RawReady, ReadyConfig> = FormTable(|_, ready, _| ready);
        "journal" journal: FormTable<RawJournal, JournalConfig> = FormTable(|_, journal, _| journal);
        "loki" loki: OptionalTable<RawLoki, LokiConfig> = OptionalTable(loki::usable);
        "claims" claims: OptionalTable<RawClaims, ClaimsConfig> = OptionalTable(claims::usable);
        "doors" doors: FormTable<RawDoors, DoorsConfig> = FormTable(|_, doors, _| doors);
        "tls" own_certificate: FormTable<RawTls, Option<OwnCertificate>> = FormTable(both_or_neither);
        "pkcs11" pkcs11: OptionalTable<RawPkcs11, Pkcs11Config> = OptionalTable(pkcs11::usable);
        "endpoint_profile" endpoint_profile: OptionalTable<RawEndpointProfile, EndpointProfile> =
            OptionalTable(endpoint_profile::sent);
        "spire" spire: TableList<RawSpire, SpireConfig> = TableList(|_, spire, _| spire);
        "recovery" recovery: FormTable<RawRecovery, ConfiguredRecovery> = FormTable(|_, recovery, _| recovery);
    }
}

config_keys! {
    /// `[alerts]` as written.
    pub struct RawAlerts as written;
    /// Who is told of alerts.
    pub struct AlertsConfig {
        /// URL that alerts are sent to; see below
        "webhook" webhook: Optional<Webhook> = Optional(&WEBHOOK, "off");
    }
}

config_keys! {
    /// `[doors]` as written.
    pub struct RawDoors as written;
    /// The compatibility APIs.
    pub struct DoorsConfig {
        /// Compatibility APIs to serve; the paths of the others are 404, though `/openapi.json` describes them all. `native`
        /// may be listed; it is always served
        "serve" serve: SetOrAll<Door> = SetOrAll(&DOOR, &Door::ALL);
    }
}
