//! What a configuration file may hold, and what is said of one that is wrong.

use super::*;
use lifecycle::registry::Door;

fn mistakes_of(text: &str) -> Vec<String> {
    let Ok((raw, mut mistakes)) = parse(text) else { return vec!["toml".to_owned()] };
    check(&raw, &mut mistakes);
    mistakes.into_iter().map(|mistake| mistake.key).collect()
}

#[test]
fn every_mistake_is_reported_at_once() {
    let text = "listen = [\"nowhere\"]\nkek = \"floppy:A\"\nadvertise = [\"http://plain\"]\ncolour = 1\n";
    let mut keys = mistakes_of(text);
    keys.sort();
    assert_eq!(keys, ["advertise", "colour", "kek", "listen"]);
}

#[test]
fn a_wrong_type_is_a_mistake_of_its_key() {
    assert_eq!(mistakes_of("listen = 8443\nkek = \"env:KEK\"\n"), ["listen"]);
}

#[test]
fn a_name_that_no_host_could_call_is_a_mistake() {
    assert_eq!(
        mistakes_of("kek = \"env:KEK\"\nnames = [\"1.2.3\", \"a b\", \"n1.example\"]\n"),
        ["names", "names"]
    );
}

#[test]
fn alerts_go_to_a_url_and_to_nothing_else() {
    let with = |alerts: &str| mistakes_of(&format!("kek = \"env:KEK\"\n{alerts}\n"));
    assert!(with("[alerts]").is_empty());
    assert!(with("[alerts]\nwebhook = \"http://127.0.0.1:9000/in\"").is_empty());
    assert_eq!(with("[alerts]\nwebhook = \"mailto:a@b\"\ncolour = 1"), ["alerts.colour", "alerts.webhook"]);
    assert_eq!(with("[alerts]\nwebhook = 3"), ["alerts.webhook"]);
    assert_eq!(with("alerts = \"http://a\""), ["alerts"]);
}

#[test]
fn all_doors_are_open_unless_some_are_named() {
    let with = |doors: &str| {
        let (raw, _) = parse(&format!("kek = \"env:KEK\"\n{doors}\n")).ok()?;
        Some(check(&raw, &mut Vec::new())?.doors.serve)
    };
    assert_eq!(with(""), Some(Door::ALL.into()));
    assert_eq!(with("[doors]\nserve = [\"plfm\"]"), Some([Door::Plfm].into()));
    assert_eq!(with("[doors]\nserve = []"), Some([].into()));
    assert_eq!(
        mistakes_of("kek = \"env:K\"\n[doors]\nserve = [\"back\"]\nshut = 1"),
        ["doors.shut", "doors.serve"]
    );
}

#[test]
fn a_server_certificate_is_brought_along_with_its_key_or_not_at_all() {
    let with = |tls: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[tls]\n{tls}\n"));
    assert!(with("").is_empty());
    assert!(with("server_cert = \"/a/s.crt\"\nserver_key = \"/a/s.key\"").is_empty());
    assert_eq!(with("server_cert = \"/a/s.crt\""), ["tls.server_key"]);
    assert_eq!(with("server_cert = \"s.crt\""), ["tls.server_cert", "tls.server_key"], "both at once");
    assert_eq!(with("server_cert = \"s.crt\"\nserver_key = \"/a/s.key\""), ["tls.server_cert"]);
    assert_eq!(with("colour = 1"), ["tls.colour"]);
}

#[test]
fn an_endpoint_profile_is_whole_or_every_mistake_in_it_is_told() {
    let with = |profile: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[endpoint_profile]\n{profile}\n"));
    let good = "id = \"east\"\napi_urls = [\"https://a.example:8443/\"]\nterminal_url = \"https://t.example\"\n\
                hosts = { \"a.example\" = \"192.0.2.7\", \"t.example\" = \"2001:db8::7\" }";
    assert!(with(good).is_empty(), "{:?}", with(good));
    assert_eq!(with(""), ["endpoint_profile.id", "endpoint_profile.api_urls"]);
    let bad = "id = \"two words\"\napi_urls = [\"http://a.example\"]\nterminal_url = \"t\"\ncolour = 1\n\
               hosts = { \"a b\" = \"192.0.2.7\", \"192.0.2.8\" = \"::1\", \"c.example\" = \"d.example\" }";
    let keys = with(bad).into_iter().map(|key| key.replace("endpoint_profile.", "")).collect::<Vec<_>>();
    assert_eq!(keys, ["colour", "id", "api_urls", "terminal_url", "hosts", "hosts", "hosts.c.example"]);
    let many = |count: usize| {
        let urls = vec!["\"https://a.example\""; count].join(",");
        let hosts = (0..count).map(|n| format!("h{n} = \"192.0.2.1\"")).collect::<Vec<_>>().join(",");
        with(&format!("id = \"x\"\napi_urls = [{urls}]\nhosts = {{ {hosts} }}"))
    };
    assert!(many(32).is_empty());
    assert_eq!(many(33), ["endpoint_profile.api_urls", "endpoint_profile.hosts"]);
    assert_eq!(with("hosts = 3").first().map(String::as_str), Some("endpoint_profile.hosts"));
}

#[test]
fn a_recovery_profile_has_a_name_an_https_url_and_certificates() {
    let with = |recovery: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[recovery]\n{recovery}\n"));
    assert!(with("").is_empty());
    assert!(with("id = \"site-a\"\nurl = \"https://recovery.example:8443\"").is_empty());
    assert_eq!(with("id = \"\"\nurl = \"http://plain\""), ["recovery.id", "recovery.url"]);
    for file in ["relative.pem", "/no/such/file.pem", "/etc/passwd"] {
        assert_eq!(with(&format!("ca_file = \"{file}\"")), ["recovery.ca_file"], "{file}");
    }
    assert_eq!(with("colour = 1"), ["recovery.colour"]);
    assert_eq!(mistakes_of("kek = \"env:KEK\"\nrecovery = 1\n"), ["recovery"]);
}

#[test]
fn a_good_configuration_has_no_mistakes() {
    assert!(
        mistakes_of("listen = [\"127.0.0.1:0\"]\nkek = \"env:KEK\"\nnames = [\"a.example\", \"::1\"]\n")
            .is_empty()
    );
}

#[test]
fn nodes_are_sent_to_a_name_before_an_address() {
    let raw = RawConfig {
        kek: Some("env:K".to_owned()),
        listen: vec!["[::]:8443".to_owned()],
        ..RawConfig::default()
    };
    let Some(mut config) = check(&raw, &mut Vec::new()) else { panic!("good configuration") };
    assert_eq!(config.server_url().as_deref(), Some("https://localhost:8443"));
    config.names = vec!["cp.example".to_owned()];
    assert_eq!(config.server_url().as_deref(), Some("https://cp.example:8443"));
    config.advertise = vec!["https://lb.example".to_owned()];
    assert_eq!(config.server_url().as_deref(), Some("https://lb.example"));
}

#[test]
fn an_address_for_all_is_called_by_the_first_name_and_any_other_by_itself() {
    let raw = RawConfig { kek: Some("env:K".to_owned()), ..RawConfig::default() };
    let Some(mut config) = check(&raw, &mut Vec::new()) else { panic!("good configuration") };
    let host = |config: &ControlPlaneConfig, bound: &str| config.host(bound.parse().expect("an address"));
    assert_eq!(host(&config, "[::]:1"), "localhost");
    for (name, expected) in [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("cp.example", "cp.example")] {
        config.names = vec![name.to_owned()];
        for all in ["[::]:1", "0.0.0.0:1"] {
            assert_eq!(host(&config, all), expected);
        }
        assert_eq!(host(&config, "127.0.0.9:1"), "127.0.0.9");
        assert_eq!(host(&config, "[::1]:1"), "[::1]");
    }
}

#[test]
fn what_is_written_is_read_again() {
    let text = "listen = [\"127.0.0.1:0\"]\nkek = \"env:KEK\"\n\n[doors]\nserve = []\n\n[recovery]\nid = \"site-a\"\n";
    let (raw, mistakes) = parse(text).expect("good");
    assert!(mistakes.is_empty());
    assert_eq!(toml::to_string(&raw).as_deref(), Ok(text));
}

#[test]
fn a_secret_is_not_shown() {
    let (raw, mut mistakes) = parse("kek = \"env:K\"\n[alerts]\nwebhook = \"ftp://hush\"\n").expect("good");
    assert!(check(&raw, &mut mistakes).is_none());
    assert!(!ConfigMistakes(mistakes).to_string().contains("hush"));
}
