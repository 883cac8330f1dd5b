//! Alerts: what wants an operator's attention.

use lifecycle::registry::Alert;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// An open alert. There is one per kind and node, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertItem {
    pub alert_id: String,
    #[schema(example = "enrollment_stuck")]
    pub kind: String,
    /// Null when it is about the domain.
    #[schema(required)]
    pub node_id: Option<String>,
    /// The tenant that it is about, where it is about no node and not about the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub since: String,
    /// How often it was raised since then.
    pub count: u64,
    pub detail: String,
    pub acknowledged: bool,
}

impl AlertItem {
    pub fn of(alert: &Alert) -> Self {
        Self {
            alert_id: alert.id.to_string(),
            kind: alert.kind.to_string(),
            node_id: alert.node.as_ref().map(ToString::to_string),
            tenant: alert.tenant.as_ref().map(ToString::to_string),
            since: alert.since.to_string(),
            count: alert.count,
            detail: alert.detail.clone(),
            acknowledged: alert.acknowledged,
        }
    }
}

/// What has happened to an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertChange {
    /// For the first time, or once more.
    Raised,
    Acknowledged,
    Cleared,
}

impl AlertChange {
    /// From one moment to another; none if nothing has happened in between.
    pub fn between(before: &Alert, after: &Alert) -> Option<Self> {
        match (before, after) {
            _ if before == after => None,
            _ if after.acknowledged && !before.acknowledged => Some(AlertChange::Acknowledged),
            _ => Some(AlertChange::Raised),
        }
    }
}

/// An alert that has just changed: what `/v1/events` tells and what a webhook is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertEvent {
    pub event: AlertChange,
    #[serde(flatten)]
    pub alert: AlertItem,
}

impl AlertEvent {
    pub fn of(event: AlertChange, alert: &Alert) -> Self {
        Self { event, alert: AlertItem::of(alert) }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AlertQuery {
    /// Only alerts of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only alerts about this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
