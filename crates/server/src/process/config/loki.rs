//! `[loki]`: where the audit trail is forwarded to.

use super::form::{CERTIFICATES, DURATION, Form, SECRET_FILE};
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::{Optional, Required, StringOr};
use client::foreign::ForeignUrl;
use client::trust::Trust;
use http::HeaderValue;
use lifecycle::names::Span;
use std::path::PathBuf;

const PUSH: &str = "/loki/api/v1/push";

/// With the path of the push API, which most people leave out.
static LOKI_URL: Form<ForeignUrl> = Form {
    parse: |text| {
        let url = ForeignUrl::parse(text).ok().filter(|url| !url.path().contains('?'))?;
        let path = url.path().trim_end_matches('/').to_owned();
        Some(url.with_path(if path.ends_with(PUSH) { path } else { path + PUSH }))
    },
    expected: || {
        "an http:// or https:// URL of Loki, with a port from 1 to 65535 or none, without query and user name, for which there are username and password_file"
            .to_owned()
    },
    // It may be written with a password in it.
    is_secret: true,
};

static TENANT: Form<HeaderValue> = Form {
    parse: |text| HeaderValue::from_str(text).ok().filter(|_| is_field(text)),
    expected: || "1 to 150 visible ASCII characters".to_owned(),
    is_secret: false,
};

static USERNAME: Form<String> = Form {
    parse: |text| Some(text.to_owned()).filter(|text| is_field(text) && !text.contains(':')),
    expected: || "1 to 150 visible ASCII characters without a colon".to_owned(),
    is_secret: false,
};

fn is_field(text: &str) -> bool {
    (1..=150).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

static START: Form<ForwardingStart> = Form {
    parse: |text| match text {
        "start" => Some(ForwardingStart::Start),
        "now" => Some(ForwardingStart::Now),
        number => number.parse().ok().filter(|first| *first > 0).map(ForwardingStart::Line),
    },
    expected: || r#""start", "now", or the number of a line in quotes, such as "1200""#.to_owned(),
    is_secret: false,
};

/// With which line forwarding begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardingStart {
    Start,
    /// With the first one that is written after it was first configured.
    Now,
    /// Nothing before this one.
    Line(u64),
}

config_keys! {
    /// `[loki]` as written.
    pub struct RawLoki as written;
    /// `[loki]` key by key.
    pub struct LokiKeys {
        /// Loki that the audit trail is forwarded to; `/loki/api/v1/push` is added where it is missing; see below
        "url" url: Required<ForeignUrl> = Required(&LOKI_URL, "");
        /// Tenant there (`X-Scope-OrgID`)
        "tenant" tenant: Optional<HeaderValue> = Optional(&TENANT, "none");
        /// User name for basic authentication; set it together with `password_file`
        "username" username: Optional<String> = Optional(&USERNAME, "none");
        /// File with the password; read again for every request
        "password_file" password_file: Optional<PathBuf> = Optional(&SECRET_FILE, "none");
        /// File with a bearer token, instead of user name and password; read again for every request
        "bearer_file" bearer_file: Optional<PathBuf> = Optional(&SECRET_FILE, "none");
        /// CA that Loki's certificate must come from; read at start
        "ca_file" ca: Optional<String> = Optional(&CERTIFICATES, "the system's roots");
        /// The first line to forward. `start`: the whole trail. `now`: what is written after this was first configured. A number:
        /// nothing before that line, also of what has not been forwarded yet; if the trail is not that long at a start, nothing of
        /// what it holds then
        "from" from: StringOr<ForwardingStart> = StringOr(&START, "start");
        /// How long forwarding may fail before the alert `audit_forwarding_failing` is raised
        "alert_after" alert_after: StringOr<Span> = StringOr(&DURATION, "5m");
    }
}

/// As whom Loki is asked. Secrets are in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LokiCredential {
    None,
    Basic { username: String, password_file: PathBuf },
    Bearer { file: PathBuf },
}

/// What forwarding needs to know.
#[derive(Debug, Clone)]
pub struct LokiConfig {
    pub url: ForeignUrl,
    pub tenant: Option<HeaderValue>,
    pub credential: LokiCredential,
    pub trust: Trust,
    pub from: ForwardingStart,
    pub alert_after: Span,
}

/// User name and password belong together; one kind of credential is enough.
pub(super) fn usable(
    written: &RawLoki,
    keys: Option<LokiKeys>,
    mistakes: &mut Vec<ConfigMistake>,
) -> Option<LokiConfig> {
    let wrong = match (&written.username, &written.password_file, &written.bearer_file) {
        (None, None, _) | (Some(_), Some(_), None) => None,
        (Some(_), _, Some(file)) | (_, Some(_), Some(file)) => {
            let expected = "either this, or username and password_file, not both";
            Some(("loki.bearer_file", Some(file.as_str()), expected))
        }
        (None, Some(_), None) => Some(("loki.username", None, "a user name; it belongs to password_file")),
        (Some(_), None, None) => {
            Some(("loki.password_file", None, "a file with the password of the user name"))
        }
    };
    if let Some((key, value, expected)) = wrong {
        mistakes.push(match value {
            Some(value) => ConfigMistake::new(key, value, expected),
            None => ConfigMistake::missing(key, expected),
        });
        return None;
    }
    let keys = keys?;
    let basic = keys.username.zip(keys.password_file);
    let basic = basic.map(|(username, password_file)| LokiCredential::Basic { username, password_file });
    let bearer = keys.bearer_file.map(|file| LokiCredential::Bearer { file });
    let trust = match &keys.ca {
        None => Trust::system_roots(),
        // Read as certificates already.
        Some(pem) => Trust::from_ca_pem(pem.as_bytes()).ok()?,
    };
    Some(LokiConfig {
        url: keys.url,
        tenant: keys.tenant,
        credential: basic.or(bearer).unwrap_or(LokiCredential::None),
        trust,
        from: keys.from,
        alert_after: keys.alert_after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_push_api_is_added_where_it_is_missing() {
        for (written, path) in [
            ("http://loki:3100", "/loki/api/v1/push"),
            ("http://loki:3100/", "/loki/api/v1/push"),
            ("https://logs.example/loki/api/v1/push", "/loki/api/v1/push"),
            ("https://logs.example/loki/api/v1/push/", "/loki/api/v1/push"),
            ("https://gate.example/logs/", "/logs/loki/api/v1/push"),
        ] {
            assert_eq!((LOKI_URL.parse)(written).map(|url| url.path().to_owned()).as_deref(), Some(path));
        }
        for bad in ["loki:3100", "http://u:p@loki", "http://loki/?x=1", ""] {
            assert!((LOKI_URL.parse)(bad).is_none(), "{bad}");
        }
    }

    fn mistakes_of(raw: &RawLoki) -> Vec<String> {
        use super::super::key::ConfigTable as _;
        let mut mistakes = Vec::new();
        let keys = raw.check("loki.", &mut mistakes);
        let _ = usable(raw, keys, &mut mistakes);
        mistakes.into_iter().map(|mistake| mistake.key).collect()
    }

    #[test]
    fn user_name_and_password_belong_together() {
        let file = std::env::current_exe().expect("a file").display().to_string();
        let url = Some("http://127.0.0.1:3100".to_owned());
        let raw = RawLoki { url: url.clone(), username: Some("ada".to_owned()), ..RawLoki::default() };
        assert_eq!(mistakes_of(&raw), ["loki.password_file"]);
        let raw = RawLoki { url: url.clone(), password_file: Some(file), ..RawLoki::default() };
        assert!(mistakes_of(&raw).contains(&"loki.username".to_owned()));
        let raw = RawLoki { from: Some("yesterday".to_owned()), ..RawLoki::default() };
        assert_eq!(mistakes_of(&raw), ["loki.url", "loki.from"], "every mistake at once");
        assert!(mistakes_of(&RawLoki { url, ..RawLoki::default() }).is_empty());
    }
}
