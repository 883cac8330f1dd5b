//! One walk over the lines: each hangs on the one before, each checkpoint on a line that was seen.

use super::footer::VerifiedFooter;
use api::rest::audit::{AuditFault, AuditVerify};
use journal::audit::chain::{self, LineFault};
use journal::audit::{checkpoint_message, checkpoint_of};
use lifecycle::names::Fingerprint;
use std::collections::VecDeque;

/// A checkpoint signs the hash of a line shortly before it: this many hashes are kept.
const REMEMBERED: usize = 16 * 1024;

pub struct ExportWalk<'a> {
    /// Whose key signs checkpoints; none where the footer is missing or false.
    signer: Option<&'a VerifiedFooter>,
    first: u64,
    pub last: u64,
    pub hash: Fingerprint,
    /// Hashes of the newest lines, the last one at the back.
    recent: VecDeque<Fingerprint>,
    /// The last line that a checkpoint vouches for.
    checkpoint: Option<u64>,
}

impl<'a> ExportWalk<'a> {
    pub fn new(signer: Option<&'a VerifiedFooter>) -> Self {
        let hash = chain::origin();
        Self { signer, first: 0, last: 0, hash, recent: VecDeque::new(), checkpoint: None }
    }

    pub fn line(&mut self, line: &str) -> Result<(), AuditFault> {
        let expected = self.last + 1;
        let seq = number(line).ok_or_else(|| fault(expected, format!("line {expected} was changed")))?;
        if seq > expected {
            return Err(fault(expected, missing(expected, seq - 1)));
        }
        let hash = chain::check(line, expected, &self.hash).map_err(|broken| match broken {
            LineFault::Changed => fault(expected, format!("line {expected} was changed")),
            LineFault::Detached => {
                fault(expected, format!("line {expected} does not follow from the line before it"))
            }
        })?;
        self.first = self.first.max(1);
        (self.last, self.hash) = (expected, hash);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(hash);
        self.vouched(line)
    }

    /// Looks closer if the line is a checkpoint.
    fn vouched(&mut self, line: &str) -> Result<(), AuditFault> {
        let (seq, Some(parsed)) = (self.last, checkpoint_of(line)) else { return Ok(()) };
        let point = parsed.map_err(|error| fault(seq, format!("line {seq}: {error}")))?;
        if point.seq >= seq || self.remembered(point.seq) != Some(point.head) {
            return Err(fault(
                seq,
                format!("the checkpoint in line {seq} does not match line {}", point.seq),
            ));
        }
        let Some(signer) = self.signer else { return Ok(()) };
        let message = checkpoint_message(&signer.cluster, point.seq, &point.head);
        if !pki::sign::verify_audit(&signer.certificate, &message, &point.signature) {
            return Err(fault(seq, format!("the signature of the checkpoint in line {seq} is not valid")));
        }
        self.checkpoint = Some(point.seq);
        Ok(())
    }

    fn remembered(&self, seq: u64) -> Option<Fingerprint> {
        if seq == 0 {
            return Some(chain::origin());
        }
        let back = usize::try_from(self.last.checked_sub(seq)?).ok()?;
        self.recent.iter().rev().nth(back).copied()
    }

    pub fn verdict(self, fault: Option<AuditFault>) -> AuditVerify {
        let known = |seq: u64| (seq > 0).then_some(seq);
        AuditVerify {
            ok: fault.is_none(),
            first_seq: known(self.first),
            last_seq: known(self.last),
            head: known(self.last).map(|_| self.hash.hex()),
            checkpoint: self.checkpoint,
            fault,
        }
    }
}

fn fault(seq: u64, what: String) -> AuditFault {
    AuditFault { seq: Some(seq), what }
}

fn missing(from: u64, to: u64) -> String {
    if from == to { format!("line {from} is missing") } else { format!("lines {from} to {to} are missing") }
}

/// Whether it looks like a line of a trail at all.
pub fn is_numbered(line: &str) -> bool {
    number(line).is_some()
}

/// The number a line claims; whether it is whole is checked elsewhere.
fn number(line: &str) -> Option<u64> {
    line.strip_prefix(r#"{"seq":"#)?.split(',').next()?.parse().ok()
}
