//! What one string in the configuration may be.

use client::url::ServerUrl;
use client::webhook::Webhook;
use lifecycle::names::{Label, Span};
use lifecycle::registry::Door;
use pki::seal::KekSource;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// How a string becomes a `T`.
pub struct Form<T: 'static> {
    pub parse: fn(&str) -> Option<T>,
    /// What a mistake says was expected.
    pub expected: fn() -> String,
    /// Whether a wrong value may be shown.
    pub is_secret: bool,
}

impl<T> Form<T> {
    pub const fn new(parse: fn(&str) -> Option<T>, expected: fn() -> String) -> Self {
        Self { parse, expected, is_secret: false }
    }
}

pub static ADDRESS: Form<SocketAddr> =
    Form::new(|text| text.parse().ok(), || "ADDRESS:PORT, such as [::]:8443 or 127.0.0.1:0".to_owned());

pub static HOST_NAME: Form<String> = Form::new(
    |text| is_host_name(text).then(|| text.to_owned()),
    || "a host name or an IP address".to_owned(),
);

pub static SERVER_URL: Form<String> = Form::new(
    |text| ServerUrl::parse(text).ok().map(|_| text.trim_end_matches('/').to_owned()),
    || "an https:// URL with host and optional port".to_owned(),
);

pub static WEBHOOK: Form<Webhook> = Form {
    parse: |text| Webhook::parse(text).ok(),
    expected: || "an http:// or https:// URL without user name".to_owned(),
    // The URL may hold a secret.
    is_secret: true,
};

pub static KEK: Form<KekSource> =
    Form::new(|text| KekSource::parse(text).ok(), || "file:PATH or env:NAME".to_owned());

pub static COMMON_NAME: Form<String> = Form::new(
    |text| {
        let fits = (1..=64).contains(&text.len()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned())
    },
    || "1 to 64 printable characters".to_owned(),
);

pub static LABEL: Form<Label> =
    Form::new(|text| Label::parse(text).ok(), || "1 to 128 visible ASCII characters".to_owned());

pub static DOOR: Form<Door> =
    Form::new(Door::parse, || format!("one of {}", Door::ALL.map(Door::as_str).join(", ")));

/// Found from wherever the control plane is started.
pub static ABSOLUTE_PATH: Form<PathBuf> = Form::new(
    |text| Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
    || "an absolute path".to_owned(),
);

pub static DURATION: Form<Span> = Form::new(
    |text| Span::parse(text).ok().filter(|span| span.millis() > 0),
    || "a duration of at least 1s, such as 90s, 15m, 1h or 7d".to_owned(),
);

/// A file with a secret, which is read when it is needed.
pub static SECRET_FILE: Form<PathBuf> = Form::new(
    |text| Some(PathBuf::from(text)).filter(|path| path.is_absolute() && read_secret(path).is_ok()),
    || "the absolute path of a readable file that holds one line of at most 4 KiB".to_owned(),
);

const SECRET_BYTES: u64 = 4096;

/// The first and only line of a file, without spaces around it.
pub fn read_secret(file: &Path) -> std::io::Result<String> {
    let bad = |what| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let mut text = String::new();
    // A pipe would never end.
    if !std::fs::metadata(file)?.is_file() {
        return Err(bad("it is not a regular file"));
    }
    std::fs::File::open(file)?.take(SECRET_BYTES + 1).read_to_string(&mut text)?;
    let secret = text.trim();
    let visible = secret.chars().all(|c| !c.is_control()) && !secret.is_empty();
    match u64::try_from(text.len()).is_ok_and(|length| length <= SECRET_BYTES) && visible {
        true => Ok(secret.to_owned()),
        false => Err(bad("it does not hold one line of at most 4 KiB")),
    }
}

/// The certificates in a file, and nothing else of it.
pub static CERTIFICATES: Form<String> = Form::new(
    |text| certificates(Path::new(text)),
    || "the absolute path of a readable file with certificates in PEM, at most 64 KiB".to_owned(),
);

/// They go to every host.
const CERTIFICATES_BYTES: u64 = 64 * 1024;

fn certificates(file: &Path) -> Option<String> {
    let fits =
        file.is_absolute() && std::fs::metadata(file).is_ok_and(|meta| meta.len() <= CERTIFICATES_BYTES);
    let text = fits.then(|| std::fs::read(file).ok()).flatten()?;
    let found = pki::pem::certificates(&text).ok()?;
    Some(pki::pem::chain_pem(found.iter().map(|certificate| certificate.as_ref())))
}

pub fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name that ends in a number looks like an address that it is not.
    let numeric = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let named =
        name.len() <= 253 && name.split('.').all(label) && !name.rsplit('.').next().is_some_and(numeric);
    name.parse::<IpAddr>().is_ok() || named
}
