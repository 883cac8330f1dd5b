//! `server init --from-taskrun FILE`: the control plane's TOML of the TaskRun document, as it stands there.

use crate::error::CommandError;
use crate::reach;
use ::server::config::{ConfigMistakes, RawTls};
use ::server::datadir::replace;
use ::server::from_taskrun::{self, Document};
use ::server::init::{InitError, InitializedDomain, IssuerChoice};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn load(path: &Path) -> Result<Document, CommandError> {
    from_taskrun::load(path).map_err(|ConfigMistakes(mistakes)| CommandError::config(mistakes))
}

/// The CA in the files, or a new one if there are none.
pub fn issuer(document: &Document, root_key_out: bool) -> Result<IssuerChoice, CommandError> {
    if document.makes_ca {
        return Ok(IssuerChoice::Sealed);
    }
    if root_key_out {
        return Err(CommandError::usage("an imported CA has no root key to write", "omit --root-key-out"));
    }
    let key = super::imported_key(&document.ca_key)?;
    Ok(IssuerChoice::Imported { certificates: reach::read(&document.ca_cert)?, key })
}

/// The folders in which a new CA is to lie.
pub fn create_folders(document: &Document) -> Result<(), CommandError> {
    for folder in [&document.ca_cert, &document.ca_key].into_iter().filter_map(|path| path.parent()) {
        std::fs::create_dir_all(folder).map_err(|error| CommandError::file(folder, &error))?;
    }
    Ok(())
}

/// The files are found again from wherever the control plane is started.
pub fn server_certificate(document: &Document) -> Result<RawTls, CommandError> {
    let path = |path: &Path| Ok::<_, CommandError>(reach::absolute(path)?.display().to_string());
    Ok(match &document.server {
        Some(own) => RawTls { server_cert: Some(path(&own.cert)?), server_key: Some(path(&own.key)?) },
        None => RawTls::default(),
    })
}

/// Puts the certificate of a new CA where workers are given it from, and warns of a server key that others may read.
pub fn publish_ca(document: &Document, initialized: &mut InitializedDomain) -> Result<(), CommandError> {
    if document.makes_ca {
        let written = replace(&document.ca_cert, initialized.root_pem.as_bytes(), 0o644);
        written.map_err(InitError::from)?;
        return Ok(());
    }
    let Some(key) = document.server.as_ref().map(|own| &own.key) else { return Ok(()) };
    if std::fs::metadata(key).is_ok_and(|file| file.permissions().mode() & 0o077 != 0) {
        let warning = format!("users other than its owner have access to {0}: chmod 600 {0}", key.display());
        initialized.warnings.push(warning);
    }
    Ok(())
}
