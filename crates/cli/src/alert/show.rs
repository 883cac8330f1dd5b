//! `enlist alert show`: one alert, and what the page on alerts says of its kind, which is part of the program.

use crate::error::CommandError;
use crate::explain::without_links;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use crate::table::harmless;
use api::rest::alerts::AlertItem;
use serde::Serialize;

const PAGE: &str = include_str!("../../../../docs/alerts.md");
/// Before each of the paragraphs.
const LABEL: usize = "cleared when: ".len();

#[derive(Serialize)]
struct ExplainedAlert {
    #[serde(flatten)]
    alert: AlertItem,
    /// Null for a kind that this version does not know.
    raised_when: Option<String>,
    cleared_when: Option<String>,
    remedy: Option<String>,
}

pub fn print(alert: AlertItem, output: Output) -> Result<(), CommandError> {
    let [raised_when, cleared_when, remedy] = match row(&alert.kind, alert.node_id.is_some()) {
        Some(cells) => cells.map(Some),
        None => [None, None, None],
    };
    let explained = ExplainedAlert { alert, raised_when, cleared_when, remedy };
    output.document(&explained, |explained| text(explained, output.screen()))
}

fn text(explained: &ExplainedAlert, screen: Screen) -> String {
    let alert = &explained.alert;
    let fields = Fields::new()
        .with("alert", &alert.alert_id)
        .with("kind", &alert.kind)
        .with_some("node", alert.node_id.as_deref())
        .with_some("tenant", alert.tenant.as_deref())
        .with("since", &screen.full(&alert.since))
        .with("count", &alert.count.to_string())
        .with("acknowledged", if alert.acknowledged { "yes" } else { "no" });
    let mut text = fields.text_on(screen);
    let paragraphs = [
        ("detail", Some(&alert.detail)),
        ("raised when", explained.raised_when.as_ref()),
        ("cleared when", explained.cleared_when.as_ref()),
        ("remedy", explained.remedy.as_ref()),
    ];
    for (name, said) in paragraphs {
        if let Some(said) = said {
            let label = format!("{name}: ");
            let said = screen.hang(label.len().min(LABEL), 2, &harmless(said));
            text.push_str(&format!("\n{label}{said}\n"));
        }
    }
    text
}

/// What the page says of a kind: when it is raised, when it is cleared, what to do. A kind that is about nodes as well as about none
/// has two rows.
fn row(kind: &str, of_a_node: bool) -> Option<[String; 3]> {
    let (own, without) = (format!("| `{kind}` | "), format!("| without a node: `{kind}` | "));
    let begins = |start: &str| PAGE.lines().find_map(|line| line.strip_prefix(start));
    let cells = if of_a_node { begins(&own) } else { begins(&without).or_else(|| begins(&own)) }?;
    let mut cells = cells.trim_end_matches(" |").split(" | ").map(without_links);
    Some([cells.next()?, cells.next()?, cells.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::registry::AlertKind;

    #[test]
    fn every_kind_of_alert_has_a_remedy() {
        for kind in AlertKind::ALL {
            for of_a_node in [true, false] {
                let [raised, cleared, remedy] = row(kind.as_str(), of_a_node).expect("a row of the page");
                assert!(![raised, cleared, remedy].iter().any(String::is_empty), "{kind}");
            }
        }
        assert_ne!(row("clock_skew", true), row("clock_skew", false));
        assert_eq!(row("none_of_these", true), None);
    }
}
