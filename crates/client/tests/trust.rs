//! By what a server is recognised: every good way in, every bad one out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use client::rest::Path;
use client::unreachable::Distrust;
use client::{Error, OperatorApi, ServerUrl, Trust, Unreachable};
use pki::pin::Pin;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use std::sync::Arc;
use world::authority::{Authority, Dates};
use world::server;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Asks a server with this configuration, by this name, trusting in this way.
async fn check(config: ServerConfig, name: &str, trust: Trust) -> Result<(), Distrust> {
    let url = server::answers(config, OK).await;
    let url = ServerUrl::parse(&format!("https://{name}:{}", url.port())).unwrap();
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    match operator.text(&Path::new("/healthz")).await {
        Ok(text) => {
            assert_eq!(text, "ok");
            Ok(())
        }
        Err(Error::Unreachable { cause: Unreachable::Untrusted(distrust), .. }) => Err(distrust),
        Err(other) => panic!("neither trusted nor untrusted: {other:?}"),
    }
}

fn pin(der: &CertificateDer<'_>) -> Trust {
    Trust::pin(Pin::of(der))
}

#[tokio::test]
async fn a_pin_may_name_any_certificate_of_the_chain() {
    let root = Authority::root(Dates::Now);
    let issuer = root.intermediate("issuer");
    let leaf = issuer.server(&["localhost", "127.0.0.1"], Dates::Now);
    for pinned in [&root.der, &issuer.der, &leaf.der] {
        for name in ["localhost", "127.0.0.1"] {
            let config = server::config(&leaf, &[&issuer.der, &root.der]);
            assert_eq!(check(config, name, pin(pinned)).await, Ok(()));
        }
    }
}

#[tokio::test]
async fn a_pin_that_matches_nothing_is_no_trust() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&root.der]);
    let other = Authority::root(Dates::Now);
    assert_eq!(check(config, "localhost", pin(&other.der)).await, Err(Distrust::PinNotFound));
}

#[tokio::test]
async fn the_name_counts_unless_the_leaf_itself_is_pinned() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["elsewhere.example"], Dates::Now);
    let config = || server::config(&leaf, &[&root.der]);
    assert_eq!(check(config(), "localhost", pin(&root.der)).await, Err(Distrust::WrongName));
    assert_eq!(check(config(), "localhost", pin(&leaf.der)).await, Ok(()));
}

#[tokio::test]
async fn a_copied_root_proves_nothing() {
    let (root, other) = (Authority::root(Dates::Now), Authority::root(Dates::Now));
    let leaf = other.server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&other.der, &root.der]);
    let checked = check(config, "localhost", pin(&root.der)).await;
    // Both roots have the same name, so it is the signature that gives it away.
    assert!(checked.is_err() && checked != Err(Distrust::PinNotFound), "{checked:?}");
}

#[tokio::test]
async fn dates_count_for_the_pinned_certificate_too() {
    for (dates, expected) in [(Dates::Past, Distrust::Expired), (Dates::Future, Distrust::NotYetValid)] {
        let root = Authority::root(dates);
        let leaf = root.server(&["localhost"], Dates::Now);
        let config = server::config(&leaf, &[&root.der]);
        assert_eq!(check(config, "localhost", pin(&root.der)).await, Err(expected.clone()));

        let root = Authority::root(Dates::Now);
        let leaf = root.server(&["localhost"], dates);
        for pinned in [&root.der, &leaf.der] {
            let config = server::config(&leaf, &[&root.der]);
            assert_eq!(check(config, "localhost", pin(pinned)).await, Err(expected.clone()));
        }
    }
}

#[tokio::test]
async fn a_certificate_for_clients_is_no_servers() {
    let root = Authority::root(Dates::Now);
    let leaf = root.leaf(&["localhost"], Dates::Now, ExtendedKeyUsagePurpose::ClientAuth);
    for pinned in [&root.der, &leaf.der] {
        let config = server::config(&leaf, &[&root.der]);
        let checked = check(config, "localhost", pin(pinned)).await;
        assert!(matches!(checked, Err(Distrust::Other(_))), "{checked:?}");
    }
}

#[tokio::test]
async fn a_pinned_authority_keeps_to_its_path_length() {
    let root = Authority::root(Dates::Now);
    let issuer = root.intermediate("issuer");
    let below = issuer.intermediate("below");
    let leaf = below.server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&below.der, &issuer.der]);
    assert_eq!(check(config, "localhost", pin(&issuer.der)).await, Err(Distrust::UnknownIssuer));
}

#[tokio::test]
async fn a_pin_on_the_old_root_follows_the_cross_certificate_to_the_new_one() {
    let (old, new) = (Authority::root(Dates::Now), Authority::root(Dates::Now));
    let issuer = new.intermediate("issuer");
    let leaf = issuer.server(&["localhost"], Dates::Now);
    let cross = new.cross_certificate(&old);
    for pinned in [&old.der, &new.der, &cross] {
        let config = server::config(&leaf, &[&issuer.der, &cross, &old.der, &new.der]);
        assert_eq!(check(config, "localhost", pin(pinned)).await, Ok(()));
    }
    let config = server::config(&leaf, &[&issuer.der, &old.der, &new.der]);
    let unsigned = check(config, "localhost", pin(&old.der)).await;
    assert!(matches!(unsigned, Err(Distrust::UnknownIssuer | Distrust::Other(_))), "{unsigned:?}");
    // Self-issued certificates do not count; the path length holds for all others.
    let below = issuer.intermediate("below");
    let leaf = below.server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&below.der, &issuer.der, &cross, &old.der]);
    assert_eq!(check(config, "localhost", pin(&old.der)).await, Err(Distrust::UnknownIssuer));
}

#[tokio::test]
async fn a_pinned_leaf_vouches_for_nobody_else() {
    let root = Authority::root(Dates::Now);
    let pinned = root.server(&["localhost"], Dates::Now);
    let leaf = pinned.as_authority().server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&pinned.der]);
    assert_eq!(check(config, "localhost", pin(&pinned.der)).await, Err(Distrust::UnknownIssuer));
}

#[tokio::test]
async fn a_pinned_leaf_needs_its_key() {
    let root = Authority::root(Dates::Now);
    let (pinned, mut thief) =
        (root.server(&["localhost"], Dates::Now), root.server(&["localhost"], Dates::Now));
    thief.der = pinned.der.clone();
    // The library refuses to serve a certificate with a foreign key, so the thief brings its own resolver.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = provider.key_provider.load_private_key(thief.key.clone_key()).unwrap();
    let stolen = rustls::sign::CertifiedKey::new(vec![thief.der.clone()], key);
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(stolen)));
    let checked = check(config, "localhost", pin(&pinned.der)).await;
    assert!(matches!(checked, Err(Distrust::Other(_))), "{checked:?}");
}

#[tokio::test]
async fn a_ca_file_is_trusted_and_another_is_not() {
    let root = Authority::root(Dates::Now);
    let issuer = root.intermediate("issuer");
    let leaf = issuer.server(&["localhost"], Dates::Now);
    let config = || server::config(&leaf, &[&issuer.der, &root.der]);
    let trust = Trust::from_ca_pem(pki::pem::certificate_pem(&root.der).as_bytes()).unwrap();
    assert_eq!(check(config(), "localhost", trust.clone()).await, Ok(()));
    assert_eq!(check(config(), "127.0.0.1", trust).await, Err(Distrust::WrongName));
    let other = Trust::cas(vec![root.intermediate("other").der]);
    assert_eq!(check(config(), "localhost", other).await, Err(Distrust::UnknownIssuer));
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_is_not_trusted() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let (url, heard) = server::hears(server::config(&leaf, &[])).await;
    let trust = Trust::pin(Pin::of(b"something else"));
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    assert!(operator.text(&Path::new("/healthz")).await.is_err());
    assert_eq!(heard.await, Ok(0));
}

#[tokio::test]
async fn the_key_exchange_is_post_quantum() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let url = server::serve(server::config(&leaf, &[&root.der]), move |stream| {
        let group = stream.get_ref().1.negotiated_key_exchange_group().map(|group| group.name());
        sender.send((group, stream.get_ref().1.protocol_version())).unwrap();
        async {}
    })
    .await;
    let operator = OperatorApi::over_tls(url, &pin(&root.der), None).unwrap();
    assert!(operator.text(&Path::new("/")).await.is_err());
    let expected = (Some(rustls::NamedGroup::X25519MLKEM768), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(seen.recv().await, Some(expected));
}

#[tokio::test]
async fn an_issuer_that_its_root_denies_is_refused_whatever_is_trusted() {
    let root = Authority::root(Dates::Now);
    let (denied, good) = (root.intermediate("denied"), root.intermediate("good"));
    let leaf = denied.server(&["localhost"], Dates::Now);
    let list = root.denies(&denied.der);
    let config = || server::config(&leaf, &[&denied.der, &root.der]);
    for trust in [
        Trust::cas(vec![root.der.clone()]),
        Trust::cas(vec![denied.der.clone()]),
        Trust::cas(vec![root.der.clone(), denied.der.clone()]),
        pin(&root.der),
        pin(&denied.der),
        pin(&leaf.der),
    ] {
        assert_eq!(check(config(), "localhost", trust.clone()).await, Ok(()));
        let refused = Err(Distrust::IssuerRevoked);
        assert_eq!(check(config(), "localhost", trust.denying(list.clone())).await, refused);
    }
    let leaf = good.server(&["localhost"], Dates::Now);
    let config = server::config(&leaf, &[&good.der, &denied.der, &root.der]);
    let trust = Trust::cas(vec![root.der.clone()]).denying(list);
    assert_eq!(
        check(config, "localhost", trust).await,
        Ok(()),
        "what else a server sends is not in its path"
    );
}

#[tokio::test]
async fn a_list_is_of_the_root_that_signed_it_and_not_of_another_with_its_name() {
    let old = Authority::root(Dates::Now);
    let new = Authority::root(Dates::Now);
    let (denied, issuer) = (old.intermediate("issuer"), new.intermediate("issuer"));
    let leaf = issuer.server(&["localhost"], Dates::Now);
    let cross = new.cross_certificate(&old);
    let config = || server::config(&leaf, &[&issuer.der, &cross, &old.der, &new.der]);
    for trusted in [vec![old.der.clone()], vec![old.der.clone(), new.der.clone()], vec![new.der.clone()]] {
        let trust = Trust::cas(trusted).denying(old.denies(&denied.der));
        assert_eq!(check(config(), "localhost", trust).await, Ok(()));
    }
    // The serial alone is nobody's: it counts from the root that issued it.
    let trust = Trust::cas(vec![new.der.clone()]).denying(old.denies(&issuer.der));
    assert_eq!(check(config(), "localhost", trust).await, Ok(()));
    let trust = Trust::cas(vec![old.der.clone()]).denying(new.denies(&issuer.der));
    assert_eq!(check(config(), "localhost", trust).await, Err(Distrust::IssuerRevoked));
    // Denied is the way by the old root only.
    let trust = Trust::cas(vec![old.der.clone(), new.der.clone()]).denying(old.denies(&cross));
    assert_eq!(check(config(), "localhost", trust).await, Ok(()));
    let trust = Trust::cas(vec![old.der.clone()]).denying(old.denies(&cross));
    assert_eq!(check(config(), "localhost", trust).await, Err(Distrust::IssuerRevoked));
}
