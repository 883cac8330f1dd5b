//! Certificates as a test needs them.

use client::DeniedIssuers;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

/// When a certificate is good.
#[derive(Clone, Copy)]
pub enum Dates {
    Now,
    Past,
    Future,
}

/// A CA that can sign.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub der: CertificateDer<'static>,
}

/// A certificate with its key.
pub struct Leaf {
    pub der: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

fn params(common_name: &str, dates: Dates) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let (from, to) = match dates {
        Dates::Now => (-1, 1),
        Dates::Past => (-3, -1),
        Dates::Future => (1, 3),
    };
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now + Duration::days(from), now + Duration::days(to));
    params
}

fn ca_params(common_name: &str, dates: Dates, path_length: u8) -> CertificateParams {
    let mut params = params(common_name, dates);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    pub fn root(dates: Dates) -> Self {
        let (params, key) = (ca_params("test root", dates, 1), KeyPair::generate().unwrap());
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), der }
    }

    /// As if this certificate were on its revocation list.
    pub fn denies(&self, certificate: &CertificateDer<'_>) -> DeniedIssuers {
        let serial = pki::describe::facts(certificate).unwrap().serial;
        DeniedIssuers::new([(self.der.clone(), vec![serial])])
    }

    /// An authority below this one.
    pub fn intermediate(&self, common_name: &str) -> Self {
        let (params, key) = (ca_params(common_name, Dates::Now, 0), KeyPair::generate().unwrap());
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), der }
    }

    /// This root's key under the signature of an older root of the same name.
    pub fn cross_certificate(&self, older: &Self) -> CertificateDer<'static> {
        let params = ca_params("test root", Dates::Now, 1);
        params.signed_by(self.issuer.key(), &older.issuer).unwrap().der().clone()
    }

    pub fn server(&self, names: &[&str], dates: Dates) -> Leaf {
        self.leaf(names, dates, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self) -> Leaf {
        self.leaf(&["client.example"], Dates::Now, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub fn leaf(&self, names: &[&str], dates: Dates, purpose: ExtendedKeyUsagePurpose) -> Leaf {
        let mut params = params("test leaf", dates);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Leaf { der, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }
}

impl Leaf {
    /// This certificate misused as an authority.
    pub fn as_authority(&self) -> Authority {
        let key = KeyPair::try_from(self.key.secret_der()).unwrap();
        Authority { issuer: Issuer::new(params("test leaf", Dates::Now), key), der: self.der.clone() }
    }
}
