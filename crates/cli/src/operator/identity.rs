//! An operator's certificate on disk: the key is made here, and only its request leaves.

use crate::context::saved::Context;
use crate::error::CommandError;
use crate::private_file::{PrivateFile, own_directory};
use crate::reach::ca_trust::CaTrust;
use crate::screen::Screen;
use crate::shell;
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
        for name in ["cert.pem", "ca.pem", "ca-crls.pem", "context.toml"] {
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

    /// For when no certificate was issued.
    pub fn discard(self) {
        drop(self.key_file);
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }

    /// Leaf and chain together, as TLS clients want them; the context last, as it names the others.
    pub fn finish(mut self, issued: &OperatorCertificate<'_>) -> Result<(), CommandError> {
        // A certificate of it is issued, whatever becomes of the other files.
        self.key_file.keep();
        let write = |name: &str, text: &str| {
            let path = self.dir.join(name);
            let made = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
            made.map_err(|error| CommandError::file(&path, &error))
        };
        write("cert.pem", &format!("{}{}", issued.leaf, issued.chain))?;
        write("ca.pem", &issued.ca.ca_pem())?;
        match issued.ca.lists_pem().as_str() {
            "" => {}
            lists => write("ca-crls.pem", lists)?,
        }
        match issued.server {
            Some(server) => write("context.toml", &context(server)?),
            None => Ok(()),
        }
    }
}

/// What goes into the files.
pub struct OperatorCertificate<'a> {
    pub leaf: &'a str,
    pub chain: &'a str,
    /// What verifies the control plane.
    pub ca: &'a CaTrust,
    /// Where the control plane is reached with it, if that is known.
    pub server: Option<&'a str>,
}

impl<'a> OperatorCertificate<'a> {
    pub fn of(
        added: &'a AddedOperator,
        ca: &'a CaTrust,
        server: Option<&'a str>,
    ) -> Result<Self, CommandError> {
        match &added.certificate {
            Some(leaf) => Ok(Self { leaf, chain: added.chain.as_deref().unwrap_or_default(), ca, server }),
            None => Err(CommandError::fault("answer_incomplete", "the control plane sent no certificate")),
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

pub fn text(added: &AddedOperator, dir: &Path, server: Option<&str>, screen: Screen) -> String {
    let (name, until) = (harmless(&added.name), harmless(or_dash(added.not_after.as_deref())));
    let dir = dir.display();
    let line = |command: String| shell::paragraph(&command, screen);
    let next = match server {
        Some(_) => format!(
            "On the machine of the operator:\n{}{}",
            line(format!("enlist context add {name} --file {dir}/context.toml --use")),
            line("enlist node list".to_owned())
        ),
        None => format!(
            "From anywhere:\n{}",
            line(format!(
                "enlist --server URL --cert {dir}/cert.pem --key {dir}/key.pem --ca {dir}/ca.pem node list"
            ))
        ),
    };
    let said = screen.hang(0, 2, &format!("operator {name} is added; certificate until {until}, in {dir}"));
    format!("{said}\n\n{next}")
}
