//! The agent's own codes and their page are one.

use std::fs;
use std::path::Path;

use agent::code::AgentCode;

#[test]
fn every_code_has_its_section_on_the_page_and_every_section_a_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors/agent.md");
    let page = fs::read_to_string(page).expect("the page exists");
    let mut sections: Vec<(&str, &str)> = Vec::new();
    for section in page.split("\n## ").skip(1) {
        sections.extend(section.split_once('\n'));
    }
    let words: Vec<&str> = sections.iter().map(|(word, _)| *word).collect();
    let expected: Vec<&str> = AgentCode::ALL.iter().map(|code| code.word()).collect();
    assert_eq!(words, expected, "in the table's order");
    for (code, (_, text)) in AgentCode::ALL.iter().zip(&sections) {
        let head = format!("\nRemedy: {}.\n", code.remedy());
        assert!(text.starts_with(&head), "{} should begin with:{head}", code.word());
        assert!(text.len() > head.len() + 40, "{} says nothing of its own", code.word());
    }
}
