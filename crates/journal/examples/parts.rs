#[path = "../tests/fixture/mod.rs"]
mod fixture;
use std::time::Instant;
fn main() {
    let n = 20000u64;
    let mut state = lifecycle::registry::State::default();
    let at = fixture::now();
    lifecycle::registry::apply(&mut state, &fixture::found(), at).answer.unwrap();
    let toks: Vec<_> = (0..n).map(fixture::create_token).collect();
    let enr: Vec<_> = (0..n).map(fixture::enroll).collect();
    let t = Instant::now();
    for e in &toks { lifecycle::registry::apply(&mut state, e, at).answer.unwrap(); }
    println!("token {:?}", t.elapsed() / n as u32);
    let t = Instant::now();
    let mut ev = vec![];
    for (i, e) in enr.iter().enumerate() { let a = lifecycle::registry::apply(&mut state, e, at); a.answer.unwrap(); ev.push(a.events); if i % 256 == 0 { let s = state.clone(); std::mem::forget(s);} }
    println!("apply {:?}", t.elapsed() / n as u32);
    let t = Instant::now();
    let mut x = 0; for e in &ev { for e in e { x += e.fields().len(); } }
    println!("fields {:?} {x}", t.elapsed() / n as u32);
    let t = Instant::now();
    let mut line = vec![]; let mut prev = journal::audit::chain::origin(); let mut bytes = 0;
    for (e, v) in ev.iter().zip(&enr) { for e in e { prev = journal::audit::chain::compose(&mut line, 5, "2027-01-15T08:00:00.000Z", e, v, &prev).unwrap(); bytes += line.len(); } }
    println!("compose {:?} {}", t.elapsed() / n as u32, bytes / n as usize);
    let t = Instant::now();
    let mut b = 0; let mut rows = vec![];
    for e in &enr { let r = journal::conformance::seal(e).unwrap(); b += r.len(); rows.push(r); }
    println!("encode {:?} {}", t.elapsed() / n as u32, b / n as usize);
    let t = Instant::now();
    for r in &rows { let _: lifecycle::registry::Envelope = journal::conformance::open(r).unwrap(); }
    println!("decode {:?}", t.elapsed() / n as u32);
    let dir = tempfile::tempdir_in(".").unwrap();
    let mut store = journal::audit::Store::open(&dir.path().join("audit.db"), 0, 0).unwrap();
    let text = "x".repeat(bytes / n as usize);
    let t = Instant::now();
    for i in 0..n { store.put(i + 1, &text).unwrap(); if i % 256 == 255 { store.commit(i, i).unwrap(); } }
    println!("audit {:?}", t.elapsed() / n as u32);
    let t = Instant::now();
    for _ in 0..1000 { std::hint::black_box(state.clone()); }
    println!("clone {:?}", t.elapsed() / 1000);
}
