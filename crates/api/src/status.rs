//! Errors on gRPC: a status, and our own words as trailers.

use crate::agent::NotNeeded;
use crate::code::{self, Code};
use crate::error::ErrorDetail;
use crate::header;
use prost::Message as _;
use tonic::metadata::{MetadataMap, MetadataValue};

impl From<&ErrorDetail> for tonic::Status {
    fn from(error: &ErrorDetail) -> Self {
        let mut trailers = MetadataMap::new();
        for (name, value) in [
            (header::CODE, &error.code),
            (header::HINT, &error.hint),
            (header::GRPC_REQUEST_ID, &error.request_id),
        ] {
            // What cannot be a header value is left out; the message still says what happened.
            if let Ok(value) = MetadataValue::try_from(value.as_str()) {
                trailers.insert(name, value);
            }
        }
        tonic::Status::with_metadata(error.known().grpc.into(), error.message.clone(), trailers)
    }
}

impl From<ErrorDetail> for tonic::Status {
    fn from(error: ErrorDetail) -> Self {
        (&error).into()
    }
}

impl ErrorDetail {
    /// Reads back what a control plane said; none if the status is not one of its refusals.
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let trailer =
            |name: &str| status.metadata().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let code = trailer(header::CODE)?;
        let known = Code::of(&code);
        Some(Self {
            message: status.message().to_owned(),
            hint: trailer(header::HINT)
                .or_else(|| known.map(|code| code.hint.to_owned()))
                .unwrap_or_default(),
            request_id: trailer(header::GRPC_REQUEST_ID).unwrap_or_default(),
            retryable: known.map_or(status.code() == tonic::Code::Unavailable, |code| code.retryable),
            code,
            affected: None,
            active_sessions: None,
        })
    }
}

impl NotNeeded {
    /// The refusal with this as its details.
    pub fn attached(&self, status: tonic::Status) -> tonic::Status {
        let details = self.encode_to_vec().into();
        let (code, message) = (status.code(), status.message().to_owned());
        tonic::Status::with_details_and_metadata(code, message, details, status.metadata().clone())
    }

    /// What came with the word that a recovery is not needed; none with any other word.
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let said = status.metadata().get(header::CODE)?.to_str().ok()?;
        (said == code::RECOVERY_NOT_NEEDED.word).then(|| Self::decode(status.details()).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_back_from_trailers_as_sent() {
        for code in code::CODES {
            let error = ErrorDetail::new(code, "what happened", "01REQUEST");
            let status = tonic::Status::from(&error);
            assert_eq!(status.code() as i32, code.grpc.number());
            assert_eq!(ErrorDetail::from_status(&status), Some(error));
        }
        assert_eq!(ErrorDetail::from_status(&tonic::Status::internal("a proxy's")), None);
    }
}
