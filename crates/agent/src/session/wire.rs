//! What is said on the agent's socket about a session: one JSON document per line. The connection stays open for as long as the
//! session lives, so that the kernel tells of its death.

use std::io;

use lifecycle::names::{SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A longer line is none of ours.
pub const LINE: usize = 4096;
/// How long a session may take to end by itself.
pub const GRACE_SECONDS: u64 = 10;

/// From whoever runs the session. The first line of a connection is `session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromSession {
    Session(Registration),
    /// Its process is started.
    Started {
        pid: u32,
    },
    /// Its command has ended. Whoever only closes the connection leaves open how.
    Closed {
        #[serde(default)]
        exit_status: Option<u8>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// `shell` or `exec`.
    pub kind: String,
    /// Whom it runs for.
    pub user: String,
    /// The process that is the session: the caller itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Whether the caller ends the session itself when it is told to.
    #[serde(default)]
    pub supervised: bool,
    /// The session is open already and was registered with an agent of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resumed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    pub session_id: SessionId,
    pub opened_at: Timestamp,
}

/// From the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// It is registered.
    Registered(Resumed),
    /// It is not, and the connection ends.
    Error(RegistrationRefused),
    /// The node is gone: the session has this long to end.
    Terminate { grace_seconds: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationRefused {
    pub code: String,
    pub message: String,
    pub hint: String,
}

pub fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Lines out of a stream, none longer than [`LINE`].
#[derive(Debug, Default)]
pub struct Lines {
    read: Vec<u8>,
}

impl Lines {
    /// With what was read already.
    pub fn after(read: Vec<u8>) -> Self {
        Self { read }
    }

    /// The next line; none at the end. May be dropped and asked again without loss.
    pub async fn next(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            if self.read.len() >= LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
            }
            let mut some = [0u8; 1024];
            match from.read(&mut some).await? {
                0 => return Ok(None),
                many => self.read.extend(some.iter().take(many)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_told_apart_and_a_long_one_is_refused() {
        let mut lines = Lines::after(b"one\ntw".to_vec());
        let mut rest: &[u8] = b"o\n";
        assert_eq!(lines.next(&mut rest).await.unwrap().as_deref(), Some(&b"one\n"[..]));
        assert_eq!(lines.next(&mut rest).await.unwrap().as_deref(), Some(&b"two\n"[..]));
        assert_eq!(lines.next(&mut rest).await.unwrap(), None);
        let long = vec![b'x'; LINE + 1];
        assert!(Lines::default().next(&mut long.as_slice()).await.is_err());
    }

    #[test]
    fn a_service_of_others_needs_to_say_little() {
        let said = br#"{"session":{"kind":"exec","user":"alice"}}"#;
        let FromSession::Session(registration) = serde_json::from_slice(said).unwrap() else { panic!() };
        assert!(!registration.supervised && registration.pid.is_none() && registration.resume.is_none());
        let said: FromSession = serde_json::from_slice(br#"{"closed":{"exit_status":3}}"#).unwrap();
        assert_eq!(said, FromSession::Closed { exit_status: Some(3) });
    }
}
