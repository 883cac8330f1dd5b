//! The same enrollments with the issuers' keys sealed, and in SoftHSM, whose sessions' processes count as the server's.

use crate::launch::Variable;
use crate::load;
use crate::plane::Plane;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Error = Box<dyn std::error::Error>;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "5678";
/// Each kind is measured so often, by turns; the best counts.
const TURNS: usize = 3;

struct Token {
    dir: tempfile::TempDir,
}

impl Token {
    /// None where SoftHSM is not installed.
    fn new() -> Result<Option<Self>, Error> {
        if !Path::new(MODULE).exists() {
            return Ok(None);
        }
        let token = Self { dir: tempfile::Builder::new().prefix("enlist-bench-hsm").tempdir()? };
        let tokens = token.path("tokens");
        std::fs::create_dir(&tokens)?;
        std::fs::write(
            token.path("conf"),
            format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()),
        )?;
        std::fs::write(token.path("pin"), PIN)?;
        std::fs::set_permissions(token.path("pin"), std::fs::Permissions::from_mode(0o600))?;
        let made = Command::new("softhsm2-util")
            .args(["--init-token", "--free", "--label", "bench", "--so-pin", "1234", "--pin", PIN])
            .envs(token.environment())
            .stdout(Stdio::null())
            .status()?;
        if made.success() { Ok(Some(token)) } else { Err("softhsm2-util failed".into()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn environment(&self) -> Vec<Variable> {
        vec![("SOFTHSM2_CONF", self.path("conf").display().to_string())]
    }

    fn flags(&self) -> Vec<String> {
        let pin = format!("file:{}", self.path("pin").display());
        let flags = ["--issuer", "pkcs11", "--pkcs11-module", MODULE, "--pkcs11-token", "bench"];
        let more = ["--pkcs11-key", "bench", "--pkcs11-pin", &pin];
        flags.into_iter().chain(more).map(str::to_owned).collect()
    }
}

pub async fn compare(rounds: usize, clients: usize) -> Result<(), Error> {
    println!(
        "\n## The issuers' keys sealed, and in SoftHSM (CPU of the server and of its sessions), {clients} clients\n"
    );
    let Some(token) = Token::new()? else {
        println!("(skipped: SoftHSM is not installed)");
        return Ok(());
    };
    println!("| keys | enrollments | durable/s | server CPU µs each | × sealed |\n|---|---|---|---|---|");
    let sealed = (vec!["--issuer".to_owned(), "sealed".to_owned()], Vec::new());
    let kinds = [("sealed", sealed), ("pkcs11", (token.flags(), token.environment()))];
    let mut best = [(f64::MAX, 0.0); 2];
    for _ in 0..TURNS {
        for ((_, (flags, environment)), best) in kinds.iter().zip(&mut best) {
            let plane = Plane::start_with(None, flags, environment)?;
            let run = load::run_on(plane, rounds, clients).await?;
            let each = run.cpu.as_secs_f64() * 1e6 / rounds as f64;
            if each < best.0 {
                *best = (each, rounds as f64 / run.wall.as_secs_f64());
            }
        }
    }
    let [(base, _), _] = best;
    for ((name, _), (each, rate)) in kinds.iter().zip(best) {
        println!("| {name} | {rounds} | {rate:.0} | {each:.0} | {:.2} |", each / base);
    }
    Ok(())
}
