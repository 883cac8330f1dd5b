//! `--issuer step-ca`: what is given for it, and how its provisioner's key is read.

use super::{Arguments, IssuerSource};
use crate::error::{CommandError, Exit};
use crate::private_file;
use crate::reach;
use crate::server::error::STEP_CA;
use ::server::init::{IssuerChoice, StepCaChoice};
use pki::step_ca::FoundProvisionerKey;
use std::path::Path;
use zeroize::Zeroizing;

/// Whoever has it can have certificates signed by step-ca.
const ANOTHER_KEY: &str =
    "make another key for the provisioner, and give that one to step-ca and to this command";

/// The flags belong to this issuer and to no other.
pub fn check_flags(arguments: &Arguments) -> Result<(), CommandError> {
    let Arguments {
        step_ca_url, step_ca_root, step_ca_provisioner, step_ca_key, step_ca_password_file, ..
    } = arguments;
    let is_given = step_ca_url.is_some()
        || step_ca_root.is_some()
        || step_ca_provisioner.is_some()
        || step_ca_key.is_some()
        || step_ca_password_file.is_some();
    if is_given && arguments.issuer != IssuerSource::StepCa {
        return Err(CommandError::usage(
            "the --step-ca flags are used with --issuer step-ca only",
            "give --issuer step-ca, or none of them",
        ));
    }
    Ok(())
}

pub fn choice(arguments: &Arguments) -> Result<IssuerChoice, CommandError> {
    let Arguments { step_ca_url, step_ca_root, step_ca_provisioner, step_ca_key, .. } = arguments;
    let (Some(url), Some(root), Some(provisioner), Some(key)) =
        (step_ca_url, step_ca_root, step_ca_provisioner, step_ca_key)
    else {
        return Err(CommandError::usage("--issuer step-ca needs the --step-ca flags", STEP_CA));
    };
    let read = provisioner_key(key, arguments.step_ca_password_file.as_deref())?;
    let (url, provisioner) = (url.clone(), provisioner.clone());
    Ok(IssuerChoice::StepCa(StepCaChoice { url, root: reach::read(root)?, provisioner, key: read }))
}

/// Reads the provisioner's key, which nobody else may be able to read.
pub fn provisioner_key(
    key: &Path,
    password_file: Option<&Path>,
) -> Result<FoundProvisionerKey, CommandError> {
    let (file, is_exposed) = private_file::read_and_judge(key)?;
    let password = password_file.map(password).transpose()?;
    let read = pki::step_ca::read(&file, password.as_ref().map(|password| password.as_slice()));
    let read = read.map_err(|error| {
        let message = format!("the provisioner's key cannot be used: {}: {error}", key.display());
        CommandError::new(Exit::Usage, "step_ca_unusable", message, STEP_CA)
    })?;
    // After it was read: of a file that holds no such key, that is what the user has to know.
    if is_exposed {
        return Err(private_file::exposed(key, ANOTHER_KEY));
    }
    Ok(read)
}

/// Without the line break that an editor leaves at its end, as `step` reads it.
fn password(path: &Path) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let bytes = private_file::read(path, ANOTHER_KEY)?;
    let trimmed = bytes.trim_ascii_end();
    Ok(Zeroizing::new(trimmed.to_vec()))
}
