//! `doctor`: what is wrong with this host, and what to do about it. Works beside the daemon and without one, changes
//! nothing, and sends nothing that is secret: what it asks of a server is whether it lives.

mod check;
mod local;
mod network;
mod recovery;
mod subject;

use lifecycle::host::Class;

use crate::cli::DoctorArgs;
use crate::config::Environment;
pub use check::{Check, Diagnosis};
use subject::Subject;

/// Every check by itself, those that wait for others all at once.
pub async fn examine(args: &DoctorArgs, environment: &Environment) -> Diagnosis {
    let subject = Subject::read(&args.place.path(environment), environment);
    let (network, recovery) = tokio::join!(network::examine(&subject), recovery::examine(&subject));
    let mut checks = network;
    checks.extend([local::disk(&subject), local::permissions(&subject), local::expiry(&subject), recovery]);
    checks.extend(local::config(&subject));
    checks.extend(local::identity(&subject));
    blame_the_clock(&mut checks);
    Diagnosis::of(checks)
}

/// With a wrong clock, what depends on dates says nothing of its own.
fn blame_the_clock(checks: &mut [Check]) {
    let skewed = |check: &Check| check.name == "clock" && check.class == Some(Class::ClockSkew.as_str());
    let Some(remedy) = checks.iter().find(|check| skewed(check)).map(|check| check.remedy.clone()) else {
        return;
    };
    for check in checks.iter_mut().filter(|check| !check.ok && check.by_dates) {
        check.class = Some(Class::ClockSkew.as_str());
        check.evidence.push_str("; but by a clock that may be wrong");
        check.remedy.clone_from(&remedy);
    }
}
