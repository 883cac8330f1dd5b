//! Where the control plane is and as whom we come: flags, then the environment, then the current context, then the
//! usual place.

use crate::context::saved::{Contexts, ContextsFile};
use crate::error::{CommandError, Exit};
use crate::private_file::{self, unreadable};
use api::rest::secret::Secret;
use client::rest::ApiCredential;
use client::{OperatorApi, ServerUrl, Trust};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub mod ca_trust;
pub mod certificate;
pub mod credential;
pub mod target;

use ca_trust::CaTrust;
use certificate::ClientCertificate;
use credential::{OperatorCredential, ServerTrust, missing_credential};
use target::{ChosenTarget, Target};

/// The default data directory of a control plane.
const DEFAULT_DIR: &str = "/var/lib/enlist";

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Reach {
    /// Use this saved context instead of the current one (or ENLIST_CONTEXT)
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Use the control plane of this data directory on this machine (or ENLIST_DIR; without a context /var/lib/enlist)
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Use this operator socket, if it is not in the data directory (or ENLIST_SOCKET)
    #[arg(long, global = true, hide_short_help = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Use the control plane at https://HOST[:PORT] (or ENLIST_SERVER, with commas between several); repeat for several replicas,
    /// which are tried in order
    #[arg(long, global = true, hide_short_help = true, value_name = "URL")]
    pub server: Vec<String>,
    /// Authenticate with this certificate, PEM (or ENLIST_CERT)
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The private key of the certificate; refused while others may read it (or ENLIST_KEY)
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Authenticate with the API key in this file; refused while others may read it (or ENLIST_API_KEY_FILE)
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Verify the control plane by this CA bundle, PEM, and by the revocation lists beside it (or ENLIST_CA)
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Verify the control plane by the digest of its CA, sha256:...
    #[arg(long, global = true, hide_short_help = true, value_name = "PIN")]
    pub ca_pin: Option<String>,
    /// Whether somebody reads standard error: notices are not for programs.
    #[arg(skip)]
    pub notices: bool,
}

impl Reach {
    /// The operator API.
    pub fn operator(&self) -> Result<OperatorApi, CommandError> {
        let ChosenTarget { target, by } = self.chosen()?;
        let reached = match self.open(&target) {
            Ok((operator, presented)) => {
                presented.map_or(Ok(()), |presented| presented.check(self.notices)).map(|()| operator)
            }
            Err(failure) => Err(failure),
        };
        let reached = reached.map_err(|failure| by.explain(failure))?;
        Ok(if self.notices { reached.noticing_stale(notice_stale) } else { reached })
    }

    /// Which control plane it is, and what chose it.
    pub fn chosen(&self) -> Result<ChosenTarget, CommandError> {
        target::choose(self, &variable, &saved)
    }

    /// Reads the files that the target names. Nothing is sent.
    pub fn open(&self, target: &Target) -> Result<(OperatorApi, Option<ClientCertificate>), CommandError> {
        let (servers, server_trust, credential) = match target {
            Target::Socket(path) => {
                check_socket(path)?;
                return Ok((OperatorApi::over_socket(path), None));
            }
            Target::Server { servers, server_trust, credential } => (servers, server_trust, credential),
        };
        let credential = credential.as_ref().ok_or_else(missing_credential)?;
        let servers = server_urls(servers)?;
        let trust = trust(server_trust)?;
        match credential {
            OperatorCredential::ApiKey(path) => {
                let credential = ApiCredential::ApiKey(api_key(path)?);
                Ok((OperatorApi::over_tls(servers, &trust, Some(&credential))?, None))
            }
            OperatorCredential::Certificate { cert, key } => {
                let (operator, presented) = certificate::open(&servers, &trust, cert, key)?;
                Ok((operator, Some(presented)))
            }
        }
    }

    /// The data directory, for commands that work on one. Absolute: it ends up in files and in messages.
    pub fn data_dir(&self) -> Result<PathBuf, CommandError> {
        self.only_dir()?;
        let dir = self.dir.clone().or_else(|| variable("ENLIST_DIR").map(PathBuf::from));
        absolute(&dir.unwrap_or_else(|| PathBuf::from(DEFAULT_DIR)))
    }

    /// Refuses flags that would be ignored.
    pub fn only_dir(&self) -> Result<(), CommandError> {
        self.only(&["--dir"])
    }

    /// The same with other flags that are not.
    pub fn only(&self, used: &[&str]) -> Result<(), CommandError> {
        let Reach { context, dir, socket, server, cert, key, api_key_file, ca, ca_pin, notices: _ } = self;
        let text = |flag: &Option<String>| flag.is_some();
        let path = |flag: &Option<PathBuf>| flag.is_some();
        let given = [
            ("--context", text(context)),
            ("--dir", path(dir)),
            ("--socket", path(socket)),
            ("--server", !server.is_empty()),
            ("--cert", path(cert)),
            ("--key", path(key)),
            ("--api-key-file", path(api_key_file)),
            ("--ca", path(ca)),
            ("--ca-pin", text(ca_pin)),
        ];
        match given.iter().find(|(flag, given)| *given && !used.contains(flag)) {
            None => Ok(()),
            Some((flag, _)) => {
                Err(CommandError::usage(format!("{flag} is not used by this command"), "remove the flag"))
            }
        }
    }
}

/// The replicas of a control plane, in the order in which they are tried.
pub fn server_urls(servers: &[String]) -> Result<Vec<ServerUrl>, CommandError> {
    servers.iter().map(|url| Ok(ServerUrl::parse(url).map_err(client::Error::from)?)).collect()
}

/// Once: a list takes several requests.
fn notice_stale(age: Duration) {
    static NOTICED: AtomicBool = AtomicBool::new(false);
    if !NOTICED.swap(true, Ordering::Relaxed) {
        let mut stderr = anstream::stderr().lock();
        // A closed standard error does not fail the command.
        let _ = writeln!(
            stderr,
            "notice: the replica has no leader to ask: what it answers is from {} s ago, and may be out of date",
            age.as_secs()
        );
    }
}

/// Every saved context. A user without a home has none.
fn saved() -> Result<Contexts, CommandError> {
    ContextsFile::find(&variable).map_or_else(|| Ok(Contexts::default()), |place| place.load())
}

pub fn trust(server_trust: &ServerTrust) -> Result<Trust, CommandError> {
    match server_trust {
        ServerTrust::Ca(path) => Ok(CaTrust::read(path)?.trust()),
        ServerTrust::Pin(pin) => Ok(Trust::pin(parse_pin(pin)?)),
    }
}

/// Under which name a new file waits to take the place of this one.
pub fn pending_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// An empty variable counts as none.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

pub fn absolute(path: &Path) -> Result<PathBuf, CommandError> {
    std::path::absolute(path).map_err(|error| CommandError::file(path, &error))
}

pub fn parse_pin(text: &str) -> Result<pki::pin::Pin, CommandError> {
    pki::pin::Pin::parse(text)
        .map_err(|error| CommandError::usage(error.to_string(), "`enlist ca show` prints the CA pin"))
}

/// The data directory of the first replica, in a directory of `enlist dev --replicas`.
pub fn first_replica(dir: &Path) -> Option<PathBuf> {
    Some(dir.join("replica-1")).filter(|replica| replica.is_dir())
}

/// A missing socket, the most common mistake, has a message of its own.
fn check_socket(socket: &Path) -> Result<(), CommandError> {
    match socket.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let message = format!("the current user may not use the operator socket {}", socket.display());
            let hint = "run as root, the service's user or a member of its group, or use --server with a certificate or an API key";
            Err(CommandError::unreachable(message, hint))
        }
        Err(error) => {
            let missing = socket.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
            if let Some(dir) = missing {
                let message = format!("the directory {} does not exist", dir.display());
                let hint = "give the data directory of a control plane on this machine (--dir or ENLIST_DIR; `enlist server init` makes one), or the \
                    location of another: --socket or --server";
                return Err(CommandError::unreachable(message, hint));
            }
            let message = format!("no operator socket at {}: {error}", socket.display());
            if let Some(replica) = socket.parent().and_then(first_replica) {
                let hint = format!(
                    "the directory holds several replicas of `enlist dev`: give one of them, such as --dir {}",
                    crate::shell::quoted(&replica)
                );
                return Err(CommandError::unreachable(message, &hint));
            }
            let dir = socket.parent().unwrap_or(Path::new(DEFAULT_DIR));
            let hint = format!(
                "start the control plane (its service, or `{}`), or give its location: --dir, --socket or --server; `enlist context add` saves one",
                crate::shell::start_server(dir)
            );
            Err(CommandError::unreachable(message, &hint))
        }
    }
}

pub fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    let read = file.take(private_file::MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    private_file::check_size(path, bytes.len()).map(|()| bytes)
}

/// A certificate or a list that is about to be sent. A file with a private key in it is refused: the root key lies beside these files, and
/// must not reach the control plane.
pub fn read_public(path: &Path) -> Result<String, CommandError> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let hint = "name the file with the certificate or the revocation list alone, PEM; a private key stays where it is";
    if holds_private_key(&text) {
        let message = format!("{} holds a private key; nothing was sent", path.display());
        return Err(CommandError::new(Exit::Usage, "private_key_refused", message, hint));
    }
    // A key in DER, or in the text of another system, has no label to know it by.
    if std::str::from_utf8(&bytes).is_err() && !text.contains("-----BEGIN ") {
        let message = format!("{} is not PEM; nothing was sent", path.display());
        return Err(CommandError::usage(message, hint));
    }
    Ok(text.into_owned())
}

/// Of any kind, also encrypted; by its first line or its last one.
fn holds_private_key(text: &str) -> bool {
    text.lines().any(|line| line.contains("-----") && line.to_ascii_uppercase().contains("PRIVATE KEY"))
}

fn api_key(path: &Path) -> Result<Secret, CommandError> {
    let bytes =
        private_file::read(path, "revoke the key with `enlist operator key revoke ID` and create another")?;
    match std::str::from_utf8(&bytes).map(str::trim) {
        Ok(key) if !key.is_empty() => Ok(Secret::new(key)),
        _ => {
            let message = format!("{} contains no API key", path.display());
            Err(CommandError::usage(message, "create one with `enlist operator key create`"))
        }
    }
}
