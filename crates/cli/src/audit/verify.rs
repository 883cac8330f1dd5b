//! `enlist audit verify`: online by the control plane itself, or of a file with nothing but the CA at hand.

use super::file;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::progress::Progress;
use crate::reach::{self, Reach};
use api::rest::audit::AuditVerify;
use client::OperatorApi;
use client::rest::Path;
use std::path::Path as FilePath;

pub async fn online(operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let path = Path::new("/v1/audit/verify");
    let result: AuditVerify = Progress::new("verifying", output).during(operator.get(&path)).await?;
    conclude(&result, AUDIT_FAULT, COMPARE, output)
}

pub fn offline(
    path: &FilePath,
    ca: Option<&FilePath>,
    flags: &Reach,
    output: Output,
) -> Result<(), CommandError> {
    let ca = match (ca, flags.ca.as_deref()) {
        (Some(_), Some(_)) => {
            return Err(CommandError::usage("--ca-file and --ca are both given", "give one of them"));
        }
        (ca, global) => ca.or(global),
    };
    let anchor = match (ca, &flags.ca_pin) {
        (Some(ca), None) => {
            let roots = pki::pem::certificates(&reach::read(ca)?);
            file::AuditAnchor::Roots(roots.map_err(|error| {
                CommandError::usage(
                    format!("{}: {error}", ca.display()),
                    "give a file with the CA certificate, PEM",
                )
            })?)
        }
        (None, Some(pin)) => file::AuditAnchor::Pin(reach::parse_pin(pin)?),
        (None, None) => {
            let message = "no CA is given to verify the signature of the file";
            return Err(CommandError::usage(message, "give --ca-file FILE or --ca-pin PIN"));
        }
        (Some(_), Some(_)) => {
            return Err(CommandError::usage("a CA file and --ca-pin are both given", "give one of them"));
        }
    };
    let verdict = file::verify(path, &anchor, Progress::new("verifying", output)).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        let hint = format!("{}, which this user may read", file::EXPORT_WANTED);
        CommandError::new(Exit::Fault, "file", message, hint)
    })?;
    let code = if verdict.is_export { AUDIT_FAULT } else { "not_an_export" };
    conclude(&verdict.report, code, verdict.remedy.unwrap_or(COMPARE), output)
}

const AUDIT_FAULT: &str = "audit_fault";
/// What to do about a trail that was changed.
const COMPARE: &str =
    "compare with an earlier export or a checkpoint kept elsewhere; lines after the fault are not verified";

/// The report to standard output whatever it says; a fault is an error as well.
fn conclude(result: &AuditVerify, code: &str, remedy: &str, output: Output) -> Result<(), CommandError> {
    output.document(result, text)?;
    if result.ok {
        return Ok(());
    }
    let what = result.fault.as_ref().map_or("the audit trail is not intact", |fault| fault.what.as_str());
    Err(CommandError::new(Exit::Refused, code, what, remedy))
}

fn text(result: &AuditVerify) -> String {
    let number = |seq: Option<u64>| seq.map(|seq| seq.to_string());
    Fields::new()
        .with("ok", if result.ok { "yes" } else { "no" })
        .with_some("first line", number(result.first_seq).as_deref())
        .with_some("last line", number(result.last_seq).as_deref())
        .with_some("head", result.head.as_deref())
        .with_some("checkpoint", result.checkpoint.map(|seq| format!("line {seq}")).as_deref())
        .with_some("fault", result.fault.as_ref().map(|fault| fault.what.as_str()))
        .text()
}
