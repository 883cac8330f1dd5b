//! Reading an answer whole, within its bounds, and telling a refusal from an accident.

use super::exchange::{ResponseSource, RestResponse};
use crate::error::{ApiError, Error, retry_after};
use crate::unreachable::Unreachable;
use api::error::ErrorBody;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout_at;

/// A page of a thousand nodes fits several times over.
const BODY_BYTES: usize = 8 * 1024 * 1024;

impl RestResponse {
    /// This answer if it is not an error, else what the error says.
    pub(super) async fn granted(self) -> Result<Self, Error> {
        let status = self.status();
        if status.is_success() {
            return Ok(self);
        }
        let asked = self.response.headers().get(api::header::RETRY_AFTER);
        let retry_after = asked.and_then(|value| retry_after(value.to_str().ok()?));
        let (source, body) = self.parts().await?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error: detail }) => Err(Error::Refused(Box::new(ApiError {
                detail,
                retry_after,
                server_time: None,
                not_needed: None,
            }))),
            Err(_) => Err(source.unexpected(format!("HTTP {status} without an Enlist error"))),
        }
    }

    /// How old it may be, where the replica had no leader to ask.
    pub(super) fn state_age(&self) -> Option<Duration> {
        let age = self.response.headers().get(api::header::STATE_AGE)?;
        age.to_str().ok()?.parse().ok().map(Duration::from_millis)
    }

    pub(super) async fn bytes(self) -> Result<Bytes, Error> {
        self.parts().await.map(|(_, body)| body)
    }

    async fn parts(self) -> Result<(ResponseSource, Bytes), Error> {
        let RestResponse { response, source, deadline, driver: _driver } = self;
        let body = Limited::new(response.into_body(), BODY_BYTES).collect();
        match timeout_at(deadline, body).await {
            Err(_) => Err(source.interrupted(Unreachable::TimedOut("end of the answer"))),
            Ok(Ok(body)) => Ok((source, body.to_bytes())),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                Err(source.unexpected(format!("an answer of more than {BODY_BYTES} bytes")))
            }
            Ok(Err(error)) => Err(match error.downcast_ref::<hyper::Error>() {
                Some(error) => source.failed(error),
                None => source.interrupted(Unreachable::Closed),
            }),
        }
    }

    pub(super) async fn text(self) -> Result<String, Error> {
        let (source, body) = self.parts().await?;
        String::from_utf8(body.into()).map_err(|_| source.unexpected("an answer that is not text"))
    }

    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let (source, body) = self.parts().await?;
        serde_json::from_slice(&body)
            .map_err(|error| source.unexpected(format!("an answer that cannot be read: {error}")))
    }
}
