//! What of a request may stand in the log.

use crate::process::chance;

/// How much of a path is worth a place in the log.
const PATH_LOGGED: usize = 200;
/// How our secrets begin.
const SECRETS: [&str; 3] = [chance::TOKEN_PREFIX, chance::JOIN_PREFIX, chance::KEY_PREFIX];
/// No secret of ours is shorter, and few ids are as long.
const SECRET_CHARS: usize = 40;
/// What stands in the log for what may be a secret.
const HIDDEN: &str = "[secret]";

/// A path may hold what should never be in one: a secret where its id belongs, also one without a prefix, and
/// in the disguise of percent signs.
pub fn fit_for_the_log(path: &str) -> String {
    let plain = |part: &str| percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned();
    // The document's tokens are base64: a slash in one divides it, and each ends with this.
    if plain(path).contains('=') {
        return HIDDEN.to_owned();
    }
    let harmless = |part: &str| {
        let text = plain(part);
        part.chars().count() < SECRET_CHARS && !SECRETS.iter().any(|prefix| text.contains(prefix))
    };
    let parts = path.split('/').map(|part| if harmless(part) { part } else { HIDDEN });
    parts.collect::<Vec<_>>().join("/").chars().take(PATH_LOGGED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_reaches_the_log_by_a_path() {
        for good in ["/v1/tokens/tok_1", "/v1/hosts/enroll-tokens/x", "/v1/nodes/a%20b/drain", "/"] {
            assert_eq!(fit_for_the_log(good), good);
        }
        let token = "qL8f0".repeat(9);
        for (path, logged) in [
            ("/v1/tokens/enroll_abc".to_owned(), "/v1/tokens/[secret]"),
            ("/v1/tokens/%65nroll%5Fabc".to_owned(), "/v1/tokens/[secret]"),
            ("/v1/tokens/x%2Fekey_abc".to_owned(), "/v1/tokens/[secret]"),
            (format!("/v1/tokens/{token}"), "/v1/tokens/[secret]"),
            (format!("/v1/workers/{token}/revoke"), "/v1/workers/[secret]/revoke"),
            ("/v1/tokens/qL8f0qL8f0/qL8f0qL8f0=".to_owned(), "[secret]"),
            ("/v1/tokens/qL8f0qL8f0/qL8f0qL8f0%3D".to_owned(), "[secret]"),
        ] {
            assert_eq!(fit_for_the_log(&path), logged, "{path}");
        }
        for door in [lifecycle::registry::Door::Taskrun, lifecycle::registry::Door::Native] {
            let secret = chance::token(door).unwrap();
            let logged = fit_for_the_log(&format!("/v1/tokens/{}", secret.as_str()));
            assert!(logged.ends_with("[secret]") && logged.len() < 20, "{logged}");
        }
        assert_eq!(fit_for_the_log(&"/a".repeat(500)).len(), PATH_LOGGED);
    }
}
