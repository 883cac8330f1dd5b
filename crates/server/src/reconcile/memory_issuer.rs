//! The issuer in this replica's memory is replaced when half of its life is over, when it was revoked, and until it could be
//! published.

use crate::ca::ephemeral;
use crate::process::app::App;

#[derive(Default)]
pub struct IssuerReplacement {
    /// The code of the last failure: one that stays the same has one line in the log.
    failing: Option<&'static str>,
}

impl IssuerReplacement {
    pub async fn tick(&mut self, app: &App) {
        match ephemeral::ensure(app).await {
            Ok(()) => self.failing = None,
            Err(failure) => {
                if self.failing != Some(failure.code.word) {
                    let code = failure.code.word;
                    tracing::error!(code, "the ephemeral issuer was not published: {}", failure.message);
                }
                self.failing = Some(failure.code.word);
            }
        }
    }
}
