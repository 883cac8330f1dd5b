//! Why a program ends, as scripts see it: the same numbers for the agent and the operator's tool.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Something on this machine is wrong.
    Fault = 1,
    /// The command line, the environment or the configuration is wrong.
    Usage = 2,
    /// The control plane understood and said no.
    Refused = 3,
    /// No control plane could be reached, or not one that may be trusted.
    Unreachable = 4,
}
