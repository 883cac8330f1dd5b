//! `enlist ca step-ca`: how the control plane asks the step-ca behind it.

use super::text;
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::server::init::step_ca::provisioner_key;
use api::rest::ca::{Ca, StepCaSettings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::rest::Path;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Change the address, the root or the provisioner of the step-ca that signs for nodes; on the control plane's machine
    ///
    /// What is not given stays as it is. Every replica uses the new settings at once, without a restart. With another root the one
    /// before signs no more, and verifies what it has signed until that has expired.
    Set(SetArguments),
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct SetArguments {
    /// Address of step-ca, https://HOST[:PORT]
    #[arg(long, value_name = "URL")]
    step_ca_url: Option<String>,
    /// Root certificate of step-ca, PEM
    #[arg(long, value_name = "FILE")]
    step_ca_root: Option<PathBuf>,
    /// Name of the JWK provisioner
    #[arg(long, value_name = "NAME")]
    step_ca_provisioner: Option<String>,
    /// Private key of the provisioner, JWK, encrypted or not; it is sealed, and the file is not read again
    #[arg(long, value_name = "FILE")]
    step_ca_key: Option<PathBuf>,
    /// File with the password of the key
    #[arg(long, value_name = "FILE", requires = "step_ca_key")]
    step_ca_password_file: Option<PathBuf>,
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let Command::Set(arguments) = command;
    let password = arguments.step_ca_password_file.as_deref();
    let key = arguments.step_ca_key.map(|key| provisioner_key(&key, password)).transpose()?;
    let settings = StepCaSettings {
        url: arguments.step_ca_url,
        root: arguments.step_ca_root.map(|root| reach::read_public(&root)).transpose()?,
        provisioner: arguments.step_ca_provisioner,
        key_id: key.as_ref().map(|key| key.key_id.clone()),
        key: key.as_ref().map(|key| STANDARD.encode(&key.bytes)),
    };
    let ca: Ca = reach.operator()?.post(&Path::new("/v1/ca/step-ca"), &settings).await?;
    output.document(&ca, |ca| text(ca, output.screen()))
}
