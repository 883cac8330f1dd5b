//! `[claims]`: where domains tell each other which machines are active in them.

use super::form::{CERTIFICATES, Form};
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::{Optional, Required, StringOr};
use client::foreign::ForeignUrl;
use client::trust::Trust;
use lifecycle::names::Span;
use rustls_pki_types::CertificateDer;

static BOARD_URL: Form<ForeignUrl> = Form {
    parse: |text| ForeignUrl::parse(text).ok(),
    expected: || {
        "an http:// or https:// URL, with a port from 1 to 65535 or none, without user name".to_owned()
    },
    // The URL may hold a secret.
    is_secret: true,
};

static INTERVAL: Form<Span> = Form {
    parse: |text| {
        let fits = |span: &Span| (Span::from_secs(1)..=Span::from_hours(1)).contains(span);
        Span::parse(text).ok().filter(fits)
    },
    expected: || "a duration such as 60s, from 1s to 1h".to_owned(),
    is_secret: false,
};

config_keys! {
    /// `[claims]` as written.
    pub struct RawClaims as written;
    /// `[claims]` key by key.
    pub struct ClaimsKeys {
        /// Where the claims of this domain are posted to and those of others are read from; see [claims.md](claims.md)
        "url" url: Required<ForeignUrl> = Required(&BOARD_URL, "");
        /// Roots of the domains whose claims are believed; read at start
        "trust" trust: Required<String> = Required(&CERTIFICATES, "");
        /// CA that the certificate of an https `url` must come from; read at start
        "ca_file" ca: Optional<String> = Optional(&CERTIFICATES, "the system's roots");
        /// How often claims are posted and read; a claim ends after ten times as long
        "interval" interval: StringOr<Span> = StringOr(&INTERVAL, "60s");
    }
}

/// What publishing and reading claims needs to know.
#[derive(Debug, Clone)]
pub struct ClaimsConfig {
    pub url: ForeignUrl,
    /// Of the domains whose claims are believed.
    pub roots: Vec<CertificateDer<'static>>,
    /// By which the server at the URL is recognised.
    pub trust: Trust,
    pub interval: Span,
}

pub(super) fn usable(
    _: &RawClaims,
    keys: Option<ClaimsKeys>,
    _: &mut Vec<ConfigMistake>,
) -> Option<ClaimsConfig> {
    let keys = keys?;
    let trust = match &keys.ca {
        None => Trust::system_roots(),
        // Read as certificates already, as are the roots.
        Some(pem) => Trust::from_ca_pem(pem.as_bytes()).ok()?,
    };
    let roots = pki::pem::certificates(keys.trust.as_bytes()).ok()?;
    Some(ClaimsConfig { url: keys.url, roots, trust, interval: keys.interval })
}
