//! A token in memory: wiped when dropped, never printed.

use zeroize::Zeroizing;

#[derive(Clone, PartialEq, Eq)]
pub struct SecretToken(Zeroizing<String>);

impl SecretToken {
    /// Takes one trailing line break away, as files and pipes end with one. Nothing is left of an empty one.
    pub fn new(text: Zeroizing<String>) -> Option<Self> {
        let bare = text.strip_suffix('\n').unwrap_or(&text);
        let bare = bare.strip_suffix('\r').unwrap_or(bare);
        (!bare.is_empty()).then(|| Self(Zeroizing::new(bare.to_owned())))
    }

    /// For the one request that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Tells this token from another without keeping it.
    pub fn digest(&self) -> String {
        pki::digest::secret_hash(self.0.as_bytes()).hex()
    }
}

impl std::fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretToken(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_is_trimmed_and_no_more() {
        let read =
            |text: &str| SecretToken::new(Zeroizing::new(text.to_owned())).map(|t| t.expose().to_owned());
        assert_eq!(read("abc\n").as_deref(), Some("abc"));
        assert_eq!(read("abc\r\n").as_deref(), Some("abc"));
        assert_eq!(read("abc\n\n").as_deref(), Some("abc\n"));
        assert_eq!(read(" abc").as_deref(), Some(" abc"));
        assert_eq!((read(""), read("\n")), (None, None));
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = SecretToken::new(Zeroizing::new("hush".to_owned()));
        assert!(!format!("{token:?}").contains("hush"));
    }
}
