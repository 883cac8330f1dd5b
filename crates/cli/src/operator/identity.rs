//! An operator's certificate on disk: the key is made here, and only its request leaves.

use crate::context::saved::Context;
use crate::error::CommandError;
use crate::private_file::{PrivateFile, own_directory};
use crate::table::{harmless, or_dash};
use api::rest::operators::AddedOperator;
use pki::agent_key::HostKey;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory, with the key in it, before anyone is asked: an operator whose key could not be kept would
/// be of no use.
pub struct IdentityFiles {
    dir: PathBuf,
    /// Whether the directory was made here.
    made: bool,
    key: HostKey,
    key_file: PrivateFile,
}

impl IdentityFiles {
    pub fn prepare(dir: &Path) -> Result<Self, CommandError> {
        let made = !dir.exists();
        let there = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        there.map_err(|error| CommandError::file(dir, &error))?;
        own_directory(dir)?;
        for name in ["cert.pem", "ca.pem", "context.toml"] {
            let path = dir.join(name);
            if path.symlink_metadata().is_ok() {
                return Err(CommandError::exists(&path, "choose another --out directory"));
            }
        }
        let key = HostKey::generate().map_err(|error| CommandError::fault("key", error.to_string()))?;
        let mut key_file = PrivateFile::create(&dir.join("key.pem"))?;
        key_file.write(key.to_pem().as_bytes())?;
        Ok(Self { dir: dir.to_owned(), made, key, key_file })
    }

    pub fn request(&self) -> Result<String, CommandError> {
        self.key.csr_pem().map_err(|error| CommandError::fault("key", error.to_string()))
    }

    pub fn discard(self) {
        self.key_file.discard();
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }

    /// Leaf and chain together, as TLS clients want them; the context last, as it names the others.
    pub fn finish(self, issued: &OperatorCertificate<'_>) -> Result<(), CommandError> {
        let write = |name: &str, text: &str| {
            let path = self.dir.join(name);
            let made = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
            made.map_err(|error| CommandError::file(&path, &error))
        };
        write("cert.pem", &format!("{}{}", issued.leaf, issued.chain))?;
        write("ca.pem", issued.ca)?;
        match issued.server {
            Some(server) => write("context.toml", &context(server)?),
            None => Ok(()),
        }
    }
}

/// What the control plane sent.
pub struct OperatorCertificate<'a> {
    pub leaf: &'a str,
    pub chain: &'a str,
    pub ca: &'a str,
    /// Where the control plane is reached with it, if that is known.
    pub server: Option<&'a str>,
}

impl<'a> OperatorCertificate<'a> {
    pub fn of(added: &'a AddedOperator, server: Option<&'a str>) -> Result<Self, CommandError> {
        match (&added.certificate, &added.ca) {
            (Some(leaf), Some(ca)) => {
                Ok(Self { leaf, chain: added.chain.as_deref().unwrap_or_default(), ca, server })
            }
            _ => Err(CommandError::fault("answer_incomplete", "the control plane sent no certificate")),
        }
    }
}

/// For `enlist context add --file`: the other files by the names that they have beside it.
fn context(server: &str) -> Result<String, CommandError> {
    let context = Context {
        server: Some(server.to_owned()),
        ca: Some("ca.pem".into()),
        cert: Some("cert.pem".into()),
        key: Some("key.pem".into()),
        ..Context::default()
    };
    let text = toml::to_string(&context).map_err(|error| CommandError::fault("toml", error.to_string()))?;
    Ok(format!(
        "# Take this in with `enlist context add NAME --file context.toml`; the paths are relative to this file.\n{text}"
    ))
}

pub fn text(added: &AddedOperator, dir: &Path, server: Option<&str>) -> String {
    let (name, until) = (harmless(&added.name), harmless(or_dash(added.not_after.as_deref())));
    let dir = dir.display();
    let next = match server {
        Some(_) => format!(
            "On the machine of the operator:\n  \
             enlist context add {name} --file {dir}/context.toml --use\n  \
             enlist node list\n"
        ),
        None => format!(
            "From anywhere:\n  \
             enlist --server URL --cert {dir}/cert.pem --key {dir}/key.pem --ca {dir}/ca.pem node list\n"
        ),
    };
    format!("operator {name} is added; certificate until {until}, in {dir}\n\n{next}")
}
