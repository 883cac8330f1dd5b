//! Where `enlist dev` keeps what it makes.

use crate::error::{CommandError, Exit};
use crate::private_file::own_directory;
use crate::reach;
use crate::shell;
use ::server::config::RawConfig;
use ::server::datadir::DataDir;
use ::server::init::{InitError, InitRequest, IssuerChoice, init};
use lifecycle::names::{ProfileName, TrustDomain};
use pki::seal::KekSource;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

const DOMAIN: &str = "dev.enlist";
/// A directory with this file was made here: it holds nothing of value, and may be used again.
const MARK: &str = "NOT-FOR-PRODUCTION";

pub struct DevDirectory {
    pub dir: DataDir,
    /// Made here, in the system's temporary directory.
    temporary: bool,
}

impl DevDirectory {
    pub async fn prepare(asked: Option<&Path>, listen: SocketAddr) -> Result<Self, CommandError> {
        let directory = match asked {
            Some(path) => Self { dir: DataDir::new(reach::absolute(path)?), temporary: false },
            None => Self { dir: DataDir::new(temporary()?), temporary: true },
        };
        let made = directory.initialize(listen).await;
        if made.is_err() {
            directory.remove_if_temporary();
        }
        made.map(|()| directory)
    }

    /// Uses what an earlier run has made; never what someone else has.
    async fn initialize(&self, listen: SocketAddr) -> Result<(), CommandError> {
        // Whoever else could write there would choose what the printed commands run.
        match self.dir.path().symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                let message = format!("{} is a link", self.path());
                return Err(CommandError::usage(message, "give the directory itself as --dir"));
            }
            Ok(_) => own_directory(self.dir.path())?,
            Err(_) => {}
        }
        let mark = self.dir.path().join(MARK);
        if mark.exists() {
            return Ok(());
        }
        if self.dir.check_version().is_ok() {
            let message =
                format!("{} belongs to a control plane that `enlist dev` did not make", self.path());
            let hint = "choose another --dir, or run that control plane with `enlist server run`";
            return Err(CommandError::new(Exit::Fault, "directory_exists", message, hint));
        }
        let kek = KekSource::File(self.dir.keys("kek"));
        let request = InitRequest {
            dir: self.dir.clone(),
            domain: TrustDomain::parse(DOMAIN)
                .map_err(|error| CommandError::fault("domain", error.to_string()))?,
            profile: ProfileName::default_profile(),
            config: RawConfig {
                listen: vec![listen.to_string()],
                kek: Some(kek.to_string()),
                ..RawConfig::default()
            },
            issuer: IssuerChoice::Sealed,
            policy: Vec::new(),
            user: crate::server::user(),
        };
        // The root key is dropped: a domain for a day has no use for it.
        let founded = init(request).await?;
        founded.finish().map_err(InitError::from)?;
        let text = "Made by `enlist dev`. The key that seals the CA lies beside it.\n";
        std::fs::write(&mark, text).map_err(|error| CommandError::file(&mark, &error))
    }

    pub fn path(&self) -> String {
        self.dir.path().display().to_string()
    }

    /// What the control plane logs, unless that goes to standard error.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("dev.log")
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
        let dir = self.dir.path().join("bin");
        let link = dir.join(name);
        let made = std::fs::create_dir_all(&dir).and_then(|()| match std::fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => symlink(&program, &link),
        });
        made.map_err(|error| CommandError::file(&link, &error))?;
        Ok(link)
    }

    pub fn demo_agent(&self) -> PathBuf {
        self.dir.path().join("demo-agent")
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    pub fn remove_if_temporary(&self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(self.dir.path());
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
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return reach::absolute(&path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CommandError::file(&path, &error)),
        }
    }
    Err(CommandError::fault("directory", format!("no free name for a directory in {}", base.display())))
}
