//! gRPC server reflection, where `server run --reflection` asks for it: tools such as grpcurl find the services and messages
//! of the open APIs here. Like every other call it needs a credential, any that is good.

use crate::doors;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::grpc::reflection::server_reflection_request::MessageRequest;
use api::grpc::reflection::server_reflection_response::MessageResponse;
use api::grpc::reflection::server_reflection_server::{ServerReflection, ServerReflectionServer};
use api::grpc::reflection::{
    ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use api::grpc::{DESCRIPTORS, FileDescriptorProto, FileDescriptorSet};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::Uri;
use prost::Message as _;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

pub const SERVICE: &str = "grpc.reflection.v1.ServerReflection";
/// The name before it was settled, with the same messages; many tools ask for nothing else.
pub const EARLIER: &str = "grpc.reflection.v1alpha.ServerReflection";

pub fn service(app: &Arc<App>) -> ServerReflectionServer<Described> {
    let files = match FileDescriptorSet::decode(DESCRIPTORS) {
        Ok(set) => set.file,
        Err(error) => {
            tracing::error!(%error, "the protocols are not described");
            Vec::new()
        }
    };
    let limit = usize::try_from(crate::edge::body::BODY_LIMIT).unwrap_or(usize::MAX);
    let described = Described { app: app.clone(), files: files.into() };
    ServerReflectionServer::new(described).max_decoding_message_size(limit)
}

/// A request under the earlier name as one under the name of now.
pub fn renamed<B>(mut request: http::Request<B>) -> http::Request<B> {
    let path = request.uri().path().replacen(EARLIER, SERVICE, 1);
    if let Ok(uri) = path.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}

pub struct Described {
    app: Arc<App>,
    files: Arc<[FileDescriptorProto]>,
}

#[tonic::async_trait]
impl ServerReflection for Described {
    type ServerReflectionInfoStream = BoxStream<'static, Result<ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let peer = request.extensions().get::<ConnectionPeer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a request without its connection"))?;
        let headers = request.metadata().clone().into_headers();
        authenticate::authenticate(&self.app, &peer, &headers)
            .await
            .map_err(|f| doors::native::status(&f))?;
        let own = Self { app: self.app.clone(), files: self.files.clone() };
        let answers = stream::unfold((request.into_inner(), own), |(mut asked, own)| async move {
            match asked.message().await {
                Ok(Some(request)) => Some((Ok(own.answer(request)), (asked, own))),
                Ok(None) => None,
                Err(_) => {
                    let failure = Failure::new(code::BAD_REQUEST, "this is no reflection request");
                    Some((Err(doors::native::status(&failure)), (asked, own)))
                }
            }
        });
        Ok(Response::new(answers.boxed()))
    }
}

impl Described {
    fn answer(&self, request: ServerReflectionRequest) -> ServerReflectionResponse {
        let found = match &request.message_request {
            Some(MessageRequest::ListServices(_)) => {
                Some(MessageResponse::ListServicesResponse(self.services()))
            }
            Some(MessageRequest::FileByFilename(name)) => {
                self.files.iter().find(|file| file.name() == name).map(|file| self.with_imports(file))
            }
            Some(MessageRequest::FileContainingSymbol(symbol)) => {
                self.files.iter().find(|file| holds(file, symbol)).map(|file| self.with_imports(file))
            }
            // proto3 has no extensions.
            Some(
                MessageRequest::FileContainingExtension(_) | MessageRequest::AllExtensionNumbersOfType(_),
            )
            | None => None,
        };
        let missing = || {
            MessageResponse::ErrorResponse(ErrorResponse {
                error_code: tonic::Code::NotFound.into(),
                error_message: "nothing of that name is described here".to_owned(),
            })
        };
        ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(found.unwrap_or_else(missing)),
        }
    }

    fn services(&self) -> ListServiceResponse {
        let named = |file: &FileDescriptorProto| {
            let package = file.package().to_owned();
            file.service.clone().into_iter().map(move |service| format!("{package}.{}", service.name()))
        };
        let served = self.files.iter().flat_map(named).filter(|name| doors::serves(&self.app, name));
        ListServiceResponse { service: served.map(|name| ServiceResponse { name }).collect() }
    }

    /// The file, then those that it imports: none of ours imports one that imports.
    fn with_imports(&self, file: &FileDescriptorProto) -> MessageResponse {
        let imported =
            self.files.iter().filter(|other| file.dependency.iter().any(|name| name == other.name()));
        let files = std::iter::once(file).chain(imported).map(|file| file.encode_to_vec()).collect();
        MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: files })
    }
}

/// Whether a file declares a service, a method, a message or an enum of this name.
fn holds(file: &FileDescriptorProto, symbol: &str) -> bool {
    let Some(name) = symbol.strip_prefix(file.package()).and_then(|rest| rest.strip_prefix('.')) else {
        return false;
    };
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let service = file.service.iter().find(|service| service.name() == first);
    let message = file.message_type.iter().find(|message| message.name() == first);
    match rest {
        None => {
            service.is_some()
                || message.is_some()
                || file.enum_type.iter().any(|declared| declared.name() == first)
        }
        Some(rest) => {
            service.is_some_and(|service| service.method.iter().any(|method| method.name() == rest))
                || message.is_some_and(|message| {
                    let messages = message.nested_type.iter().map(|nested| nested.name());
                    messages.chain(message.enum_type.iter().map(|nested| nested.name())).any(|n| n == rest)
                })
        }
    }
}
