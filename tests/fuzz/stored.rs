//! What comes back from disk or from a peer: entries, snapshots, audit lines; and what it does when applied.

use super::world::{self, AT};
use journal::audit::{Footer, chain, checkpoint_of};
use journal::conformance::{
    FormatError, Image, RowFault, StoredEntry, decode_snapshot, encode_snapshot, open, seal,
};
use lifecycle::names::{Fingerprint, Span};
use lifecycle::registry::{Envelope, State, apply as apply_command, check_invariants, would_apply};
use std::io::Cursor;

/// As it is, and with a frame that fits around it, so that the decoder behind the checksum is reached.
pub fn stored_entry(data: &[u8]) {
    let _ = open::<StoredEntry>(data);
    let row = frame(data);
    match open::<StoredEntry>(&row) {
        Ok(entry) => {
            let again = seal(&entry).expect("what was read can be written");
            assert_eq!(open::<StoredEntry>(&again), Ok(entry));
        }
        Err(fault) => assert!(matches!(fault, RowFault::Undecodable(_)), "{fault}"),
    }
    if let Ok(envelope) = open::<Envelope>(&row) {
        let again = seal(&envelope).expect("what was read can be written");
        assert_eq!(open::<Envelope>(&again), Ok(envelope));
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let version = 1;
    [&[version][..], &sum(version, payload).to_le_bytes(), payload].concat()
}

fn sum(version: u8, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[version]);
    crc.update(payload);
    crc.finalize()
}

pub fn snapshot(data: &[u8]) {
    let _ = decode_snapshot(Cursor::new(data));
    let version = 1;
    let length = (data.len() as u64).to_le_bytes();
    let file = [b"enlistSN", &[version][..], &sum(version, data).to_le_bytes(), &length, data].concat();
    match decode_snapshot(Cursor::new(file)) {
        Ok(image) => {
            let _ = image.meta.to_raft();
            assert_eq!(rewritten(&image), image);
        }
        Err(fault) => assert!(matches!(fault, FormatError::Undecodable(_) | FormatError::Lengths), "{fault}"),
    }
}

fn rewritten(image: &Image) -> Image {
    let mut file = Cursor::new(Vec::new());
    encode_snapshot(image, &mut file).expect("what was read can be written");
    file.set_position(0);
    decode_snapshot(file).expect("what was written can be read")
}

/// As it is, and as the middle of a line whose hash fits.
pub fn audit_line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.split('\n').take(64) {
        read_line(line);
        let origin = chain::origin().hex();
        let body = format!(r#"{{"seq":1,{line},"prev_hash":"{origin}""#);
        let hash = pki::digest::fingerprint(body.as_bytes());
        let whole = format!(r#"{body},"hash":"{}"}}"#, hash.hex());
        assert_eq!(chain::read(&whole, 1), Ok((chain::origin(), hash)));
        assert_eq!(chain::check(&whole, 1, &chain::origin()), Ok(hash));
        assert!(chain::check(&whole, 1, &Fingerprint::new([1; 32])).is_err());
        read_line(&whole);
    }
}

fn read_line(line: &str) {
    let _ = chain::read(line, 1);
    let _ = checkpoint_of(line);
    if let Some(footer) = Footer::read(line) {
        assert_eq!(Footer::read(&footer.clone().line()), Some(footer));
    }
}

/// A row of envelopes, one after the other, on a domain with a little history and on none at all.
pub fn apply(data: &[u8]) {
    let mut envelopes = Vec::new();
    let mut rest = data;
    while envelopes.len() < 16
        && let Ok(envelope) = rmp_serde::from_read::<_, Envelope>(&mut rest)
    {
        envelopes.push(envelope);
    }
    if !envelopes.is_empty() {
        run(world::state(), &envelopes);
        run(State::default(), &envelopes);
    }
}

fn run(mut state: State, envelopes: &[Envelope]) {
    let (mut at, mut line, mut head) = (AT, Vec::new(), chain::origin());
    for envelope in envelopes {
        at = at.plus(Span::from_secs(1));
        let before = state.clone();
        let foretold = would_apply(&before, envelope, at);
        let applied = apply_command(&mut state, envelope, at);
        assert_eq!(foretold, (applied.answer.clone(), !applied.events.is_empty()), "foretold otherwise");
        check_invariants(&before, &state).expect("the invariants hold");
        for event in &applied.events {
            let prev = head;
            head = chain::compose(&mut line, 1, &chain::moment(at), event, envelope, &prev)
                .expect("an event can be written");
            let text = std::str::from_utf8(&line).expect("a line is text");
            assert_eq!(chain::check(text, 1, &prev), Ok(head), "{text}");
            assert!(
                serde_json::from_str::<serde_json::Value>(text).is_ok_and(|line| line.is_object()),
                "{text}"
            );
        }
    }
    let bytes = rmp_serde::to_vec_named(&state).expect("a state can be written");
    assert!(
        rmp_serde::from_slice(&bytes).is_ok_and(|read: State| read == state),
        "a state reads back otherwise"
    );
}
