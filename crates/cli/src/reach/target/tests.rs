use super::*;
use api::rest::one_or_more::OneOrMore;
use clap::{Args, FromArgMatches};

fn chosen(flags: &[&str], variables: &[(&str, &str)], saved: Contexts) -> Result<ChosenTarget, CommandError> {
    let command = Reach::augment_args(clap::Command::new("x"));
    let matches = command.try_get_matches_from([&["x"], flags].concat()).unwrap();
    let reach = Reach::from_arg_matches(&matches).unwrap();
    let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
    choose(&reach, &lookup, &|| Ok(saved.clone()))
}

/// Without a saved context.
fn check(flags: &[&str], variables: &[(&str, &str)], expected: Option<Target>) {
    let found = chosen(flags, variables, Contexts::default());
    assert_eq!(found.ok().map(|chosen| chosen.target), expected, "{flags:?} {variables:?}");
}

/// With contexts `far` (current), `near` and `half`, which lacks its credentials.
fn check_saved(flags: &[&str], variables: &[(&str, &str)], expected: Result<(Target, &str), &str>) {
    let found = chosen(flags, variables, contexts());
    let found = found.as_ref().map(|chosen| (chosen.target.clone(), chosen.by.as_str()));
    assert_eq!(found.map_err(CommandError::code), expected, "{flags:?} {variables:?}");
}

fn contexts() -> Contexts {
    let server = || Context {
        server: OneOrMore::One("https://cp".to_owned()),
        ca: Some("ca.pem".into()),
        ..Context::default()
    };
    let far = Context { cert: Some("c.pem".into()), key: Some("k.pem".into()), ..server() };
    let near = Context { dir: Some("/near".into()), ..Context::default() };
    let saved = [("far", far), ("near", near), ("half", server())];
    let contexts = saved.into_iter().map(|(name, context)| (name.to_owned(), context)).collect();
    Contexts { current: Some("far".to_owned()), contexts }
}

fn socket(path: &str) -> Option<Target> {
    Some(Target::Socket(PathBuf::from(path)))
}

fn remote(credential: OperatorCredential) -> Option<Target> {
    Some(server_with(Some(credential)))
}

fn server_with(credential: Option<OperatorCredential>) -> Target {
    Target::Server {
        servers: vec!["https://cp".to_owned()],
        server_trust: ServerTrust::Ca("ca.pem".into()),
        credential,
    }
}

fn certificate() -> OperatorCredential {
    OperatorCredential::Certificate { cert: "c.pem".into(), key: "k.pem".into() }
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
    check(&[], &[server, ca, ("ENLIST_API_KEY_FILE", "a")], remote(OperatorCredential::ApiKey("a".into())));
    check(&["--api-key-file", "a"], &[server, ca, cert, key], remote(OperatorCredential::ApiKey("a".into())));
    check(
        &["--cert", "c.pem", "--key", "k.pem"],
        &[server, ca, ("ENLIST_API_KEY_FILE", "a")],
        remote(certificate()),
    );
    for incomplete in [&[server, ca, cert][..], &[server, ca, key], &[server, cert, key]] {
        check(&[], incomplete, None);
    }
    // For what everybody may ask; `Reach::open` refuses it for the rest.
    check(&[], &[server, ca], Some(server_with(None)));
    let refused = Reach::default().open(&server_with(None)).err();
    assert!(refused.is_some_and(|refused| refused.message() == Some("no operator credential is given")));
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
    let key = |file: &str| remote(OperatorCredential::ApiKey(file.into())).unwrap();
    let own = || remote(certificate()).unwrap();
    check_saved(&["--api-key-file", "a"], &[], Ok((key("a"), "current")));
    check_saved(&["--api-key-file", "a", "--context", "half"], &[], Ok((key("a"), "--context")));
    // Variables do not: what is in the environment may belong to another control plane.
    check_saved(&[], &[("ENLIST_API_KEY_FILE", "a")], Ok((own(), "current")));
    check_saved(&["--context", "far"], &[("ENLIST_API_KEY_FILE", "a")], Ok((own(), "--context")));
    let half = server_with(None);
    check_saved(&["--context", "half"], &[("ENLIST_API_KEY_FILE", "a")], Ok((half, "--context")));
    // A certificate and its key come from the same source.
    check_saved(&["--cert", "d.pem"], &[], Err("usage"));
    let Target::Server { servers, credential, .. } = own() else { unreachable!() };
    let pinned = Target::Server { servers, server_trust: ServerTrust::Pin("p".to_owned()), credential };
    check_saved(&["--ca-pin", "p"], &[], Ok((pinned, "current")));
}

#[test]
fn saved_contexts_are_not_read_where_none_can_be_meant() {
    let reach = Reach { dir: Some("/d".into()), ..Reach::default() };
    let damaged = || Err(CommandError::fault("damaged", ""));
    assert!(choose(&reach, &|_| None, &damaged).is_ok());
    assert!(choose(&Reach::default(), &|name| (name == "ENLIST_DIR").then(|| "/e".into()), &damaged).is_ok());
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
