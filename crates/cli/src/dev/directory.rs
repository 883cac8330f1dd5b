//! Where `enlist dev` keeps what it makes.

use super::addresses;
use crate::error::{CommandError, Exit};
use crate::private_file::{PrivateFile, own_directory};
use crate::reach;
use crate::shell;
use ::server::config::RawConfig;
use ::server::datadir::DataDir;
use ::server::init::{InitError, InitRequest, IssuerChoice, init};
use lifecycle::names::{ProfileName, TrustDomain};
use pki::issuer::SigningIssuer;
use pki::pem;
use pki::seal::KekSource;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const DOMAIN: &str = "dev.enlist";
/// A directory with this file was made here: it holds nothing of value, and may be used again.
const MARK: &str = "NOT-FOR-PRODUCTION";
/// The fewest and the most of several replicas that can be asked for.
const FEWEST: u8 = 3;
const MOST: u8 = 5;

/// What `root.key` in the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKeyFile {
    Active,
    /// Of a root that was rolled: `ca sign-root` wrote the key of the active one elsewhere.
    Former,
    /// Not there, as in a directory of an older version.
    Absent,
}

pub struct DevDirectory {
    /// Where everything lies.
    base: PathBuf,
    /// The data directory of the control plane, or of its first replica.
    pub dir: DataDir,
    /// How many replicas there are, or will be.
    pub replicas: u8,
    /// Made here, in the system's temporary directory.
    temporary: bool,
}

impl DevDirectory {
    /// `replicas` is how many are asked for: without a word, one in a new directory, and as many as there are in one of an
    /// earlier run.
    pub async fn prepare(
        asked: Option<&Path>,
        replicas: Option<u8>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, CommandError> {
        let (base, temporary) = match asked {
            Some(path) => (reach::absolute(path)?, false),
            None => (temporary()?, true),
        };
        let replicas = layout(&base, replicas)?;
        let dir = if replicas == 1 { base.clone() } else { base.join(replica_name(1)) };
        let directory = Self { base, dir: DataDir::new(dir), replicas, temporary };
        let made = directory.initialize(listen).await;
        if made.is_err() {
            directory.remove_if_temporary();
        }
        made.map(|()| directory)
    }

    /// Uses what an earlier run has made; never what someone else has.
    async fn initialize(&self, listen: Option<SocketAddr>) -> Result<(), CommandError> {
        // Whoever else could write there would choose what the printed commands run.
        match self.base.symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                let message = format!("{} is a link", self.path());
                return Err(CommandError::usage(message, "give the directory itself as --dir"));
            }
            Ok(_) => own_directory(&self.base)?,
            Err(_) => {}
        }
        let mark = self.base.join(MARK);
        if mark.exists() {
            return Ok(());
        }
        if self.dir.check_version().is_ok() || DataDir::new(&self.base).check_version().is_ok() {
            let message =
                format!("{} belongs to a control plane that `enlist dev` did not make", self.path());
            let hint = "choose another --dir, or run that control plane with `enlist server run`";
            return Err(CommandError::new(Exit::Fault, "directory_exists", message, hint));
        }
        let (listen, peer_listen) = match self.replicas {
            // It is written down: nodes look for the control plane there at every later start too.
            1 => (listen.map_or_else(addresses::of_the_only_one, Ok)?, None),
            _ => {
                let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.base);
                created.map_err(|error| CommandError::file(&self.base, &error))?;
                let (listen, peer) = addresses::of_replica(1, listen)?;
                (listen, Some(peer.to_string()))
            }
        };
        let request = InitRequest {
            dir: self.dir.clone(),
            domain: TrustDomain::parse(DOMAIN)
                .map_err(|error| CommandError::fault("domain", error.to_string()))?,
            profile: ProfileName::default_profile(),
            config: RawConfig {
                listen: vec![listen.to_string()],
                peer_listen,
                kek: Some(self.kek().to_string()),
                ..RawConfig::default()
            },
            issuer: IssuerChoice::Sealed,
            policy: Vec::new(),
            user: crate::server::user(),
        };
        let founded = init(request).await?;
        // Beside what it certifies, so that a roll can be tried: a domain for a day has no offline machine.
        if let Some(key) = &founded.root_key_pem {
            let mut file = PrivateFile::create(&self.root_key())?;
            file.write(key.as_bytes())?;
            file.keep();
        }
        founded.finish().map_err(InitError::from)?;
        let text = "Made by `enlist dev`. The root key, and the key that seals the CA, lie beside it.\n";
        std::fs::write(&mark, text).map_err(|error| CommandError::file(&mark, &error))
    }

    pub fn base(&self) -> &Path {
        &self.base
    }

    pub fn path(&self) -> String {
        self.base.display().to_string()
    }

    /// What the control plane logs, unless that goes to standard error.
    pub fn log(&self) -> PathBuf {
        self.base.join("dev.log")
    }

    /// The key-encryption key: replicas share one.
    pub fn kek(&self) -> KekSource {
        KekSource::File(if self.replicas == 1 { self.dir.keys("kek") } else { self.base.join("kek") })
    }

    /// The data directory of one of several replicas.
    pub fn replica(&self, number: u8) -> DataDir {
        DataDir::new(self.base.join(replica_name(number)))
    }

    /// What one of several replicas logs; `*` stands for all of them.
    pub fn replica_log(&self, number: Option<u8>) -> PathBuf {
        let number = number.map_or_else(|| "*".to_owned(), |number| number.to_string());
        self.base.join(format!("replica-{number}.log"))
    }

    /// For trying rolls.
    pub fn root_key(&self) -> PathBuf {
        self.base.join("root.key")
    }

    /// Whether that is the key of the root with this pin.
    pub fn root_key_file(&self, active: &str) -> RootKeyFile {
        let (Ok(key), Ok(bundle)) =
            (std::fs::read(self.root_key()), std::fs::read(self.dir.ca("bundle.pem")))
        else {
            return RootKeyFile::Absent;
        };
        let key = Zeroizing::new(key);
        let Ok(key) = pem::private_key(&key) else { return RootKeyFile::Absent };
        let roots = pem::certificates(&bundle).unwrap_or_default();
        let is_active = roots.iter().any(|root| {
            pki::digest::fingerprint(root).pin() == active
                && SigningIssuer::new(root, key.secret_der()).is_ok()
        });
        if is_active { RootKeyFile::Active } else { RootKeyFile::Former }
    }

    /// A link to this program under the agent's name: `cargo run --bin enlist` builds no other.
    pub fn agent_program(&self) -> Result<PathBuf, CommandError> {
        self.link("enlist-agent")
    }

    /// This program as another terminal finds it: by its name if this one did, else by a link, because a relative path
    /// leads elsewhere from there.
    pub fn own_program(&self) -> Result<PathBuf, CommandError> {
        let called = std::env::args_os().next().map(PathBuf::from);
        match called.filter(|called| called.components().count() == 1) {
            Some(name) => Ok(name),
            None => self.link("enlist"),
        }
    }

    fn link(&self, name: &str) -> Result<PathBuf, CommandError> {
        let program = shell::executable()?;
        let dir = self.base.join("bin");
        let link = dir.join(name);
        let made = std::fs::create_dir_all(&dir).and_then(|()| match std::fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => symlink(&program, &link),
        });
        made.map_err(|error| CommandError::file(&link, &error))?;
        Ok(link)
    }

    pub fn demo_agent(&self) -> PathBuf {
        self.base.join("demo-agent")
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    pub fn remove_if_temporary(&self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.base);
        }
    }
}

fn replica_name(number: u8) -> String {
    format!("replica-{number}")
}

/// How many replicas a directory has or will have. One that holds a control plane of one process has no place for more.
fn layout(base: &Path, asked: Option<u8>) -> Result<u8, CommandError> {
    let is_made = |path: PathBuf| DataDir::new(path).check_version().is_ok();
    let made = (1..=MOST).take_while(|number| is_made(base.join(replica_name(*number)))).count();
    let made = u8::try_from(made).unwrap_or(MOST);
    let is_alone = is_made(base.to_owned());
    let there = if is_alone { 1 } else { made };
    match asked {
        None if is_alone || made == 0 => Ok(1),
        // An earlier run may have ended before the last one had joined.
        None => Ok((made | 1).max(FEWEST)),
        Some(asked) if there == 0 || asked == there || (made > 0 && asked > made) => Ok(asked),
        Some(asked) => {
            let path = base.display();
            let replicas = if there == 1 { "1 replica".to_owned() } else { format!("{there} replicas") };
            let message = format!("{path} was made with {replicas}, and cannot be changed to {asked}");
            Err(CommandError::usage(message, "choose another --dir, or leave --replicas out"))
        }
    }
}

/// A directory that was not there before: nobody else can have prepared it.
fn temporary() -> Result<PathBuf, CommandError> {
    let base = std::env::temp_dir();
    // Short, because people type it.
    let names = std::iter::once("enlist-dev".to_owned()).chain((2..1000).map(|n| format!("enlist-dev-{n}")));
    for name in names {
        let path = base.join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return reach::absolute(&path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CommandError::file(&path, &error)),
        }
    }
    Err(CommandError::fault("directory", format!("no free name for a directory in {}", base.display())))
}
