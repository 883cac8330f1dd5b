//! Machines that all boot at once, against one control plane beside them on this machine.
//!
//! `cargo run --release -p enlist --example storm -- [--machines N] [--api pact|native] [--issuer
//! sealed|ephemeral] [--document BYTES] [--no-restart]`, after
//! `cargo build --release --bin enlist`. Each machine is registered by its hardware in a batch, makes a key and a request, enrolls,
//! connects with its certificate, reads its configuration and stays on a stream. Then the control plane is killed and
//! started again, and all of them come back as hosts do: with a pause that chance and the number of failures decide.
//! Beside it, in the same run, the floor: the same machines against a server that does the cryptography and nothing else.
//!
//! Prints Markdown. Nothing is asserted about time; a machine that is not active and streaming with its configuration in
//! the end fails the run.

#[path = "../../benches/enrollment/framing.rs"]
mod framing;
#[path = "../../benches/enrollment/launch.rs"]
mod launch;
#[path = "../../benches/enrollment/usage.rs"]
mod usage;

mod arguments;
mod bare;
mod control_plane;
mod fleet;
mod machine;
mod native;
mod pact;
mod report;
mod transport;

use arguments::Arguments;
use control_plane::ControlPlane;
use fleet::Fleet;
use framing::Error;
use report::{Cost, Meter};
use std::time::{Duration, Instant};

/// The longest that everything may take before the run is given up: no measure of speed, only the end of a run that hangs.
pub const GIVE_UP: Duration = Duration::from_secs(900);

fn main() -> Result<(), Error> {
    let arguments = Arguments::read()?;
    open_many_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if arguments.bare {
        return runtime.block_on(bare::serve());
    }
    runtime.block_on(async {
        let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            result = run(&arguments) => result,
            () = tokio::time::sleep(GIVE_UP) => Err("the run took too long".into()),
            _ = stop.recv() => Err("stopped".into()),
            _ = tokio::signal::ctrl_c() => Err("stopped".into()),
        }
    })
}

async fn run(arguments: &Arguments) -> Result<(), Error> {
    let count = arguments.machines;
    println!(
        "## {count} machines at once, {} API, a document of {} bytes\n",
        arguments.api.name(),
        arguments.document
    );
    let floor = bare::measure(count, arguments.document).await?;
    let mut plane = ControlPlane::start(&arguments.issuer)?;
    let registered = plane.register(count)?;
    println!("Registered by batch in {:.1} s.\n", registered.as_secs_f64());
    let mut fleet = Fleet::new(&plane, arguments)?;
    let before = plane.memory();

    let meter = Meter::begin(plane.process());
    fleet.boot().await;
    let boot = meter.end();
    let (after, peak) = (plane.memory(), plane.peak_memory());
    report::boot(&floor, &boot, count);
    report::memory(&floor, before, after, peak, count);
    report::attempts(fleet.tally());
    settled(&plane, &mut fleet, arguments).await?;

    if arguments.restart {
        fleet.expect_loss();
        plane.kill()?;
        let began = Instant::now();
        let serving = plane.start_again()?;
        let (meter, before) = (Meter::begin(plane.process()), plane.memory());
        fleet.all_back().await;
        let back = Cost { wall: began.elapsed(), ..meter.end() };
        report::reconnect(serving, &back, (before, plane.memory()), count);
        report::attempts(fleet.tally());
        settled(&plane, &mut fleet, arguments).await?;
    }
    println!("{} machines active and streaming.", fleet.streaming());
    Ok(())
}

/// That all are active for the registry, and are there: a new document reaches every one.
async fn settled(plane: &ControlPlane, fleet: &mut Fleet, arguments: &Arguments) -> Result<(), Error> {
    plane.check_active(arguments.machines)?;
    let last = fleet.configure(plane, arguments.document).await?;
    println!("All are active. A new document was on the last of them after {:.2} s.\n", last.as_secs_f64());
    Ok(())
}

/// As many as this process may have; what it starts may then have them too.
fn open_many_files() -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
