//! The one tenant that a command line is about. What lies in another does not exist for it, as on the plfm door.

use crate::error::{CommandError, Exit};
use api::code::{self, Code};
use api::rest::nodes::NodeDetail;
use api::rest::tenants::TenantItem;
use api::rest::tokens::TokenItem;
use client::OperatorApi;
use client::rest::Path;

/// What is meant when an operator of several tenants names none.
const DEFAULT: &str = "default";

pub struct PlfmTenant<'a> {
    pub operator: &'a OperatorApi,
    pub tenant: String,
}

impl<'a> PlfmTenant<'a> {
    /// As named, else the operator's only one, else `default`; one that the operator may see.
    pub async fn of(operator: &'a OperatorApi, named: Option<String>) -> Result<Self, CommandError> {
        let seen: Vec<TenantItem> = operator.list(&Path::new("/v1/tenants")).await?;
        let tenant = match (named, seen.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only.name.clone(),
            (None, _) => DEFAULT.to_owned(),
        };
        if seen.iter().any(|item| item.name == tenant) {
            return Ok(Self { operator, tenant });
        }
        Err(absent(code::TENANT_NOT_FOUND, format!("there is no tenant {tenant}")))
    }

    pub async fn host(&self, id: &str) -> Result<NodeDetail, CommandError> {
        let node: NodeDetail = self.operator.get(&Path::new("/v1/nodes").segment(id)).await?;
        if node.item.tenant == self.tenant {
            return Ok(node);
        }
        Err(absent(code::NODE_NOT_FOUND, format!("there is no node {}", node.item.node_id)))
    }

    pub async fn token(&self, id: &str) -> Result<TokenItem, CommandError> {
        let token: TokenItem = self.operator.get(&Path::new("/v1/tokens").segment(id)).await?;
        if token.tenant == self.tenant {
            return Ok(token);
        }
        Err(absent(code::TOKEN_NOT_FOUND, format!("there is no token {}", token.token_id)))
    }
}

fn absent(code: &Code, message: String) -> CommandError {
    CommandError::new(Exit::Refused, code.word, message, code.hint)
}
