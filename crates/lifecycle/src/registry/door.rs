//! The wire shapes by which requests come in.

use crate::names::ProfileName;
use serde::{Deserialize, Serialize};

/// The wire shape by which a request came in; it has a profile of its own where a document asks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Native,
    Plfm,
    Pact,
    Probectl,
    Taskrun,
}

impl Door {
    pub const ALL: [Door; 5] = [Door::Native, Door::Plfm, Door::Pact, Door::Probectl, Door::Taskrun];

    pub fn as_str(self) -> &'static str {
        match self {
            Door::Native => "native",
            Door::Plfm => "plfm",
            Door::Pact => "pact",
            Door::Probectl => "probectl",
            Door::Taskrun => "taskrun",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.as_str() == text)
    }

    /// The profile that its document asks for; the native door has none.
    pub fn profile(self) -> Option<ProfileName> {
        if self == Door::Native { None } else { ProfileName::parse(self.as_str()).ok() }
    }
}
