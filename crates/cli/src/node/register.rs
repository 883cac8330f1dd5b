//! `enlist node register`: machines that may enroll with their hardware identity, one or a whole file.

pub mod batch;
mod batch_file;

use super::act;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::{NodeItem, RegisterNodeRequest};
use api::rest::policy::PolicyList;
use client::OperatorApi;
use client::rest::Path;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Id of the new node: 1 to 63 letters, digits, dots, dashes and underscores
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    id: Option<String>,
    /// MAC address of the machine; repeatable
    #[arg(long, value_name = "MAC", conflicts_with = "batch")]
    mac: Vec<String>,
    /// Serial number of its board or BMC
    #[arg(long, value_name = "SERIAL", conflicts_with = "batch")]
    bmc_serial: Option<String>,
    /// System UUID of its SMBIOS
    #[arg(long, value_name = "UUID", conflicts_with = "batch")]
    system_uuid: Option<String>,
    /// Hash of the endorsement key of its TPM, hex; for agents that send it, which `enlist-agent` does not
    #[arg(long, value_name = "HASH", conflicts_with = "batch")]
    tpm_ek_hash: Option<String>,
    /// Assign the node to this vCluster [default: none, maintenance mode]
    #[arg(long)]
    vcluster: Option<String>,
    /// Profile of its certificates [default: the domain's default profile]
    #[arg(long)]
    profile: Option<String>,
    /// Tenant of the node [default: the operator's only tenant, else `default`]
    #[arg(long)]
    tenant: Option<String>,
    /// Register every machine of this file, or of standard input with `-`
    ///
    /// A CSV file begins with a header that names its columns: node_id, mac, and optionally bmc_serial, system_uuid,
    /// tpm_ek_hash and vcluster. Several MAC addresses of a machine are joined by `;`. A file of JSON lines has an object
    /// with these fields on each line. Each machine is registered by itself, so that some lines may be refused; the
    /// command may be repeated. --vcluster, --profile and --tenant apply to every line that does not say otherwise.
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
}

pub async fn run(arguments: Arguments, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let Arguments { id, mac, bmc_serial, system_uuid, tpm_ek_hash, vcluster, profile, tenant, batch } =
        arguments;
    if let Some(file) = batch {
        batch::run(&file, &batch::LineDefaults { vcluster, profile, tenant }, operator, output).await?;
        if !output.is_json() {
            warn_if_refused(operator).await;
        }
        return Ok(());
    }
    let has_hardware =
        !mac.is_empty() || bmc_serial.is_some() || system_uuid.is_some() || tpm_ek_hash.is_some();
    let has_tpm = tpm_ek_hash.is_some();
    let request = RegisterNodeRequest {
        node_id: id.unwrap_or_default(),
        mac: mac.into(),
        bmc_serial,
        system_uuid,
        tpm_ek_hash,
        vcluster,
        profile,
        tenant,
    };
    let node: NodeItem = operator.post(&Path::new("/v1/nodes"), &request).await?;
    output.document(&node, act::now)?;
    if !output.is_json() && has_hardware {
        warn_if_refused(operator).await;
    }
    if !output.is_json() && has_tpm {
        warn_of_tpm();
    }
    Ok(())
}

/// `enlist-agent` sends no hash, and everything that is registered must match.
fn warn_of_tpm() {
    let mut stderr = anstream::stderr().lock();
    // A closed standard error does not fail the command.
    let _ = writeln!(
        stderr,
        "notice: enlist-agent does not send the hash of a TPM's endorsement key: it is refused on this machine with \
         node_not_enrolled. Register the machine without --tpm-ek-hash unless its agent sends that hash"
    );
}

/// A machine that is registered and refused all the same would be found out only when it boots.
async fn warn_if_refused(operator: &OperatorApi) {
    let Ok(policy) = operator.get::<PolicyList>(&Path::new("/v1/policy")).await else { return };
    let attestors = policy.items.iter().find(|item| item.key == "attestors");
    if let Some(attestors) = attestors.filter(|item| !item.value.split(',').any(|word| word == "hardware")) {
        let allowed = harmless(&attestors.value);
        let mut stderr = anstream::stderr().lock();
        // A closed standard error does not fail the command.
        let _ = writeln!(
            stderr,
            "notice: policy does not let machines enroll by their hardware yet; allow it with:\n  \
             enlist policy set attestors {allowed},hardware"
        );
    }
}
