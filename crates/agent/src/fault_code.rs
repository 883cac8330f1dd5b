//! Which fault it is, by type: this program's own codes, and those of the control plane.

use api::code::Code;
use client::Error;
use lifecycle::host::Class;
use serde::{Serialize, Serializer};

use crate::code::AgentCode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultCode {
    /// Found by this program.
    Agent(AgentCode),
    /// Said by the control plane.
    ControlPlane(&'static Code),
    /// Said by a control plane that is newer than this program.
    Unknown(String),
}

impl FaultCode {
    pub fn of_error(error: &Error) -> Self {
        match error {
            Error::Refused(refusal) => match Code::of(&refusal.detail.code) {
                Some(code) => FaultCode::ControlPlane(code),
                None => FaultCode::Unknown(refusal.detail.code.clone()),
            },
            Error::Unreachable { cause, .. } => {
                Class::parse(cause.class()).unwrap_or(Class::EndpointUnreachable).into()
            }
            Error::Usage(_) => AgentCode::Usage.into(),
            Error::Fault(_) => AgentCode::Fault.into(),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            FaultCode::Agent(code) => code.word(),
            FaultCode::ControlPlane(code) => code.word,
            FaultCode::Unknown(word) => word,
        }
    }

    /// Whether the control plane refused with this code.
    pub fn is(&self, code: &Code) -> bool {
        self.is_one_of(&[code])
    }

    pub fn is_one_of(&self, codes: &[&Code]) -> bool {
        match self {
            FaultCode::ControlPlane(refused) => codes.contains(refused),
            FaultCode::Agent(_) | FaultCode::Unknown(_) => false,
        }
    }

    /// This program's own code, if it is one.
    pub fn agent(&self) -> Option<AgentCode> {
        match self {
            FaultCode::Agent(code) => Some(*code),
            FaultCode::ControlPlane(_) | FaultCode::Unknown(_) => None,
        }
    }
}

impl From<AgentCode> for FaultCode {
    fn from(code: AgentCode) -> Self {
        FaultCode::Agent(code)
    }
}

impl From<Class> for FaultCode {
    fn from(class: Class) -> Self {
        FaultCode::Agent(class.into())
    }
}

impl std::fmt::Display for FaultCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FaultCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
