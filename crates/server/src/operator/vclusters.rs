//! `/v1/vclusters`, `/v1/vcluster-defaults`, `/v1/nodes/{id}/config`: vClusters and configuration documents.

use super::nodes;
use crate::edge::authenticate;
use crate::fleet::everywhere;
use crate::http::document::DocumentBody;
use crate::http::extract::{Caller, Json, Query, Segment, bad_in};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::process::app::App;
use api::code;
use api::rest::nodes::NodeDetail;
use api::rest::page::{Page, PageQuery};
use api::rest::vclusters::{CreateVclusterRequest, VclusterDefaults, VclusterDetail, VclusterItem};
use axum::extract::State;
use http::StatusCode;
use journal::View;
use lifecycle::names::VclusterId;
use lifecycle::registry::{
    Act, Command, ConfigTarget, CreateVcluster, Documents, EMPTY_DOCUMENT, MAINTENANCE_DEFAULTS, NodeReach,
    Rejection, SetConfig, Vcluster,
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<Page<VclusterItem>>, Failure> {
    let (view, seen) = authenticate::node_reader(&app, &caller.actor, Act::ReadVclusters)?;
    let reach = NodeReach { tenants: caller.narrowed(&app, seen.tenants, None)?, ..seen };
    let range = after("cursor", query.cursor.as_deref(), VclusterId::parse)?;
    let limit = limit(query.limit)?;
    let nodes = counted(&view);
    let found = view.state.vclusters.range(range).map(|(_, vcluster)| vcluster.as_ref());
    let found = found.filter(|vcluster| includes(&reach, vcluster));
    let items =
        found.map(|vcluster| VclusterItem::of(vcluster, nodes.get(&vcluster.id).copied().unwrap_or(0)));
    let (items, next_cursor) = page(items, limit, |item| item.name.clone());
    Ok(axum::Json(Page { items, next_cursor }))
}

fn includes(reach: &NodeReach, vcluster: &Vcluster) -> bool {
    reach.vclusters.include(&vcluster.id) && reach.tenants.include(&vcluster.tenant)
}

/// The living nodes of each, in one walk over all nodes.
fn counted(view: &View) -> BTreeMap<&VclusterId, u64> {
    let mut nodes = BTreeMap::new();
    for node in view.state.nodes.values().filter(|node| !node.state.is_gone()) {
        if let Some(vcluster) = &node.vcluster {
            *nodes.entry(vcluster).or_default() += 1;
        }
    }
    nodes
}

pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<CreateVclusterRequest>,
) -> Result<(StatusCode, axum::Json<VclusterItem>), Failure> {
    let id = VclusterId::parse(&request.name).map_err(bad_in("name"))?;
    let tenant = caller.tenant(&app, request.tenant.as_deref())?;
    let command = Command::CreateVcluster(CreateVcluster { vcluster: id.clone(), tenant });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    Ok((StatusCode::CREATED, axum::Json(VclusterItem::of(on_record(&view, &id)?, 0))))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
) -> Result<axum::Json<VclusterDetail>, Failure> {
    let (view, vcluster) = visible(&app, &caller, &name)?;
    let (item, shown) = (item(&view, &vcluster), shown(&vcluster.config, EMPTY_DOCUMENT)?);
    Ok(axum::Json(VclusterDetail {
        name: item.name,
        tenant: item.tenant,
        version: item.version,
        nodes: item.nodes,
        created_by: item.created_by,
        created_at: item.created_at,
        checksum: shown.checksum,
        config: shown.config,
    }))
}

/// The document alone, byte for byte.
pub async fn show_config(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
) -> Result<axum::Json<Box<RawValue>>, Failure> {
    let (_, vcluster) = visible(&app, &caller, &name)?;
    Ok(axum::Json(shown(&vcluster.config, EMPTY_DOCUMENT)?.config))
}

pub async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
) -> Result<StatusCode, Failure> {
    let command = Command::RemoveVcluster { vcluster: parse(&name)? };
    app.commit(caller.actor, &caller.origin, command).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn set_config(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
    DocumentBody(document): DocumentBody,
) -> Result<axum::Json<VclusterItem>, Failure> {
    let id = parse(&name)?;
    let target = ConfigTarget::Vcluster(id.clone());
    let command = Command::SetConfig(SetConfig { target, document });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let vcluster = on_record(&view, &id)?;
    Ok(axum::Json(item(&view, vcluster)))
}

pub async fn show_defaults(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<axum::Json<VclusterDefaults>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadVclusters)?;
    Ok(axum::Json(shown(&view.state.defaults, MAINTENANCE_DEFAULTS)?))
}

pub async fn set_defaults(
    State(app): State<Arc<App>>,
    caller: Caller,
    DocumentBody(document): DocumentBody,
) -> Result<axum::Json<VclusterDefaults>, Failure> {
    let command = Command::SetConfig(SetConfig { target: ConfigTarget::Defaults, document });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    Ok(axum::Json(shown(&view.state.defaults, MAINTENANCE_DEFAULTS)?))
}

/// What is said to one node alone.
pub async fn set_node_config(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    DocumentBody(document): DocumentBody,
) -> Result<axum::Json<NodeDetail>, Failure> {
    let id = nodes::parse(&id)?;
    let command = Command::SetConfig(SetConfig { target: ConfigTarget::Node(id.clone()), document });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let node = view.state.nodes.get(&id).ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    let profile = app.config.endpoint_profile.as_ref();
    Ok(axum::Json(NodeDetail::of(&view.state, node, &everywhere::live(&app, &id).await, profile)))
}

/// A vCluster that the caller may see; others do not exist for it.
fn visible(app: &App, caller: &Caller, name: &str) -> Result<(Arc<View>, Arc<Vcluster>), Failure> {
    let (view, reach) = authenticate::node_reader(app, &caller.actor, Act::ReadVclusters)?;
    let id = parse(name)?;
    let vcluster = view.state.vclusters.get(&id).filter(|vcluster| includes(&reach, vcluster)).cloned();
    let vcluster = vcluster.ok_or(Rejection::VclusterNotFound { vcluster: id })?;
    Ok((view, vcluster))
}

fn on_record<'a>(view: &'a View, id: &VclusterId) -> Result<&'a Vcluster, Failure> {
    let missing = || Rejection::VclusterNotFound { vcluster: id.clone() };
    Ok(view.state.vclusters.get(id).map(Arc::as_ref).ok_or_else(missing)?)
}

fn item(view: &View, vcluster: &Vcluster) -> VclusterItem {
    VclusterItem::of(vcluster, view.state.nodes_in(&vcluster.id).count() as u64)
}

/// The newest document of a place, or the one that is built in.
fn shown(documents: &Documents, built_in: &str) -> Result<VclusterDefaults, Failure> {
    let current = documents.current();
    let text = current.map_or(built_in, |change| &change.document.text);
    let checksum =
        current.map_or_else(|| pki::digest::checksum(built_in.as_bytes()), |change| change.document.checksum);
    let config = RawValue::from_string(text.to_owned())
        .map_err(|error| Failure::internal("a configuration document is not JSON", &error))?;
    Ok(VclusterDefaults { version: documents.version(), checksum: checksum.hex(), config })
}

/// What cannot be a name is not found.
fn parse(name: &str) -> Result<VclusterId, Failure> {
    VclusterId::parse(name)
        .map_err(|_| Failure::new(code::VCLUSTER_NOT_FOUND, "there is no vCluster of this name"))
}
