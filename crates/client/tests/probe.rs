//! A probe tells a wrong clock from a wrong chain, and tells the server nothing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use client::unreachable::Distrust;
use client::{Error, ServerUrl, Trust, Unreachable, probe};
use lifecycle::names::{Span, Timestamp};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use world::authority::{Authority, Dates};
use world::server;

fn days_ago(days: u64) -> Timestamp {
    let now = Timestamp::from_secs(UNIX_EPOCH.elapsed().unwrap().as_secs());
    now.minus(Span::from_days(days))
}

/// As a server writes it; nobody looks at the day of the week.
fn answer(at: Timestamp) -> String {
    let text = at.to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.get(part(5, 7).parse::<usize>().unwrap() - 1).unwrap();
    let date = format!("Mon, {} {month} {} {} GMT", part(8, 10), part(0, 4), part(11, 19));
    format!("HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-length: 2\r\n\r\nok")
}

fn distrusted(probed: Result<probe::ServerDate, Error>) -> Distrust {
    match probed {
        Err(Error::Unreachable { cause: Unreachable::Untrusted(distrust), .. }) => distrust,
        other => panic!("not a question of trust: {other:?}"),
    }
}

#[tokio::test]
async fn a_chain_that_was_good_then_gives_its_date_and_says_whether_it_fits() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Past);
    let trust = Trust::cas(vec![root.der.clone()]);
    for (ago, fits) in [(2, true), (0, false)] {
        let at = days_ago(ago);
        let url = server::answers(server::config(&leaf, &[]), answer(at)).await;
        let seen = probe::date(&url, &trust).await.unwrap();
        assert_eq!((seen.date, seen.in_date), (at, fits));
    }
}

#[tokio::test]
async fn chain_name_and_use_count_as_always() {
    let (root, other) = (Authority::root(Dates::Now), Authority::root(Dates::Now));
    let leaf = root.server(&["localhost"], Dates::Past);
    let url = server::answers(server::config(&leaf, &[]), answer(days_ago(2))).await;
    let stranger = Trust::cas(vec![other.der.clone()]);
    assert_ne!(distrusted(probe::date(&url, &stranger).await), Distrust::Expired);
    let by_address = ServerUrl::parse(&format!("https://127.0.0.1:{}", url.port())).unwrap();
    let trust = Trust::cas(vec![root.der.clone()]);
    assert_eq!(distrusted(probe::date(&by_address, &trust).await), Distrust::WrongName);
    let client = root.client();
    let url = server::answers(server::config(&client, &[]), answer(days_ago(0))).await;
    distrusted(probe::date(&url, &trust).await);
}

#[tokio::test]
async fn nothing_is_said_but_the_question() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = heard.clone();
    let url = server::serve(server::config(&leaf, &[]), move |mut stream| {
        let ears = ears.clone();
        async move {
            assert!(stream.get_ref().1.peer_certificates().is_none());
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            request.truncate(length);
            ears.lock().unwrap().push(String::from_utf8(request).unwrap());
            stream.write_all(answer(days_ago(0)).as_bytes()).await.unwrap();
        }
    })
    .await;
    probe::date(&url, &Trust::cas(vec![root.der.clone()])).await.unwrap();
    let expected = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", url.authority());
    assert_eq!(*heard.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn an_endless_head_or_none_is_no_date() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let trust = Trust::cas(vec![root.der.clone()]);
    for text in [format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(100_000)), "<html>".to_owned()] {
        let url = server::answers(server::config(&leaf, &[]), text).await;
        let probed = probe::date(&url, &trust).await;
        assert!(matches!(probed, Err(Error::Unreachable { .. })), "{probed:?}");
    }
}
