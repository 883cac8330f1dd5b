//! How the control plane is verified, and how we authenticate: flags before variables before the saved context.

use super::Reach;
use super::target::Variables;
use crate::context::saved::Context;
use crate::error::CommandError;
use std::path::PathBuf;

/// What the certificate of the control plane is verified by. There is no trust on first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerTrust {
    Ca(PathBuf),
    Pin(String),
}

/// What we authenticate with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorCredential {
    Certificate { cert: PathBuf, key: PathBuf },
    ApiKey(PathBuf),
}

pub fn server_trust(
    flags: &Reach,
    variables: Variables<'_>,
    context: Option<&Context>,
) -> Result<ServerTrust, CommandError> {
    let one_of = |ca: Option<&PathBuf>, pin: Option<&String>, names: &str| match (ca, pin) {
        (Some(_), Some(_)) => Err(CommandError::usage(format!("{names} are both given"), "give one of them")),
        (Some(ca), None) => Ok(Some(ServerTrust::Ca(ca.clone()))),
        (None, Some(pin)) => Ok(Some(ServerTrust::Pin(pin.clone()))),
        (None, None) => Ok(None),
    };
    if let Some(given) = one_of(flags.ca.as_ref(), flags.ca_pin.as_ref(), "--ca and --ca-pin")? {
        return Ok(given);
    }
    if let Some(ca) = variables("ENLIST_CA") {
        return Ok(ServerTrust::Ca(ca.into()));
    }
    let saved = context.map(|context| one_of(context.ca.as_ref(), context.ca_pin.as_ref(), "ca and ca_pin"));
    saved.transpose()?.flatten().ok_or_else(|| {
        let message = "nothing says how to verify the control plane's certificate";
        CommandError::usage(message, "give --ca FILE (its ca/bundle.pem) or --ca-pin PIN")
    })
}

/// For what needs one.
pub fn missing_credential() -> CommandError {
    CommandError::usage(
        "no operator credential is given",
        "give --cert FILE and --key FILE, or --api-key-file FILE",
    )
}

/// The credentials that one source names.
#[derive(Default)]
struct GivenCredential {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    api_key: Option<PathBuf>,
}

impl GivenCredential {
    fn is_empty(&self) -> bool {
        self.cert.is_none() && self.key.is_none() && self.api_key.is_none()
    }
}

pub fn credential(
    flags: &Reach,
    variables: Variables<'_>,
    context: Option<&Context>,
) -> Result<Option<OperatorCredential>, CommandError> {
    let path = |name: &str| variables(name).map(PathBuf::from);
    let mut given = GivenCredential {
        cert: flags.cert.clone(),
        key: flags.key.clone(),
        api_key: flags.api_key_file.clone(),
    };
    if given.api_key.is_none() {
        // A variable completes a flag: one names the certificate, the other its key.
        let any = given.is_empty();
        given.cert = given.cert.or_else(|| path("ENLIST_CERT"));
        given.key = given.key.or_else(|| path("ENLIST_KEY"));
        given.api_key = path("ENLIST_API_KEY_FILE").filter(|_| any);
    }
    if let Some(context) = context.filter(|_| given.is_empty()) {
        let Context { cert, key, api_key_file, .. } = context.clone();
        given = GivenCredential { cert, key, api_key: api_key_file };
    }
    match (given.cert, given.key, given.api_key) {
        (Some(cert), Some(key), None) => Ok(Some(OperatorCredential::Certificate { cert, key })),
        (None, None, Some(file)) => Ok(Some(OperatorCredential::ApiKey(file))),
        (None, None, None) => Ok(None),
        (_, _, None) => Err(CommandError::usage(
            "a certificate and its private key must be given together",
            "give both --cert and --key",
        )),
        (_, _, Some(_)) => {
            Err(CommandError::usage("both a certificate and an API key are given", "give one of them"))
        }
    }
}
