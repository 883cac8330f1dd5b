//! Whether the process lives, and whether it serves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `/healthz`: the process answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alive {
    pub ok: bool,
}

/// `/readyz`: 200 when it serves, 503 with the reasons when it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub ready: bool,
    pub reasons: Vec<String>,
    /// What the replica that answers is in its cluster: `leader`, `follower`, `learner` or `cut_off`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
}
