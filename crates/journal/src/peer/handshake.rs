//! What two replicas tell each other first: who they are, of which cluster and epoch, and that both hold the key of the log.
//!
//! A certificate alone does not make a replica: whoever stole an issuer could write one. The key of the log is sealed under the
//! key-encryption key, and the proof is bound to the TLS connection, so that nobody in between can pass it on.

use super::starts::Starts;
use super::wire::{self, GREETING, PeerRefusal};
use super::{PeerConnection, PeerStream};
use crate::log_key::{LogKey, RowCode, RowPlace};
use aws_lc_rs::rand;
use lifecycle::names::ReplicaId;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind};
use std::time::Duration;

/// How long a greeting may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub replica: ReplicaId,
    pub cluster: String,
    pub epoch: u64,
    /// Of its directory: two processes of one directory differ in the last.
    pub starts: Starts,
    /// The last entry of its log.
    pub last_log: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    cluster: String,
    epoch: u64,
    from: ReplicaId,
    to: ReplicaId,
    starts: Starts,
    last_log: u64,
    nonce: serde_bytes::ByteBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HelloReply {
    Welcome {
        nonce: serde_bytes::ByteBuf,
        proof: serde_bytes::ByteBuf,
        starts: Starts,
        last_log: u64,
    },
    /// With a proof of its own: whoever could only show a certificate must not be able to tell a replica to give up.
    Refused {
        why: PeerRefusal,
        nonce: serde_bytes::ByteBuf,
        proof: serde_bytes::ByteBuf,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct LogKeyProof {
    proof: serde_bytes::ByteBuf,
    /// Why the caller does not go on, for the called one to know.
    #[serde(default)]
    refused: Option<PeerRefusal>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProofReply {
    Accepted,
    Refused(PeerRefusal),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    #[error("the connection failed: {0}")]
    Io(#[from] Error),
    #[error("refused: {0:?}")]
    Refused(PeerRefusal),
    /// This replica does not talk to that one.
    #[error("not talked to: {0:?}")]
    Declined(PeerRefusal),
}

/// The nonces of one greeting, and the connection that they are bound to.
struct Bound<'a> {
    key: &'a LogKey,
    binding: &'a [u8; 32],
    from: ReplicaId,
    to: ReplicaId,
    nonces: (&'a [u8], &'a [u8]),
}

impl Bound<'_> {
    /// `kind` tells the two directions apart, and a refusal from a welcome.
    fn code(&self, kind: &'static str) -> RowCode {
        let mut code = self.key.begin(&RowPlace { kind, index: self.from.0, after: self.binding });
        code.update(&self.to.0.to_be_bytes());
        code.update(self.nonces.0);
        code.update(self.nonces.1);
        code.finish()
    }

    fn verify(&self, kind: &'static str, proof: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.code(kind), proof).is_ok()
    }
}

const CALLER: &str = "peer caller";
const CALLED: &str = "peer called";

/// The proof of a refusal names the reason: none can be made of another.
fn refusal_kind(why: PeerRefusal) -> &'static str {
    match why {
        PeerRefusal::OtherCluster => "peer refused: other cluster",
        PeerRefusal::OlderEpoch => "peer refused: older epoch",
        PeerRefusal::NoProof => "peer refused: no proof",
        PeerRefusal::Removed => "peer refused: removed",
        PeerRefusal::Denied => "peer refused: denied",
        PeerRefusal::Duplicate => "peer refused: duplicate",
        PeerRefusal::RolledBack => "peer refused: rolled back",
        PeerRefusal::Busy => "peer refused: busy",
        PeerRefusal::Unfit => "peer refused: unfit",
        PeerRefusal::Unknown => "peer refused: unknown",
    }
}

fn nonce() -> Result<[u8; 32], Error> {
    let mut nonce = [0; 32];
    rand::fill(&mut nonce).map_err(|_| Error::other("no random bytes"))?;
    Ok(nonce)
}

async fn in_time<T>(what: impl Future<Output = Result<T, GreetingError>>) -> Result<T, GreetingError> {
    tokio::time::timeout(LIMIT, what).await.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut).into()))
}

/// Greets the replica at the other end of an outgoing connection. `admits` is asked once that one has proven itself.
pub async fn greet(
    connection: &mut PeerConnection,
    own: &Identity,
    key: &LogKey,
    admits: impl FnOnce(&Identity) -> Result<(), PeerRefusal>,
) -> Result<(), GreetingError> {
    in_time(async {
        let (to, mine) = (connection.replica, nonce()?);
        let hello = Hello {
            cluster: own.cluster.clone(),
            epoch: own.epoch,
            from: own.replica,
            to,
            starts: own.starts.clone(),
            last_log: own.last_log,
            nonce: serde_bytes::ByteBuf::from(mine),
        };
        let stream = &mut connection.stream;
        wire::write(stream, &hello).await?;
        let reply: HelloReply = wire::read(stream, GREETING).await?;
        let (theirs, proof, kind) = match &reply {
            HelloReply::Welcome { nonce, proof, .. } => (nonce, proof, CALLED),
            HelloReply::Refused { why, nonce, proof } => (nonce, proof, refusal_kind(*why)),
        };
        let nonces = (mine.as_slice(), theirs.as_slice());
        let bound = Bound { key, binding: &connection.binding, from: own.replica, to, nonces };
        if !bound.verify(kind, proof) {
            return Err(Error::new(ErrorKind::InvalidData, "it does not hold the key of this log").into());
        }
        let (starts, last_log) = match &reply {
            HelloReply::Welcome { starts, last_log, .. } => (starts.clone(), *last_log),
            HelloReply::Refused { why, .. } => return Err(GreetingError::Refused(*why)),
        };
        let called =
            Identity { replica: to, cluster: own.cluster.clone(), epoch: own.epoch, starts, last_log };
        let refused = admits(&called).err();
        let proof = serde_bytes::ByteBuf::from(bound.code(CALLER));
        wire::write(stream, &LogKeyProof { proof, refused }).await?;
        if let Some(why) = refused {
            return Err(GreetingError::Declined(why));
        }
        match wire::read(stream, GREETING).await? {
            ProofReply::Accepted => Ok(()),
            ProofReply::Refused(why) => Err(GreetingError::Refused(why)),
        }
    })
    .await
}

/// Answers the greeting of an incoming connection. `admits` is asked once the caller has proven itself.
pub async fn answer(
    connection: &mut PeerConnection,
    own: &Identity,
    key: &LogKey,
    admits: impl FnOnce(&Identity) -> Result<(), PeerRefusal>,
) -> Result<Identity, GreetingError> {
    in_time(async {
        let hello: Hello = wire::read(&mut connection.stream, GREETING).await?;
        let caller = Identity {
            replica: hello.from,
            cluster: hello.cluster,
            epoch: hello.epoch,
            starts: hello.starts,
            last_log: hello.last_log,
        };
        let mine = nonce()?;
        let nonces = (hello.nonce.as_slice(), mine.as_slice());
        let bound = Bound { key, binding: &connection.binding, from: hello.from, to: hello.to, nonces };
        let stream = &mut connection.stream;
        let named = hello.to == own.replica && hello.from == connection.replica && hello.from != hello.to;
        let stranger = !named || caller.cluster != own.cluster;
        let unwanted = match stranger {
            true => Some(PeerRefusal::OtherCluster),
            false => (caller.epoch < own.epoch).then_some(PeerRefusal::OlderEpoch),
        };
        if let Some(why) = unwanted {
            let proof = serde_bytes::ByteBuf::from(bound.code(refusal_kind(why)));
            let refusal = HelloReply::Refused { why, nonce: serde_bytes::ByteBuf::from(mine), proof };
            return refuse(stream, refusal, why).await;
        }
        let welcome = HelloReply::Welcome {
            nonce: serde_bytes::ByteBuf::from(mine),
            proof: serde_bytes::ByteBuf::from(bound.code(CALLED)),
            starts: own.starts.clone(),
            last_log: own.last_log,
        };
        wire::write(stream, &welcome).await?;
        let LogKeyProof { proof, refused } = wire::read(stream, GREETING).await?;
        let proven = bound.verify(CALLER, &proof);
        if let Some(why) = refused.filter(|_| proven) {
            return Err(GreetingError::Refused(why));
        }
        match if proven { admits(&caller) } else { Err(PeerRefusal::NoProof) } {
            Ok(()) => {
                wire::write(stream, &ProofReply::Accepted).await?;
                Ok(caller)
            }
            Err(why) => refuse(stream, ProofReply::Refused(why), why).await,
        }
    })
    .await
}

async fn refuse<T>(
    stream: &mut Box<dyn PeerStream>,
    message: impl Serialize,
    why: PeerRefusal,
) -> Result<T, GreetingError> {
    wire::write(stream, &message).await?;
    Err(GreetingError::Declined(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Fingerprint, Serial};

    const CALLER_ID: ReplicaId = ReplicaId(2);
    const CALLED_ID: ReplicaId = ReplicaId(1);

    struct End {
        own: Identity,
        key: LogKey,
        binding: [u8; 32],
        refuses: Option<PeerRefusal>,
    }

    fn end(replica: ReplicaId) -> End {
        let starts = Starts::default().begun(7);
        let own = Identity { replica, cluster: "c".to_owned(), epoch: 2, starts, last_log: 9 };
        End { own, key: LogKey::new(&[1; 32]), binding: [3; 32], refuses: None }
    }

    fn connection(stream: tokio::io::DuplexStream, other: ReplicaId, binding: [u8; 32]) -> PeerConnection {
        let (serial, fingerprint) = (Serial::parse("01").expect("a serial"), Fingerprint::new([0; 32]));
        let (issuer, above) = (None, Vec::new());
        PeerConnection {
            stream: Box::new(stream),
            replica: other,
            serial,
            fingerprint,
            issuer,
            above,
            binding,
        }
    }

    fn admits(refuses: Option<PeerRefusal>) -> impl FnOnce(&Identity) -> Result<(), PeerRefusal> {
        move |_| refuses.map_or(Ok(()), Err)
    }

    /// What both ends say in the end.
    async fn check(caller: End, called: End) -> (String, String) {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let calling = async {
            let mut connection = connection(here, CALLED_ID, caller.binding);
            greet(&mut connection, &caller.own, &caller.key, admits(caller.refuses)).await
        };
        let answering = async {
            let mut connection = connection(there, CALLER_ID, called.binding);
            answer(&mut connection, &called.own, &called.key, admits(called.refuses)).await
        };
        let (greeted, answered) = tokio::join!(calling, answering);
        let said = |error: GreetingError| match error {
            GreetingError::Io(error) => format!("{:?}", error.kind()),
            other => other.to_string(),
        };
        (greeted.map_or_else(said, |()| "good".to_owned()), answered.map_or_else(said, |_| "good".to_owned()))
    }

    #[tokio::test]
    async fn two_replicas_of_one_cluster_greet() {
        let ends = check(end(CALLER_ID), end(CALLED_ID)).await;
        assert_eq!(ends, ("good".to_owned(), "good".to_owned()));
    }

    #[tokio::test]
    async fn without_the_key_of_the_log_nobody_is_a_replica() {
        let thief = End { key: LogKey::new(&[2; 32]), ..end(CALLER_ID) };
        let (greeted, answered) = check(thief, end(CALLED_ID)).await;
        assert_eq!(
            (greeted.as_str(), answered.as_str()),
            ("InvalidData", "UnexpectedEof"),
            "it sees that first"
        );
        // A proof of one connection is none on another: whoever stands in between cannot pass it on.
        let relayed = End { binding: [4; 32], ..end(CALLED_ID) };
        assert_eq!(check(end(CALLER_ID), relayed).await.0, "InvalidData");
    }

    #[tokio::test]
    async fn an_older_epoch_another_cluster_and_another_name_are_refused() {
        let bent = |bend: fn(&mut Identity)| {
            let mut end = end(CALLER_ID);
            bend(&mut end.own);
            end
        };
        let older = check(bent(|own| own.epoch = 1), end(CALLED_ID)).await;
        assert_eq!(older, ("refused: OlderEpoch".to_owned(), "not talked to: OlderEpoch".to_owned()));
        let other = check(bent(|own| own.cluster = "d".to_owned()), end(CALLED_ID)).await;
        assert_eq!(other.0, "refused: OtherCluster");
        let named = check(bent(|own| own.replica = ReplicaId(3)), end(CALLED_ID)).await;
        assert_eq!(named.0, "refused: OtherCluster");
    }

    #[tokio::test]
    async fn either_end_learns_why_the_other_does_not_talk_to_it() {
        let why = Some(PeerRefusal::RolledBack);
        let ends = check(End { refuses: why, ..end(CALLER_ID) }, end(CALLED_ID)).await;
        assert_eq!(ends, ("not talked to: RolledBack".to_owned(), "refused: RolledBack".to_owned()));
        let ends = check(end(CALLER_ID), End { refuses: why, ..end(CALLED_ID) }).await;
        assert_eq!(ends, ("refused: RolledBack".to_owned(), "not talked to: RolledBack".to_owned()));
    }
    /// What a caller makes of this answer to its greeting, by an end that was called and does not hold the key of the log.
    async fn told(reply: impl FnOnce(&Hello) -> HelloReply) -> String {
        let (here, mut there) = tokio::io::duplex(64 * 1024);
        let caller = end(CALLER_ID);
        let answering = async {
            let hello: Hello = wire::read(&mut there, GREETING).await.expect("a greeting");
            wire::write(&mut there, &reply(&hello)).await.expect("is taken");
        };
        let mut connection = connection(here, CALLED_ID, caller.binding);
        let calling = greet(&mut connection, &caller.own, &caller.key, admits(None));
        let (greeted, ()) = tokio::join!(calling, answering);
        greeted.expect_err("it is refused").to_string()
    }

    #[tokio::test]
    async fn a_refusal_without_the_key_of_the_log_is_not_believed() {
        let bytes = serde_bytes::ByteBuf::from([5; 32]);
        let proof_by = |key: [u8; 32], kind: &'static str, hello: &Hello| {
            let nonces = (hello.nonce.as_slice(), [5; 32].as_slice());
            let (key, binding) = (LogKey::new(&key), [3; 32]);
            let bound = Bound { key: &key, binding: &binding, from: hello.from, to: hello.to, nonces };
            serde_bytes::ByteBuf::from(bound.code(kind))
        };
        for why in [PeerRefusal::RolledBack, PeerRefusal::Removed, PeerRefusal::Duplicate] {
            let unproven =
                |_: &Hello| HelloReply::Refused { why, nonce: bytes.clone(), proof: bytes.clone() };
            assert!(told(unproven).await.starts_with("the connection failed"), "{why:?}");
            let by_another_key = |hello: &Hello| HelloReply::Refused {
                why,
                nonce: bytes.clone(),
                proof: proof_by([2; 32], refusal_kind(why), hello),
            };
            assert!(told(by_another_key).await.starts_with("the connection failed"), "{why:?}");
            // Of a welcome or of another refusal none can be made.
            for kind in [CALLED, CALLER, refusal_kind(PeerRefusal::OlderEpoch)] {
                let of_another = |hello: &Hello| HelloReply::Refused {
                    why,
                    nonce: bytes.clone(),
                    proof: proof_by([1; 32], kind, hello),
                };
                assert!(told(of_another).await.starts_with("the connection failed"), "{why:?} {kind}");
            }
            let proven = |hello: &Hello| HelloReply::Refused {
                why,
                nonce: bytes.clone(),
                proof: proof_by([1; 32], refusal_kind(why), hello),
            };
            assert_eq!(told(proven).await, format!("refused: {why:?}"));
        }
    }
}
