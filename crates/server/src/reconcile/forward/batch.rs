//! Lines of the trail as Loki's push API wants them.

use lifecycle::names::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What of a line decides where it belongs. The rest is not looked at.
#[derive(Deserialize)]
struct LineHead {
    at: String,
    event_type: String,
}

#[derive(Serialize)]
struct LokiPush<'a> {
    streams: Vec<LokiStream<'a>>,
}

#[derive(Serialize)]
struct LokiStream<'a> {
    stream: BTreeMap<&'static str, &'a str>,
    values: Vec<(String, &'a str)>,
}

/// The consecutive lines at the front: nothing is sent across a gap, which goes on record first.
pub fn consecutive(mut lines: Vec<(u64, String)>) -> Vec<(u64, String)> {
    let whole = lines.windows(2).position(|pair| matches!(pair, [(a, _), (b, _)] if a + 1 != *b));
    lines.truncate(whole.map_or(lines.len(), |place| place + 1));
    lines
}

/// The body of a push request. Loki sorts a stream by time, and drops what it has already by time and text. The trail's times
/// are milliseconds, so that the number of the line stands in what is below them: lines of one millisecond keep their order,
/// and the same line has the same time whenever it is sent.
pub fn encode(domain: &str, lines: &[(u64, String)], now: Timestamp) -> Result<Vec<u8>, serde_json::Error> {
    let heads: Vec<LineHead> = lines.iter().map(|(_, line)| head(line, now)).collect();
    let mut streams: BTreeMap<&str, Vec<(String, &str)>> = BTreeMap::new();
    for ((seq, line), head) in lines.iter().zip(&heads) {
        let millis = Timestamp::parse(&head.at).unwrap_or(now).millis();
        let nanos = u128::from(millis) * 1_000_000 + u128::from(seq % 1_000_000);
        streams.entry(&head.event_type).or_default().push((nanos.to_string(), line));
    }
    let streams = streams.into_iter().map(|(event_type, values)| {
        let stream = BTreeMap::from([("job", "enlist"), ("domain", domain), ("event_type", event_type)]);
        LokiStream { stream, values }
    });
    serde_json::to_vec(&LokiPush { streams: streams.collect() })
}

/// A line that somebody has damaged is sent all the same.
fn head(line: &str, now: Timestamp) -> LineHead {
    let unreadable = || LineHead { at: now.to_string(), event_type: "unreadable".to_owned() };
    serde_json::from_str(line).unwrap_or_else(|_| unreadable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn line(seq: u64, at: &str, event_type: &str) -> (u64, String) {
        (seq, json!({ "seq": seq, "at": at, "event_type": event_type }).to_string())
    }

    fn encoded(lines: &[(u64, String)]) -> Value {
        let body = encode("example.org", lines, Timestamp::from_millis(5)).expect("encodes");
        serde_json::from_slice(&body).expect("JSON")
    }

    #[test]
    fn lines_are_sorted_into_streams_by_their_kind_and_keep_their_order() {
        let at = "2026-01-15T08:00:00.250Z";
        let lines = [line(7, at, "b.c"), line(8, at, "a.b"), line(9, at, "b.c")];
        let body = encoded(&lines);
        let stream = json!({ "job": "enlist", "domain": "example.org", "event_type": "b.c" });
        assert_eq!(body["streams"][1]["stream"], stream);
        let values = json!([["1768464000250000007", lines[0].1], ["1768464000250000009", lines[2].1]]);
        assert_eq!(body["streams"][1]["values"], values);
        assert_eq!(body["streams"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_sent_all_the_same() {
        let body = encoded(&[(3, "{broken".to_owned())]);
        assert_eq!(body["streams"][0]["stream"]["event_type"], "unreadable");
        assert_eq!(body["streams"][0]["values"], json!([["5000003", "{broken"]]));
    }

    #[test]
    fn nothing_is_sent_across_a_gap() {
        let numbers = |seqs: &[u64]| {
            let lines = seqs.iter().map(|seq| (*seq, String::new())).collect();
            consecutive(lines).into_iter().map(|(seq, _)| seq).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[4, 5, 6]), [4, 5, 6]);
        assert_eq!(numbers(&[4, 5, 7, 8]), [4, 5]);
        assert_eq!(numbers(&[4]), [4]);
        assert_eq!(numbers(&[]), [0; 0]);
    }
}
