//! `enlist ca roll abandon`: a roll is given up, and what its root key has signed meanwhile is not forgotten.

use crate::confirm::ConfirmFlag;
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::screen::Screen;
use crate::shell;
use api::rest::ca::{AbandonRollRequest, AbandonedRoll, Ca, Roll};
use client::rest::Path;
use serde::Serialize;

/// What is reported of a roll that was given up.
#[derive(Serialize)]
struct GivenUp {
    #[serde(flatten)]
    abandoned: AbandonedRoll,
    /// What must not be kept, if the roll had a new root.
    #[serde(skip_serializing_if = "Option::is_none")]
    destroy: Option<&'static str>,
    /// Commands that deny the cross-certificate of the new root, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
}

const DESTROY: &str =
    "the key of the new root (--new-root-key-out of `enlist ca sign-root`) and every copy of it";

const CERTIFIED: &str = "the new root is trusted by nobody, but the old root has certified it: whoever has the new root's key and the \
    cross-certificate can impersonate the control plane to hosts";
const MAY_BE_CERTIFIED: &str = "the new root is trusted by nobody, but if `enlist ca sign-root` was run for this roll, the old root has certified it: \
    whoever has the new root's key and the cross-certificate can impersonate the control plane to hosts";
const DENY: &str = "deny the cross-certificate too, because a copy of that key may be left";
const RECIPE: &str = "CERTIFICATES stands for the file that sign-root wrote, whose second certificate it is, FILE for the old root's key and \
    certificate; sign-crl runs where that key is, the others at the control plane:";

pub async fn run(confirm: &ConfirmFlag, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let before: Roll = operator.get(&Path::new("/v1/ca/roll")).await?;
    let path = Path::new("/v1/ca/roll/abandon");
    let abandoned: AbandonedRoll = match operator.post(&path, &AbandonRollRequest::default()).await {
        Ok(abandoned) => abandoned,
        Err(refused) => {
            confirm.or_ask(refused, output)?;
            let known: Roll = operator.get(&Path::new("/v1/ca/roll")).await?;
            operator.post(&path, &AbandonRollRequest { confirm: known.issuer }).await?
        }
    };
    let is_root = before.new_root && before.stage != "retiring";
    let next = if is_root {
        let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
        let above = abandoned.certified_root.as_ref().and_then(|root| root.certified_by.clone());
        let above = above.unwrap_or_else(|| ca.root.fingerprint.clone());
        commands(reach, ca.lists.iter().any(|list| list.root == above))
    } else {
        Vec::new()
    };
    let given_up = GivenUp { abandoned, destroy: is_root.then_some(DESTROY), next };
    output.document(&given_up, |given_up| text(given_up, output.screen()))
}

/// From the cross-certificate to the list on record; with what the list of before denies, if there is one.
fn commands(reach: &Reach, is_listed: bool) -> Vec<String> {
    let program = shell::program();
    let cross = "awk '/BEGIN CERTIFICATE/ { n++ } n == 2' CERTIFICATES > cross.pem".to_owned();
    let export = shell::same_target(reach, "ca crl --roots > on-record.pem");
    let previous = if is_listed { "--previous on-record.pem " } else { "" };
    let sign = format!(
        "{program} ca sign-crl --root-key FILE --root-cert FILE {previous}--issuer cross.pem --out denied.pem"
    );
    let import = shell::same_target(reach, "ca import-crl --file denied.pem");
    let all = [(true, cross), (is_listed, export), (true, sign), (true, import)];
    all.into_iter().filter(|(needed, _)| *needed).map(|(_, command)| command).collect()
}

fn text(given_up: &GivenUp, screen: Screen) -> String {
    let said = "the roll is given up; what was active stays active\n".to_owned();
    let Some(destroy) = given_up.destroy else { return said };
    let (why, deny) = match &given_up.abandoned.certified_root {
        Some(root) => (CERTIFIED, format!("{DENY}, serial {}", root.cross_certificate.serial)),
        None => (MAY_BE_CERTIFIED, DENY.to_owned()),
    };
    let words = format!("{why}\ndestroy {destroy}; {deny}\n{RECIPE}\n");
    let commands: String = given_up.next.iter().map(|line| shell::paragraph(line, screen)).collect();
    format!("{said}{}{commands}", screen.hang(0, 0, &words))
}
