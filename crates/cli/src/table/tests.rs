use super::*;
use lifecycle::names::Timestamp;

const NOW: Timestamp = Timestamp::from_secs(1_000_000_000);

fn plain(text: &str) -> Vec<String> {
    anstream::adapter::strip_str(text).to_string().lines().map(str::to_owned).collect()
}

fn at(columns: usize) -> Screen {
    Screen::terminal(columns, NOW)
}

/// Rows of the widths that node ids, states and reasons have.
fn nodes() -> Table {
    let head = ["NODE", "STATE", "TENANT", "LAST SEEN", "DETAIL"];
    let mut table = Table::new(head, "no nodes").cutting("DETAIL").dropping(["TENANT"]);
    let seen = NOW.minus(lifecycle::names::Span::from_secs(5)).to_string();
    table.row(
        Tone::Good,
        ["a-rather-long-name", "active", "default", &seen, "everything about it is well known"],
    );
    table.row(Tone::Plain, ["b", "enrolled", "acme", "-", ""]);
    table
}

#[test]
fn columns_are_aligned_and_values_stay_in_their_cells() {
    let mut table = Table::new(["NODE", "STATE"], "no nodes");
    assert_eq!(table.text(Screen::none()), "no nodes\n");
    table.row(Tone::Plain, ["a-long-name", "active"]);
    table.row(Tone::Plain, ["b\u{1b}[2J", "x\ny"]);
    assert_eq!(harmless("a\u{202e}b\u{2028}c\u{2066}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
    let lines = plain(&table.text(Screen::none()));
    assert_eq!(lines, ["NODE         STATE", "a-long-name  active", "b\u{fffd}[2J        x\u{fffd}y"]);
}

#[test]
fn without_a_terminal_everything_is_there_and_exact() {
    let lines = plain(&nodes().text(Screen::none()));
    assert_eq!(lines.len(), 3);
    assert!(lines[1].contains("2001-09-09T01:46:35Z"), "{lines:?}");
    assert!(lines[1].ends_with("everything about it is well known"), "{lines:?}");
}

#[test]
fn a_narrow_terminal_cuts_prose_then_leaves_columns_out_and_says_so() {
    assert_eq!(
        plain(&nodes().text(at(140)))[1],
        "a-rather-long-name  active    default  5s ago     everything about it is well known"
    );
    let lines = plain(&nodes().text(at(75)));
    assert_eq!(lines[1], "a-rather-long-name  active    default  5s ago     everything about it is w…");
    let lines = plain(&nodes().text(at(70)));
    assert_eq!(lines[0], "NODE                STATE     LAST SEEN  DETAIL");
    assert_eq!(lines[1], "a-rather-long-name  active    5s ago     everything about it is well…");
    assert_eq!(lines[3], "(no room for TENANT: see --json, or use a wider terminal)");
}

#[test]
fn no_line_is_ever_wider_than_the_terminal() {
    for columns in 1..120 {
        for line in plain(&nodes().text(at(columns))) {
            assert!(line.width() <= columns.max(4), "{columns}: {line}");
        }
    }
}

#[test]
fn only_the_state_is_painted() {
    let text = nodes().text(at(80));
    let row = text.lines().nth(1).unwrap();
    assert!(row.contains("\u{1b}[32mactive\u{1b}[0m"), "{row:?}");
    assert_eq!(row.matches('\u{1b}').count(), 2, "{row:?}");
    assert!(!text.lines().nth(2).unwrap().contains('\u{1b}'), "{text:?}");
}

#[test]
fn wide_characters_count_as_wide() {
    assert_eq!(shortened("日本語", 6), "日本語");
    assert_eq!(shortened("日本語", 5), "日本…");
    assert_eq!(shortened("日本語", 4), "日…");
    assert_eq!(shortened("abc", 0), "");
    assert_eq!(shortened_within("01KA3F7Q9XYZ", 7), "01K…XYZ");
    assert_eq!(shortened_within("日本語日本", 6), "日…本");
}
