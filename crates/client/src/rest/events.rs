//! Server-sent events, as far as the operator API uses them.

use super::lines::ResponseLines;
use crate::error::Error;

/// All the data of one event together.
const EVENT_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    pub id: Option<String>,
    pub name: Option<String>,
    pub data: String,
}

pub struct ServerSentEvents {
    lines: ResponseLines,
}

impl ServerSentEvents {
    pub(super) fn new(lines: ResponseLines) -> Self {
        Self { lines }
    }

    /// The next event that has data; none when the server ends the stream.
    pub async fn next(&mut self) -> Result<Option<ServerSentEvent>, Error> {
        let mut event = ServerSentEvent::default();
        let mut data: Option<String> = None;
        while let Some(line) = self.lines.next().await? {
            if line.is_empty() {
                match data.take() {
                    Some(data) => return Ok(Some(ServerSentEvent { data, ..event })),
                    None => event = ServerSentEvent::default(),
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => match &mut data {
                    None => data = Some(value.to_owned()),
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                },
                "id" => event.id = Some(value.to_owned()),
                "event" => event.name = Some(value.to_owned()),
                // Comments keep the connection alive; fields that we do not know are not for us.
                _ => {}
            }
            if data.as_ref().is_some_and(|data| data.len() > EVENT_BYTES) {
                return Err(self.lines.unexpected("an event without end"));
            }
        }
        // An event that was not finished does not count.
        Ok(None)
    }
}
