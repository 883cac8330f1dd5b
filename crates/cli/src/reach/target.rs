//! Choosing among what flags, environment and saved contexts say. Pure, so that every precedence is a test.

use super::{DEFAULT_DIR, Reach};
use crate::context::saved::{Context, Contexts};
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

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// A flag, or a variable: its name.
    Setting(&'static str),
    /// A saved context, named by a flag or a variable, or the current one.
    Context { name: String, named_by: Option<&'static str> },
    /// Nothing was said.
    Default,
}

impl By {
    pub fn context(&self) -> Option<&str> {
        match self {
            By::Context { name, .. } => Some(name),
            By::Setting(_) | By::Default => None,
        }
    }

    /// As people and programs read it.
    pub fn word(&self) -> &'static str {
        match self {
            By::Setting(setting) | By::Context { named_by: Some(setting), .. } => setting,
            By::Context { named_by: None, .. } => "current",
            By::Default => "default",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub way: Way,
    pub by: By,
}

pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;
/// Read only where a context may be needed: a damaged file must not be in the way of whoever says `--dir`.
pub type Saved<'a> = &'a dyn Fn() -> Result<Contexts, Failure>;

const CONTEXT: &str = "ENLIST_CONTEXT";
/// In the order in which they count.
const PLACES: [&str; 3] = ["ENLIST_SOCKET", "ENLIST_DIR", "ENLIST_SERVER"];

/// Flags, then variables, then the current context, then the usual place. Any flag beats any variable: whoever types
/// one means it.
pub fn choose(flags: &Reach, variables: Variables<'_>, saved: Saved<'_>) -> Result<Chosen, Failure> {
    if let Some(chosen) = by_flag(flags, variables, saved)? {
        return Ok(chosen);
    }
    let place = PLACES.into_iter().find_map(|name| variables(name).map(|value| (name, value)));
    match (place, text(CONTEXT, variables)?) {
        (Some((place, _)), Some(_)) => {
            let message = format!("{CONTEXT} and {place} both say where the control plane is");
            Err(Failure::usage(
                message,
                format!("unset one of them, or give --context or {}", flag_of(place)),
            ))
        }
        (Some((name, value)), None) => {
            let way = match name {
                "ENLIST_SOCKET" => Way::Socket(value.into()),
                "ENLIST_DIR" => in_dir(Path::new(&value)),
                _ => server(text(name, variables)?.unwrap_or_default(), flags, variables, None)?,
            };
            Ok(Chosen { way, by: By::Setting(name) })
        }
        (None, Some(name)) => named(name, CONTEXT, flags, saved),
        (None, None) => current(flags, saved),
    }
}

fn by_flag(flags: &Reach, variables: Variables<'_>, saved: Saved<'_>) -> Result<Option<Chosen>, Failure> {
    let (way, flag) = match (&flags.socket, &flags.dir, &flags.server, &flags.context) {
        (None, None, None, None) => return Ok(None),
        (Some(socket), None, None, None) => (Way::Socket(socket.clone()), "--socket"),
        (None, Some(dir), None, None) => (in_dir(dir), "--dir"),
        (None, None, Some(url), None) => (server(url.clone(), flags, variables, None)?, "--server"),
        (None, None, None, Some(name)) => return named(name.clone(), "--context", flags, saved).map(Some),
        _ => {
            let message = "--socket, --dir, --server and --context each say where the control plane is";
            return Err(Failure::usage(message, "give one of them"));
        }
    };
    Ok(Some(Chosen { way, by: By::Setting(flag) }))
}

/// A context that somebody named counts as it is: only flags take the place of what it says.
fn named(name: String, by: &'static str, flags: &Reach, saved: Saved<'_>) -> Result<Chosen, Failure> {
    let way = of_context(saved()?.get(&name)?, flags).map_err(|failure| failure.in_context(&name))?;
    Ok(Chosen { way, by: By::Context { name, named_by: Some(by) } })
}

/// Credentials in variables belong to the server in a variable: beside a saved context they would be sent elsewhere.
fn current(flags: &Reach, saved: Saved<'_>) -> Result<Chosen, Failure> {
    let contexts = saved()?;
    let Some(name) = contexts.current.clone() else {
        return Ok(Chosen { way: in_dir(Path::new(DEFAULT_DIR)), by: By::Default });
    };
    let way = of_context(contexts.get(&name)?, flags).map_err(|failure| failure.in_context(&name))?;
    Ok(Chosen { way, by: By::Context { name, named_by: None } })
}

/// What a context leads to.
pub fn of_context(context: &Context, flags: &Reach) -> Result<Way, Failure> {
    match (&context.socket, &context.dir, &context.server) {
        (Some(socket), None, None) => Ok(Way::Socket(socket.clone())),
        (None, Some(dir), None) => Ok(in_dir(dir)),
        (None, None, Some(url)) => server(url.clone(), flags, &|_| None, Some(context)),
        _ => Err(Failure::usage(
            "a context says where the control plane is by one of server, dir and socket",
            "give one of them",
        )),
    }
}

fn in_dir(dir: &Path) -> Way {
    Way::Socket(dir.join("operator.sock"))
}

fn flag_of(variable: &str) -> &'static str {
    match variable {
        "ENLIST_SOCKET" => "--socket",
        "ENLIST_DIR" => "--dir",
        _ => "--server",
    }
}

fn text(name: &str, variables: Variables<'_>) -> Result<Option<String>, Failure> {
    let unreadable = |_| Failure::usage(format!("{name} is not UTF-8"), "set it to text, or unset it");
    variables(name).map(OsString::into_string).transpose().map_err(unreadable)
}

fn server(
    url: String,
    flags: &Reach,
    variables: Variables<'_>,
    context: Option<&Context>,
) -> Result<Way, Failure> {
    let recognition = recognition(flags, variables, context)?;
    Ok(Way::Server { url, recognition, proof: proof(flags, variables, context)? })
}

fn recognition(
    flags: &Reach,
    variables: Variables<'_>,
    context: Option<&Context>,
) -> Result<Recognition, Failure> {
    let one_of = |ca: Option<&PathBuf>, pin: Option<&String>, names: &str| match (ca, pin) {
        (Some(_), Some(_)) => Err(Failure::usage(format!("{names} are both given"), "give one of them")),
        (Some(ca), None) => Ok(Some(Recognition::Ca(ca.clone()))),
        (None, Some(pin)) => Ok(Some(Recognition::Pin(pin.clone()))),
        (None, None) => Ok(None),
    };
    if let Some(given) = one_of(flags.ca.as_ref(), flags.ca_pin.as_ref(), "--ca and --ca-pin")? {
        return Ok(given);
    }
    if let Some(ca) = variables("ENLIST_CA") {
        return Ok(Recognition::Ca(ca.into()));
    }
    let saved = context.map(|context| one_of(context.ca.as_ref(), context.ca_pin.as_ref(), "ca and ca_pin"));
    saved.transpose()?.flatten().ok_or_else(|| {
        let message = "nothing says how to verify the control plane's certificate";
        Failure::usage(message, "give --ca FILE (its ca/bundle.pem) or --ca-pin PIN")
    })
}

/// What one source says of who we are.
#[derive(Default)]
struct Papers {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    api_key: Option<PathBuf>,
}

impl Papers {
    fn is_empty(&self) -> bool {
        self.cert.is_none() && self.key.is_none() && self.api_key.is_none()
    }
}

fn proof(flags: &Reach, variables: Variables<'_>, context: Option<&Context>) -> Result<Proof, Failure> {
    let path = |name: &str| variables(name).map(PathBuf::from);
    let mut given =
        Papers { cert: flags.cert.clone(), key: flags.key.clone(), api_key: flags.api_key_file.clone() };
    if given.api_key.is_none() {
        // A variable completes a flag: one names the certificate, the other its key.
        let any = given.is_empty();
        given.cert = given.cert.or_else(|| path("ENLIST_CERT"));
        given.key = given.key.or_else(|| path("ENLIST_KEY"));
        given.api_key = path("ENLIST_API_KEY_FILE").filter(|_| any);
    }
    if let Some(context) = context.filter(|_| given.is_empty()) {
        let Context { cert, key, api_key_file, .. } = context.clone();
        given = Papers { cert, key, api_key: api_key_file };
    }
    match (given.cert, given.key, given.api_key) {
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
        let way = reach.and_then(|reach| choose(&reach, &lookup, &|| Ok(Contexts::default())).ok());
        assert_eq!(way.map(|chosen| chosen.way), expected, "{flags:?} {variables:?}");
    }

    /// With contexts `far` (current), `near` and `half`, which lacks its credentials.
    fn check_saved(flags: &[&str], variables: &[(&str, &str)], expected: Result<(Way, &str), &str>) {
        use clap::{Args, FromArgMatches};
        let command = Reach::augment_args(clap::Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], flags].concat()).unwrap();
        let reach = Reach::from_arg_matches(&matches).unwrap();
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let found = choose(&reach, &lookup, &|| Ok(contexts()));
        let found = found.as_ref().map(|chosen| (chosen.way.clone(), chosen.by.word()));
        assert_eq!(found.map_err(Failure::code), expected, "{flags:?} {variables:?}");
    }

    fn contexts() -> Contexts {
        let server = || Context {
            server: Some("https://cp".to_owned()),
            ca: Some("ca.pem".into()),
            ..Context::default()
        };
        let far = Context { cert: Some("c.pem".into()), key: Some("k.pem".into()), ..server() };
        let near = Context { dir: Some("/near".into()), ..Context::default() };
        let saved = [("far", far), ("near", near), ("half", server())];
        let contexts = saved.into_iter().map(|(name, context)| (name.to_owned(), context)).collect();
        Contexts { current: Some("far".to_owned()), contexts }
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
    fn the_current_context_comes_after_flags_and_variables() {
        let far = || remote(certificate()).unwrap();
        let at = |path: &str| socket(path).unwrap();
        check_saved(&[], &[], Ok((far(), "current")));
        check_saved(&["--dir", "/d"], &[], Ok((at("/d/operator.sock"), "--dir")));
        check_saved(&["--socket", "/s"], &[("ENLIST_CONTEXT", "near")], Ok((at("/s"), "--socket")));
        check_saved(&[], &[("ENLIST_DIR", "/e")], Ok((at("/e/operator.sock"), "ENLIST_DIR")));
        check_saved(&[], &[("ENLIST_SOCKET", "/t")], Ok((at("/t"), "ENLIST_SOCKET")));
        // A server that is named by flag or variable takes nothing from a context.
        check_saved(&["--server", "https://cp"], &[], Err("usage"));
        check_saved(&[], &[("ENLIST_SERVER", "https://cp")], Err("usage"));
    }

    #[test]
    fn a_context_can_be_named_for_one_command() {
        let near = || socket("/near/operator.sock").unwrap();
        check_saved(&["--context", "near"], &[], Ok((near(), "--context")));
        check_saved(&[], &[("ENLIST_CONTEXT", "near")], Ok((near(), "ENLIST_CONTEXT")));
        check_saved(&["--context", "near"], &[("ENLIST_DIR", "/e")], Ok((near(), "--context")));
        check_saved(&["--context", "near"], &[("ENLIST_CONTEXT", "far")], Ok((near(), "--context")));
        check_saved(&["--context", "none"], &[], Err("context_not_found"));
        check_saved(&[], &[("ENLIST_CONTEXT", "none")], Err("context_not_found"));
    }

    #[test]
    fn two_places_at_once_are_refused() {
        check_saved(&["--context", "near", "--dir", "/d"], &[], Err("usage"));
        check_saved(&["--context", "far", "--server", "https://cp"], &[], Err("usage"));
        check_saved(&[], &[("ENLIST_CONTEXT", "near"), ("ENLIST_DIR", "/e")], Err("usage"));
    }

    #[test]
    fn credentials_beside_a_context_take_the_place_of_its_own() {
        let key = |file: &str| remote(Proof::ApiKey(file.into())).unwrap();
        let own = || remote(certificate()).unwrap();
        check_saved(&["--api-key-file", "a"], &[], Ok((key("a"), "current")));
        check_saved(&["--api-key-file", "a", "--context", "half"], &[], Ok((key("a"), "--context")));
        // Variables do not: what is in the environment may belong to another control plane.
        check_saved(&[], &[("ENLIST_API_KEY_FILE", "a")], Ok((own(), "current")));
        check_saved(&["--context", "far"], &[("ENLIST_API_KEY_FILE", "a")], Ok((own(), "--context")));
        check_saved(&["--context", "half"], &[("ENLIST_API_KEY_FILE", "a")], Err("usage"));
        // A certificate and its key come from the same source.
        check_saved(&["--cert", "d.pem"], &[], Err("usage"));
        let Way::Server { url, proof, .. } = own() else { unreachable!() };
        let pinned = Way::Server { url, recognition: Recognition::Pin("p".to_owned()), proof };
        check_saved(&["--ca-pin", "p"], &[], Ok((pinned, "current")));
    }

    #[test]
    fn saved_contexts_are_not_read_where_none_can_be_meant() {
        let reach = Reach { dir: Some("/d".into()), ..Reach::default() };
        let damaged = || Err(Failure::fault("damaged", ""));
        assert!(choose(&reach, &|_| None, &damaged).is_ok());
        assert!(
            choose(&Reach::default(), &|name| (name == "ENLIST_DIR").then(|| "/e".into()), &damaged).is_ok()
        );
        assert!(choose(&Reach::default(), &|_| None, &damaged).is_err());
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
