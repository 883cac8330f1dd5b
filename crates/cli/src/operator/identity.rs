//! An operator's certificate on disk. The key is made here, or the operator has made it and sent a request.

use crate::context::saved::Context;
use crate::error::CommandError;
use crate::private_file::{PrivateFile, own_directory};
use crate::reach::ca_trust::CaTrust;
use crate::reach::read_public;
use crate::screen::Screen;
use crate::shell;
use crate::table::{harmless, or_dash};
use api::rest::one_or_more::OneOrMore;
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
    key: OperatorKeySource,
}

/// Where the operator's key is.
enum OperatorKeySource {
    /// Made here, in key.pem.
    Made { key: HostKey, file: PrivateFile },
    /// With the operator, who has sent this request.
    Elsewhere { csr: String },
}

impl IdentityFiles {
    /// With a key of its own, or for the key that a request was made with.
    pub fn prepare(dir: &Path, csr: Option<&Path>) -> Result<Self, CommandError> {
        let csr = csr.map(read_public).transpose()?;
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
        let key = match csr {
            Some(csr) => OperatorKeySource::Elsewhere { csr },
            None => {
                let key =
                    HostKey::generate().map_err(|error| CommandError::fault("key", error.to_string()))?;
                let mut file = PrivateFile::create(&dir.join("key.pem"))?;
                file.write(key.to_pem().as_bytes())?;
                OperatorKeySource::Made { key, file }
            }
        };
        Ok(Self { dir: dir.to_owned(), made, key })
    }

    pub fn request(&self) -> Result<String, CommandError> {
        match &self.key {
            OperatorKeySource::Made { key, .. } => {
                key.csr_pem().map_err(|error| CommandError::fault("key", error.to_string()))
            }
            OperatorKeySource::Elsewhere { csr } => Ok(csr.clone()),
        }
    }

    /// For when no certificate was issued.
    pub fn discard(self) {
        drop(self.key);
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }

    /// Leaf and chain together, as TLS clients want them; the context last, as it names the others.
    pub fn finish(mut self, issued: &OperatorCertificate<'_>) -> Result<(), CommandError> {
        // A certificate of it is issued, whatever becomes of the other files.
        if let OperatorKeySource::Made { file, .. } = &mut self.key {
            file.keep();
        }
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
        match issued.servers {
            [] => Ok(()),
            servers => write("context.toml", &context(servers)?),
        }
    }
}

/// What goes into the files.
pub struct OperatorCertificate<'a> {
    pub leaf: &'a str,
    pub chain: &'a str,
    /// What verifies the control plane.
    pub ca: &'a CaTrust,
    /// Where the control plane is reached with it, as far as that is known.
    pub servers: &'a [String],
}

impl<'a> OperatorCertificate<'a> {
    pub fn of(
        added: &'a AddedOperator,
        ca: &'a CaTrust,
        servers: &'a [String],
    ) -> Result<Self, CommandError> {
        match &added.certificate {
            Some(leaf) => Ok(Self { leaf, chain: added.chain.as_deref().unwrap_or_default(), ca, servers }),
            None => Err(CommandError::fault("answer_incomplete", "the control plane sent no certificate")),
        }
    }
}

/// For `enlist context add --file`: the other files by the names that they have beside it.
fn context(servers: &[String]) -> Result<String, CommandError> {
    let context = Context {
        server: OneOrMore::of(servers),
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

/// Whether it is known where the control plane is reached, and whether the key was made here.
pub fn text(
    added: &AddedOperator,
    dir: &Path,
    (is_reached, own_key): (bool, bool),
    screen: Screen,
) -> String {
    let (name, until) = (harmless(&added.name), harmless(or_dash(added.not_after.as_deref())));
    let dir = dir.display();
    let line = |command: String| shell::paragraph(&command, screen);
    let moved = if own_key {
        "Move the directory to the operator's machine over a safe channel, since key.pem in it is a private key. There:"
    } else {
        "Give the directory to the operator, who puts the key of the request into it as key.pem, mode 0600. There:"
    };
    let next = if is_reached {
        format!(
            "{}\n{}{}",
            screen.hang(0, 0, moved),
            line(format!("enlist context add {name} --file {dir}/context.toml --use")),
            line("enlist node list".to_owned())
        )
    } else {
        format!(
            "From anywhere:\n{}",
            line(format!(
                "enlist --server URL --cert {dir}/cert.pem --key {dir}/key.pem --ca {dir}/ca.pem node list"
            ))
        )
    };
    let said = screen.hang(0, 2, &format!("operator {name} is added; certificate until {until}, in {dir}"));
    format!("{said}\n\n{next}")
}
