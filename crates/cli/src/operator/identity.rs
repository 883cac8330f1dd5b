//! An operator's certificate on disk: the key is made here, and only its request leaves.

use crate::failure::{Exit, Failure};
use crate::private_file::PrivateFile;
use crate::table::{harmless, or_dash};
use api::rest::operators::AddedOperator;
use pki::agent_key::HostKey;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory, with the key in it, before anyone is asked: an operator whose key could not be kept would
/// be of no use.
pub struct Files {
    dir: PathBuf,
    /// Whether the directory was made here.
    made: bool,
    key: HostKey,
    key_file: PrivateFile,
}

impl Files {
    pub fn prepare(dir: &Path) -> Result<Self, Failure> {
        let made = !dir.exists();
        let there = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        there.map_err(|error| Failure::file(dir, &error))?;
        for name in ["cert.pem", "ca.pem"] {
            let path = dir.join(name);
            if path.exists() {
                let message = format!("{} exists already", path.display());
                return Err(Failure::new(
                    Exit::Usage,
                    "file_exists",
                    message,
                    "choose another --out directory",
                ));
            }
        }
        let key = HostKey::generate().map_err(|error| Failure::fault("key", error.to_string()))?;
        let mut key_file = PrivateFile::create(&dir.join("key.pem"))?;
        key_file.write(key.to_pem().as_bytes())?;
        Ok(Self { dir: dir.to_owned(), made, key, key_file })
    }

    pub fn request(&self) -> Result<String, Failure> {
        self.key.csr_pem().map_err(|error| Failure::fault("key", error.to_string()))
    }

    pub fn discard(self) {
        self.key_file.discard();
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }

    /// Leaf and chain together, as TLS clients want them.
    pub fn finish(self, added: &AddedOperator) -> Result<(), Failure> {
        let (Some(leaf), Some(ca)) = (&added.certificate, &added.ca) else {
            return Err(Failure::fault("answer_incomplete", "the control plane sent no certificate"));
        };
        let chain = format!("{leaf}{}", added.chain.as_deref().unwrap_or_default());
        for (name, text) in [("cert.pem", &chain), ("ca.pem", ca)] {
            let path = self.dir.join(name);
            std::fs::write(&path, text).map_err(|error| Failure::file(&path, &error))?;
        }
        Ok(())
    }
}

pub fn text(added: &AddedOperator, dir: &Path) -> String {
    let (name, until) = (harmless(&added.name), harmless(or_dash(added.not_after.as_deref())));
    let dir = dir.display();
    format!(
        "operator {name} is added; certificate until {until}, in {dir}\n\n\
         From any machine:\n  \
         enlist --server URL --cert {dir}/cert.pem --key {dir}/key.pem --ca {dir}/ca.pem node list\n"
    )
}
