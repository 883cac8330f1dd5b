//! What a command failed with: a stable code, what happened, one line of remedy, and an exit code.

use std::borrow::Cow;

pub use client::Exit;
use serde::Serialize;

use crate::code::AgentCode;
use crate::fault_code::FaultCode;
use crate::screen::{BAD, Columns, HumanText, harmless};

/// One wrong setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The key, variable or line.
    pub at: String,
    pub message: String,
}

impl Mistake {
    pub fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: at.into(), message: message.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    #[serde(skip)]
    pub exit: Exit,
    pub code: FaultCode,
    pub message: String,
    pub hint: Cow<'static, str>,
    /// Finds the request in the control plane's log, if it came that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Whether the same command may succeed later.
    pub retryable: bool,
    /// Every wrong setting, so that they can all be corrected in one go.
    #[serde(skip_serializing_if = "<[Mistake]>::is_empty")]
    pub mistakes: Box<[Mistake]>,
}

impl Fault {
    pub fn new(
        exit: Exit,
        code: impl Into<FaultCode>,
        message: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            exit,
            code: code.into(),
            message: message.into(),
            hint: hint.into(),
            request_id: None,
            retryable: false,
            mistakes: Box::default(),
        }
    }

    pub fn usage(code: AgentCode, message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Exit::Usage, code, message, hint)
    }

    pub fn host(code: AgentCode, message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(Exit::Fault, code, message, hint)
    }

    /// Wrong settings, all of them.
    pub fn config(mistakes: Vec<Mistake>) -> Self {
        let message = match mistakes.as_slice() {
            [one] => format!("{}: {}", one.at, one.message),
            many => format!("{} settings are wrong", many.len()),
        };
        let hint = "correct the settings that are named, then run the command again; nothing was sent";
        Self { mistakes: mistakes.into(), ..Self::usage(AgentCode::ConfigInvalid, message, hint) }
    }
}

impl HumanText for Fault {
    fn text(&self, screen: Columns) -> String {
        let line = |lead: &str, text: &str| screen.hang(lead, 4, &harmless(text));
        let mut lines = vec![line(&format!("{BAD}error{BAD:#}: {}: ", self.code), &self.message)];
        if self.mistakes.len() > 1 {
            let mistakes = self.mistakes.iter();
            lines.extend(mistakes.map(|mistake| line(&format!("  {}: ", mistake.at), &mistake.message)));
        }
        lines.extend(self.request_id.iter().map(|id| line("  request: ", id)));
        lines.push(line("  remedy: ", &self.hint));
        lines.join("\n")
    }
}
