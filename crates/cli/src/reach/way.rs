//! Choosing among what flags and environment say. Pure, so that every precedence is a test.

use super::{DEFAULT_DIR, Reach};
use crate::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How the control plane will be reached; nothing has been read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    Socket(PathBuf),
    Server { url: String, recognition: Recognition, proof: Proof },
}

/// What the control plane is recognised by. There is no trust on first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognition {
    Ca(PathBuf),
    Pin(String),
}

/// What we are recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    Certificate { cert: PathBuf, key: PathBuf },
    ApiKey(PathBuf),
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Any flag beats any variable: whoever types one means it.
pub fn choose(flags: &Reach, variables: Variables<'_>) -> Result<Way, Failure> {
    let path = |name: &str| variables(name).map(PathBuf::from);
    let in_dir = |dir: &Path| Way::Socket(dir.join("operator.sock"));
    match (&flags.socket, &flags.dir, &flags.server) {
        (None, None, None) => {}
        (Some(socket), None, None) => return Ok(Way::Socket(socket.clone())),
        (None, Some(dir), None) => return Ok(in_dir(dir)),
        (None, None, Some(url)) => return server(url.clone(), flags, variables),
        _ => {
            let message = "--socket, --dir and --server exclude each other";
            return Err(Failure::usage(message, "give one of them"));
        }
    }
    if let Some(socket) = path("ENLIST_SOCKET") {
        return Ok(Way::Socket(socket));
    }
    if let Some(dir) = path("ENLIST_DIR") {
        return Ok(in_dir(&dir));
    }
    if let Some(url) = variables("ENLIST_SERVER") {
        let url = url
            .into_string()
            .map_err(|_| Failure::usage("ENLIST_SERVER is not UTF-8", "use https://HOST:PORT"))?;
        return server(url, flags, variables);
    }
    Ok(in_dir(Path::new(DEFAULT_DIR)))
}

fn server(url: String, flags: &Reach, variables: Variables<'_>) -> Result<Way, Failure> {
    Ok(Way::Server { url, recognition: recognition(flags, variables)?, proof: proof(flags, variables)? })
}

fn recognition(flags: &Reach, variables: Variables<'_>) -> Result<Recognition, Failure> {
    match (&flags.ca, &flags.ca_pin) {
        (Some(_), Some(_)) => Err(Failure::usage("--ca and --ca-pin are both given", "give one of them")),
        (Some(ca), None) => Ok(Recognition::Ca(ca.clone())),
        (None, Some(pin)) => Ok(Recognition::Pin(pin.clone())),
        (None, None) => match variables("ENLIST_CA") {
            Some(ca) => Ok(Recognition::Ca(ca.into())),
            None => {
                let message = "no CA is given to verify the control plane";
                Err(Failure::usage(
                    message,
                    "give --ca FILE (ca/bundle.pem of its data directory) or --ca-pin PIN",
                ))
            }
        },
    }
}

fn proof(flags: &Reach, variables: Variables<'_>) -> Result<Proof, Failure> {
    let path = |name: &str| variables(name).map(PathBuf::from);
    let certificate = flags.cert.is_some() || flags.key.is_some();
    let by_variable = !certificate && flags.api_key_file.is_none();
    let api_key = flags.api_key_file.clone().or_else(|| path("ENLIST_API_KEY_FILE").filter(|_| by_variable));
    let (cert, key) = match &flags.api_key_file {
        // A key named by flag makes a certificate in the environment irrelevant.
        Some(_) => (flags.cert.clone(), flags.key.clone()),
        None => (
            flags.cert.clone().or_else(|| path("ENLIST_CERT")),
            flags.key.clone().or_else(|| path("ENLIST_KEY")),
        ),
    };
    match (cert, key, api_key) {
        (Some(cert), Some(key), None) => Ok(Proof::Certificate { cert, key }),
        (None, None, Some(file)) => Ok(Proof::ApiKey(file)),
        (None, None, None) => Err(Failure::usage(
            "no operator credential is given",
            "give --cert FILE and --key FILE, or --api-key-file FILE",
        )),
        (_, _, None) => Err(Failure::usage(
            "a certificate and its private key must be given together",
            "give both --cert and --key",
        )),
        (_, _, Some(_)) => {
            Err(Failure::usage("both a certificate and an API key are given", "give one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[&str], variables: &[(&str, &str)], expected: Option<Way>) {
        use clap::{Args, FromArgMatches};
        let command = Reach::augment_args(clap::Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], flags].concat());
        let reach = matches.ok().and_then(|matches| Reach::from_arg_matches(&matches).ok());
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let way = reach.and_then(|reach| choose(&reach, &lookup).ok());
        assert_eq!(way, expected, "{flags:?} {variables:?}");
    }

    fn socket(path: &str) -> Option<Way> {
        Some(Way::Socket(PathBuf::from(path)))
    }

    fn remote(proof: Proof) -> Option<Way> {
        Some(Way::Server {
            url: "https://cp".to_owned(),
            recognition: Recognition::Ca("ca.pem".into()),
            proof,
        })
    }

    fn certificate() -> Proof {
        Proof::Certificate { cert: "c.pem".into(), key: "k.pem".into() }
    }

    #[test]
    fn without_a_word_it_is_the_usual_place() {
        check(&[], &[], socket("/var/lib/enlist/operator.sock"));
    }

    #[test]
    fn a_flag_beats_every_variable() {
        let env = [("ENLIST_DIR", "/e"), ("ENLIST_SOCKET", "/s"), ("ENLIST_CA", "ca.pem")];
        check(&["--dir", "/d"], &env, socket("/d/operator.sock"));
        check(&["--socket", "/t"], &env, socket("/t"));
        let flags = ["--server", "https://cp", "--cert", "c.pem", "--key", "k.pem"];
        check(&flags, &env, remote(certificate()));
        check(&[], &env, socket("/s"));
    }

    #[test]
    fn a_server_needs_trust_and_proof() {
        let server = ("ENLIST_SERVER", "https://cp");
        let ca = ("ENLIST_CA", "ca.pem");
        let (cert, key) = (("ENLIST_CERT", "c.pem"), ("ENLIST_KEY", "k.pem"));
        check(&[], &[server, ca, cert, key], remote(certificate()));
        check(&[], &[server, ca, ("ENLIST_API_KEY_FILE", "a")], remote(Proof::ApiKey("a".into())));
        check(&["--api-key-file", "a"], &[server, ca, cert, key], remote(Proof::ApiKey("a".into())));
        check(
            &["--cert", "c.pem", "--key", "k.pem"],
            &[server, ca, ("ENLIST_API_KEY_FILE", "a")],
            remote(certificate()),
        );
        for incomplete in [&[server, ca][..], &[server, ca, cert], &[server, cert, key]] {
            check(&[], incomplete, None);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        check(&["--dir", "/d", "--socket", "/s"], &[], None);
        check(&["--server", "https://cp", "--ca", "a", "--ca-pin", "b", "--api-key-file", "k"], &[], None);
        check(
            &["--server", "https://cp", "--ca", "a", "--cert", "c", "--key", "k", "--api-key-file", "k"],
            &[],
            None,
        );
    }
}
