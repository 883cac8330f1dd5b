//! `doctor`: what is wrong with this host, and what to do about it. Works beside the daemon and without one, changes
//! nothing, and sends nothing that is secret: it asks every server whether it is alive, and whether it accepts this
//! host's certificate, which is no sign of life.

mod cause;
mod check;
mod diagnosis;
mod hardware;
mod identity;
mod local;
mod network;
mod overlay;
mod preflight;
mod recovery;
mod resolution;
mod spire;
mod storage;
mod subject;

use crate::cli::DoctorArgs;
use crate::config::Environment;
use crate::fault::Fault;
pub use check::Check;
pub use diagnosis::Diagnosis;
use subject::DoctorSubject;

/// Every check by itself, those that wait for others all at once.
pub async fn examine(args: &DoctorArgs, environment: &Environment) -> Result<Diagnosis, Fault> {
    let dir = args.place.path(environment);
    if args.reach.is_given() {
        return preflight::examine(args, &dir, environment).await;
    }
    if let Some(closed) = local::closed_to_this_user(&dir) {
        return Ok(Diagnosis::of(closed));
    }
    let subject = DoctorSubject::read(&dir, environment);
    let ((mut checks, asked), recovery, identity, svid) = tokio::join!(
        network::examine(&subject),
        recovery::examine(&subject),
        identity::examine(&subject),
        spire::examine(&subject)
    );
    let expiry = local::expiry(&subject);
    // Where the renewal is overdue, that warning says it.
    let untended = identity::untended(&subject).filter(|_| expiry.warning.is_none());
    checks.extend([
        local::disk(&subject, local::writable),
        local::permissions(&subject),
        expiry,
        match identity.unrecoverable {
            Some(why) => Check::skipped("recovery", "identity", why),
            None => recovery.beside(&asked),
        },
    ]);
    checks.extend(hardware::examine(&subject));
    checks.extend(svid);
    checks.extend(spire::bootstrap(&subject));
    checks.extend(storage::examine(&subject));
    checks.extend(overlay::examine(&subject));
    checks.extend(local::config(&subject));
    checks.extend(identity.check.or(untended));
    cause::settle(&mut checks);
    Ok(Diagnosis::of(checks))
}
