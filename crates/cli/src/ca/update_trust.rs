//! `enlist ca update-trust`: the CA file by which this machine verifies the control plane, brought up to date.

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::reach::ca_trust;
use crate::reach::credential::ServerTrust;
use crate::reach::target::{ChosenTarget, Target};
use std::path::Path;

pub async fn run(reach: &Reach, output: Output) -> Result<(), CommandError> {
    let ChosenTarget { target, by } = reach.chosen()?;
    let done = match ca_file(&target) {
        Ok((servers, ca)) => ca_trust::update(servers, ca).await,
        Err(failure) => Err(failure),
    };
    let (_, change) = done.map_err(|failure| by.explain(failure))?;
    output.document(&change, |change| match change.text() {
        same if same.is_empty() => "nothing has changed\n".to_owned(),
        changes => output.screen().hang(0, 2, &changes),
    })
}

fn ca_file(target: &Target) -> Result<(&[String], &Path), CommandError> {
    match target {
        Target::Socket(_) => Err(CommandError::usage(
            "the operator socket is verified by its place, so there is no CA file to update",
            "give --context NAME, or --server URL with --ca FILE",
        )),
        Target::Server { server_trust: ServerTrust::Pin(_), .. } => Err(CommandError::usage(
            "a pin is no file that can be updated",
            "give --ca FILE instead; `enlist ca export --server` writes such a file",
        )),
        Target::Server { servers, server_trust: ServerTrust::Ca(ca), .. } => Ok((servers, ca)),
    }
}
