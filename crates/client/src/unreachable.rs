//! Why no answer came: each cause apart, because each has another remedy.

use crate::pinned::PinNotFound;
use rustls::{AlertDescription, CertificateError};
use std::io;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    #[error("the name {host} does not resolve: {reason}")]
    NoSuchName { host: String, reason: String },
    #[error("the connection was refused")]
    ConnectionRefused,
    #[error("no answer in time: {0}")]
    TimedOut(&'static str),
    #[error("the current user may not use this operator socket")]
    SocketForbidden,
    #[error("the network failed: {0}")]
    Network(String),
    #[error("the connection ended before the answer")]
    Closed,
    #[error("the server cannot be trusted: {0}")]
    Untrusted(Distrust),
    /// Anybody on the way can send an alert before the handshake is over, so it says nothing about us.
    #[error("the handshake was broken off: {0}")]
    BrokenOff(String),
    /// From a server that has proven who it is.
    #[error("the server ended the connection: {0}")]
    Alert(TlsAlert),
    #[error("what answered is not a control plane: {0}")]
    Garbage(String),
}

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("its certificate has expired, or this host's clock is wrong")]
    Expired,
    #[error("its certificate is not valid yet, or this host's clock is wrong")]
    NotYetValid,
    #[error("its certificate comes from no CA that is trusted here")]
    UnknownIssuer,
    #[error("its certificate is for another name")]
    WrongName,
    #[error("no certificate of its chain matches the pin")]
    PinNotFound,
    #[error("the issuer of its certificate is on the revocation list of the root that this host trusts")]
    IssuerRevoked,
    #[error("{0}")]
    Other(String),
}

/// A TLS alert after the handshake: as a rule about our certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TlsAlert {
    #[error("this client's certificate was revoked")]
    Revoked,
    #[error("this client's certificate has expired")]
    Expired,
    /// Never to be taken for revoked: another replica may know the issuer.
    #[error("the server does not know the issuer of this client's certificate")]
    UnknownIssuer,
    #[error("the server does not accept this client's certificate")]
    Unacceptable,
    #[error("TLS alert {0}")]
    Other(u8),
}

impl Unreachable {
    /// Whether asking again later may help without anyone changing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Unreachable::NoSuchName { .. }
            | Unreachable::ConnectionRefused
            | Unreachable::TimedOut(_)
            | Unreachable::SocketForbidden
            | Unreachable::Network(_)
            | Unreachable::Closed
            | Unreachable::BrokenOff(_)
            | Unreachable::Alert(TlsAlert::UnknownIssuer) => true,
            Unreachable::Untrusted(_) | Unreachable::Alert(_) | Unreachable::Garbage(_) => false,
        }
    }

    /// The word for it, as in logs and reports: the failure classes of hosts.
    pub fn class(&self) -> &'static str {
        match self {
            Unreachable::Untrusted(Distrust::WrongName) | Unreachable::Garbage(_) => "endpoint_profile_drift",
            Unreachable::Untrusted(_) => "server_tls_untrusted",
            Unreachable::Alert(TlsAlert::Revoked) => "identity_revoked_or_fenced",
            Unreachable::Alert(TlsAlert::Expired) => "cert_expired",
            _ => "endpoint_unreachable",
        }
    }

    /// One line of remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Unreachable::NoSuchName { .. } => "check the server's name and this host's DNS",
            Unreachable::ConnectionRefused => {
                "check address and port, and that `enlist server run` is running"
            }
            Unreachable::SocketForbidden => {
                "run as root, the service's user or a member of its group, or use --server with a certificate or an API key"
            }
            Unreachable::TimedOut(_)
            | Unreachable::Network(_)
            | Unreachable::Closed
            | Unreachable::BrokenOff(_) => {
                "check the network between here and the server, firewalls and proxies included"
            }
            Unreachable::Untrusted(Distrust::Expired | Distrust::NotYetValid) => {
                "compare this host's clock with a source that you trust; if it is right, the server's certificate was not renewed in time, or what answers is an impostor with an old one"
            }
            Unreachable::Untrusted(Distrust::WrongName) => {
                "use a name that the certificate has, or add this one to `names` in the control plane's enlist.toml and restart it"
            }
            Unreachable::Untrusted(Distrust::IssuerRevoked) => {
                "ask an operator whether the control plane has a certificate of another issuer (`enlist ca show`); if it has, what answers here is an impostor with the revoked issuer's key; if not, it has to be given one (`enlist ca roll`)"
            }
            Unreachable::Untrusted(_) => {
                "check CA file or pin: `enlist ca show` on the server prints the right one"
            }
            Unreachable::Alert(TlsAlert::Revoked) => {
                "ask an operator why; a revoked certificate stays revoked"
            }
            Unreachable::Alert(TlsAlert::Expired) => {
                "check this host's clock; if it is right, a host recovers by itself, or with a repair bundle (`enlist node repair-bundle ID --out FILE`)"
            }
            Unreachable::Alert(TlsAlert::UnknownIssuer) => {
                "check that certificate and server belong to the same domain; if they do, the certificate's issuer was retired: get another certificate"
            }
            Unreachable::Alert(_) => "check that certificate and server belong to the same domain",
            Unreachable::Garbage(_) => {
                "check that the address is the control plane's own port, not a proxy's"
            }
        }
    }

    /// What ended a handshake. In TLS 1.3 a server looks at our certificate only when our handshake is over, so
    /// an alert before that may be forged.
    pub(crate) fn in_handshake(error: &io::Error) -> Self {
        match Self::from_io(error) {
            Unreachable::Alert(alert) => Unreachable::BrokenOff(format!(
                "TLS alert {} before the server was authenticated",
                alert.number()
            )),
            other => other,
        }
    }

    /// Sorts out an error that came up through the TLS library, or from below it.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::from_tls(tls);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Unreachable::ConnectionRefused,
            io::ErrorKind::TimedOut => Unreachable::TimedOut("network"),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Unreachable::Closed,
            _ => Unreachable::Network(error.to_string()),
        }
    }

    fn from_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Unreachable::Untrusted(Distrust::of(error)),
            rustls::Error::AlertReceived(alert) => TlsAlert::of(*alert),
            rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => {
                Unreachable::Garbage("it does not speak TLS".to_owned())
            }
            rustls::Error::PeerIncompatible(_) | rustls::Error::PeerMisbehaved(_) => {
                Unreachable::Garbage("it does not speak TLS 1.3 as it should".to_owned())
            }
            rustls::Error::NoApplicationProtocol => {
                Unreachable::Garbage("it does not speak the protocol asked for".to_owned())
            }
            other => Unreachable::Garbage(other.to_string()),
        }
    }
}

impl Distrust {
    fn of(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Distrust::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Distrust::NotYetValid
            }
            CertificateError::UnknownIssuer => Distrust::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Distrust::WrongName
            }
            CertificateError::Revoked => Distrust::IssuerRevoked,
            CertificateError::Other(other) if other.0.is::<PinNotFound>() => Distrust::PinNotFound,
            other => Distrust::Other(in_words(other).to_owned()),
        }
    }
}

/// The rest would be shown as the Debug form of library types.
fn in_words(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::BadEncoding => "its certificate is malformed",
        CertificateError::BadSignature => "a signature in its chain is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not for servers"
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => "its certificate is a CA's own",
            Some(webpki::Error::EndEntityUsedAsCa) => "a certificate in its chain is no CA's",
            Some(webpki::Error::PathLenConstraintViolated) => "its chain is longer than its CA allows",
            Some(webpki::Error::NameConstraintViolation) => "its CA may not speak for its name",
            _ => "its certificate cannot be used",
        },
        _ => "its certificate cannot be used",
    }
}

impl TlsAlert {
    fn number(self) -> u8 {
        match self {
            TlsAlert::Revoked => AlertDescription::CertificateRevoked.into(),
            TlsAlert::Expired => AlertDescription::CertificateExpired.into(),
            TlsAlert::UnknownIssuer => AlertDescription::UnknownCA.into(),
            TlsAlert::Unacceptable => AlertDescription::BadCertificate.into(),
            TlsAlert::Other(number) => number,
        }
    }

    /// Alerts that are not about a certificate come from something that does not speak our TLS.
    fn of(alert: AlertDescription) -> Unreachable {
        Unreachable::Alert(match alert {
            AlertDescription::CertificateRevoked => TlsAlert::Revoked,
            AlertDescription::CertificateExpired => TlsAlert::Expired,
            AlertDescription::UnknownCA => TlsAlert::UnknownIssuer,
            AlertDescription::BadCertificate => TlsAlert::Unacceptable,
            AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => {
                return Unreachable::Garbage("it does not speak TLS 1.3".to_owned());
            }
            AlertDescription::NoApplicationProtocol => {
                return Unreachable::Garbage("it does not speak the protocol asked for".to_owned());
            }
            other => TlsAlert::Other(u8::from(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError};

    use super::*;

    fn check(error: rustls::Error, said: &str) {
        let text = Unreachable::from_io(&io::Error::other(error)).to_string();
        assert_eq!(text, said);
    }

    #[test]
    fn what_the_libraries_say_is_said_in_plain_words() {
        let of =
            |error| rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))));
        let untrusted = |what: &str| format!("the server cannot be trusted: {what}");
        check(of(webpki::Error::CaUsedAsEndEntity), &untrusted("its certificate is a CA's own"));
        check(of(webpki::Error::InvalidSerialNumber), &untrusted("its certificate cannot be used"));
        let garbled = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        check(garbled, "what answered is not a control plane: it does not speak TLS");
    }
}
