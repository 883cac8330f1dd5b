//! Errors of a control plane on this machine, as failures of a command.

use crate::error::{CommandError, Exit};
use ::server::clock_repair::ClockRepairError;
use ::server::datadir::DirError;
use ::server::init::InitError;
use ::server::run::{RunError, UnsealError};
use lifecycle::registry::Rejection;
use pki::pkcs11::HsmError;

/// What an imported CA has to be.
pub const IMPORTED: &str = "give --ca-cert (issuer first, root last) and the issuer's --ca-key, PEM";

impl From<RunError> for CommandError {
    fn from(error: RunError) -> Self {
        let (message, remedy) = (error.to_string(), error.remedy());
        let code = match error {
            RunError::Config(mistakes) => return CommandError::config(mistakes.0),
            RunError::Dir(error) => return directory(&error),
            RunError::Kek(_) => "kek_unavailable",
            RunError::Hsm(_) | RunError::Unseal(UnsealError::NoHsm { .. }) => "issuer_unavailable",
            RunError::WrongKek | RunError::Unseal(_) => "kek_wrong",
            RunError::Open(_) | RunError::LogKey(_) | RunError::TakeIn(_) => "store_unusable",
            RunError::Anchor(error) if error.is_rollback() => "directory_rolled_back",
            RunError::RollbackNotRecorded(_) => "directory_rolled_back",
            RunError::Anchor(_) => "anchor_unusable",
            RunError::Clock { .. } => "clock_wrong",
            RunError::Listen { .. } | RunError::Plain { .. } | RunError::PeerListen { .. } => "cannot_listen",
            RunError::Removed => "replica_removed",
            RunError::Replicated => "domain_replicated",
            RunError::ServerCert(_) | RunError::Tls(_) => "server_certificate",
            RunError::Chance(_) => "chance",
        };
        CommandError::new(Exit::Fault, code, message, remedy)
    }
}

impl From<ClockRepairError> for CommandError {
    fn from(error: ClockRepairError) -> Self {
        let message = error.to_string();
        let hint = match error {
            ClockRepairError::Run(error) => return error.into(),
            ClockRepairError::Refused(Rejection::ClockBehind { .. }) => {
                "correct the clock of this machine, then run the command again"
            }
            ClockRepairError::Chance(_)
            | ClockRepairError::Propose(_)
            | ClockRepairError::Refused(_)
            | ClockRepairError::Close(_) => "run the command again: it goes on where it was interrupted",
        };
        CommandError::new(Exit::Fault, "clock_repair", message, hint)
    }
}

/// What is needed to ask a step-ca.
pub const STEP_CA: &str = "give --step-ca-url its address, --step-ca-root its root certificate, --step-ca-provisioner the name of a JWK provisioner and \
    --step-ca-key that provisioner's private key; docs/step-ca.md shows how to make one";

impl From<InitError> for CommandError {
    fn from(error: InitError) -> Self {
        let message = error.to_string();
        let (exit, code, remedy) = match error {
            InitError::Config(mistakes) => {
                let hint = "correct the flags that give these settings; see `enlist server init --help`";
                return CommandError::config(mistakes.0).with_hint(hint);
            }
            InitError::Dir(error) => return directory(&error),
            InitError::Kek(_) => (
                Exit::Fault,
                "kek_unavailable",
                "give --kek file:PATH (created if missing) or --kek env:NAME (64 hex digits)",
            ),
            InitError::Hsm(ref error) => (Exit::Fault, "issuer_unavailable", init_remedy(error)),
            InitError::Imported(_) => (Exit::Usage, "ca_unusable", IMPORTED),
            InitError::StepCa(_) => (Exit::Usage, "step_ca_unusable", STEP_CA),
            InitError::ServerCertificate(_) => (
                Exit::Usage,
                "server_certificate",
                "give a server certificate and its key, PEM, or remove both files so that the domain issues its own",
            ),
            InitError::Chance(_) | InitError::Hierarchy(_) | InitError::Seal(_) => {
                (Exit::Fault, "founding", "")
            }
            InitError::Open(_)
            | InitError::LogKey(_)
            | InitError::Propose(_)
            | InitError::Close(_)
            | InitError::Refused(_) => (
                Exit::Fault,
                "founding",
                "remove the files that were left in the data directory, then run the command again",
            ),
        };
        CommandError::new(exit, code, message, remedy)
    }
}

/// Before there is a configuration, the flags say where the HSM is.
fn init_remedy(error: &HsmError) -> &'static str {
    match error {
        HsmError::Module { .. } => {
            "give --pkcs11-module the HSM's PKCS#11 library, and install what that library needs"
        }
        HsmError::TokenAbsent { .. } | HsmError::TokenAmbiguous { .. } => {
            "connect the token, or give --pkcs11-token a label that one token has (pkcs11-tool --list-slots)"
        }
        HsmError::PinUnreadable { .. } => "give --pkcs11-pin file:PATH (mode 0600) or env:NAME",
        HsmError::PinRefused { .. } => {
            "write the right PIN of the token's user into the file or variable that --pkcs11-pin names, then run the command \
             again; tokens lock after a few wrong PINs"
        }
        HsmError::KeyKind { .. } | HsmError::KeyAmbiguous { .. } | HsmError::PublicKeyMissing { .. } => {
            "give --pkcs11-key the label of one P-256 or P-384 key with its public part, or a label that no key has yet"
        }
        other => other.remedy(),
    }
}

/// A directory that is not there is a mistake in the command; one that is taken or damaged is a fault.
pub(super) fn directory(error: &DirError) -> CommandError {
    let (exit, code) = match error {
        DirError::Missing(_) => (Exit::Usage, "directory_missing"),
        DirError::Exists(_) => (Exit::Fault, "directory_exists"),
        DirError::NotEmpty(_) => (Exit::Fault, "directory_not_empty"),
        DirError::Newer { .. } => (Exit::Fault, "store_too_new"),
        DirError::Unversioned(_) => (Exit::Fault, "store_unversioned"),
        DirError::MadeOlder(_) => (Exit::Fault, "store_unusable"),
        DirError::InUse(_) => (Exit::Fault, "directory_in_use"),
        DirError::NotOwned { .. } => (Exit::Fault, "directory_not_owned"),
        DirError::Io { .. } => (Exit::Fault, "file"),
    };
    if let DirError::Missing(path) = error
        && let Some(replica) = crate::reach::first_replica(path)
    {
        let hint = format!(
            "the directory holds several replicas of `enlist dev`: start all of them with `enlist dev --dir {}`, or one with `enlist server run --dir {}`",
            crate::shell::quoted(path),
            crate::shell::quoted(&replica)
        );
        return CommandError::new(exit, code, error.to_string(), hint);
    }
    if let DirError::NotOwned { dir, .. } = error {
        let hint = format!(
            "run the command as that user, such as `{}`, or start its service; if root is to run it from now on, make the directory \
             root's: `chown -R root: {}`",
            crate::shell::start_server(dir),
            crate::shell::quoted(dir)
        );
        return CommandError::new(exit, code, error.to_string(), hint);
    }
    if let DirError::Exists(path) = error {
        let hint = format!(
            "choose another --dir, or run the control plane in this directory: {}",
            crate::shell::start_server(path)
        );
        return CommandError::new(exit, code, error.to_string(), hint);
    }
    CommandError::new(exit, code, error.to_string(), error.remedy())
}
