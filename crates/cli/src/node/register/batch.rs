//! `enlist node register --batch`: a file in parts, each machine with a result of its own. What is registered already counts as
//! done, so that a batch that was interrupted can be repeated.

use super::batch_file::{BatchFile, NumberedLine};
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::progress::Progress;
use crate::table::harmless;
use api::code;
use api::rest::nodes::{RegisterNodeRequest, RegisterNodesRequest, RegisteredNodes, RegistrationResult};
use client::OperatorApi;
use client::rest::Path;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// How much is sent at once: enough for the control plane to write many in one go, and little enough to be answered soon and
/// to stay below its limit, even when every character is escaped.
const PART_LINES: usize = 1000;
const PART_BYTES: u64 = 1024 * 1024;
/// Columns of the bar.
const BAR: u64 = 20;

/// What is meant where a line says nothing.
#[derive(Debug, Clone, Default)]
pub struct LineDefaults {
    pub vcluster: Option<String>,
    pub profile: Option<String>,
    pub tenant: Option<String>,
}

impl LineDefaults {
    fn fill(&self, machine: RegisterNodeRequest) -> RegisterNodeRequest {
        let or = |own: Option<String>, other: &Option<String>| own.or_else(|| other.clone());
        RegisterNodeRequest {
            vcluster: or(machine.vcluster, &self.vcluster),
            profile: or(machine.profile, &self.profile),
            tenant: or(machine.tenant, &self.tenant),
            ..machine
        }
    }
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct BatchTally {
    registered: u64,
    known: u64,
    refused: u64,
    /// The last line that has a result.
    line: u64,
    /// How much of the file that is.
    bytes: u64,
}

impl BatchTally {
    fn count(&mut self, result: &RegistrationResult) {
        match (result.ok, &result.code) {
            (true, None) => self.registered += 1,
            (true, Some(_)) => self.known += 1,
            (false, _) => self.refused += 1,
        }
    }

    fn lines(&self) -> u64 {
        self.registered + self.known + self.refused
    }

    fn text(&self) -> String {
        format!("{} registered, {} registered before, {} refused", self.registered, self.known, self.refused)
    }
}

pub async fn run(
    file: &std::path::Path,
    defaults: &LineDefaults,
    operator: &OperatorApi,
    output: Output,
) -> Result<(), CommandError> {
    let (input, size) = open(file)?;
    let mut batch = BatchFile::new(input);
    let mut progress = Progress::new("registering", output);
    let mut tally = BatchTally::default();
    let interrupted = tokio::signal::ctrl_c();
    let mut interrupted = std::pin::pin!(interrupted);
    loop {
        let part = part(&mut batch).map_err(|error| after(&tally, error))?;
        let Some(last) = part.last() else { break };
        let (line, bytes) = (last.number, part.iter().map(|line| line.bytes).sum::<u64>());
        let results = tokio::select! {
            results = register(operator, part, defaults) => results.map_err(|error| after(&tally, error))?,
            _ = &mut interrupted => return Err(stopped(&tally, line)),
        };
        for result in &results {
            tally.count(result);
            if output.is_json() || !result.ok || result.notice.is_some() {
                progress.clear();
                output.document(result, refusal)?;
            }
        }
        tally.line = line;
        tally.bytes += bytes;
        progress.at(|| far(&tally, size));
    }
    drop(progress);
    if !output.is_json() {
        output.verbatim(&format!("{} lines: {}\n", tally.lines(), tally.text()))?;
    }
    if tally.refused == 0 {
        return Ok(());
    }
    let message = format!("{} of {} lines were refused", tally.refused, tally.lines());
    let hint = "correct these lines and run the command again: lines that are registered already do no harm";
    Err(CommandError::new(Exit::Refused, "lines_refused", message, hint))
}

/// The file, and its size if it has one.
fn open(file: &std::path::Path) -> Result<(Box<dyn BufRead + Send>, Option<u64>), CommandError> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(BufReader::new(std::io::stdin())), None));
    }
    let opened = File::open(file).map_err(|error| CommandError::file(file, &error))?;
    let size = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
    Ok((Box::new(BufReader::new(opened)), size))
}

fn part(batch: &mut BatchFile<impl BufRead>) -> Result<Vec<NumberedLine>, CommandError> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < PART_LINES && bytes < PART_BYTES {
        let Some(line) = batch.next()? else { break };
        bytes += line.bytes;
        lines.push(line);
    }
    Ok(lines)
}

/// A result for each line, in their order. Lines that cannot be read are not sent.
async fn register(
    operator: &OperatorApi,
    part: Vec<NumberedLine>,
    defaults: &LineDefaults,
) -> Result<Vec<RegistrationResult>, CommandError> {
    let mut nodes = Vec::new();
    let mut sent = Vec::new();
    let mut results = Vec::new();
    for line in part {
        match line.machine {
            Ok(machine) => {
                sent.push(line.number);
                nodes.push(defaults.fill(machine));
            }
            Err(fault) => results.push(RegistrationResult {
                notice: None,
                line: line.number,
                node_id: None,
                ok: false,
                code: Some(code::BAD_REQUEST.word.to_owned()),
                message: Some(fault),
            }),
        }
    }
    if !nodes.is_empty() {
        let request = RegisterNodesRequest { nodes };
        let answer: RegisteredNodes = operator.post(&Path::new("/v1/nodes/batch"), &request).await?;
        if answer.results.len() != sent.len() {
            let message = "the control plane has answered with another number of results than lines";
            return Err(CommandError::fault("answer_incomplete", message));
        }
        results.extend(
            answer.results.into_iter().zip(sent).map(|(result, line)| RegistrationResult { line, ..result }),
        );
        results.sort_by_key(|result| result.line);
    }
    Ok(results)
}

fn refusal(result: &RegistrationResult) -> String {
    let node = result.node_id.as_deref().map(|id| format!("node {id}: ")).unwrap_or_default();
    let text = match &result.notice {
        Some(notice) => format!("line {}: {node}{notice}", result.line),
        None => {
            let (code, message) = (result.code.as_deref(), result.message.as_deref());
            let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
            format!("line {}: {node}{code}: {message}", result.line)
        }
    };
    format!("{}\n", harmless(&text))
}

fn far(tally: &BatchTally, size: Option<u64>) -> String {
    let lines = format!("lines: {}, refused: {}", tally.lines(), tally.refused);
    let Some(size) = size.filter(|size| *size > 0) else { return lines };
    let done = tally.bytes.min(size);
    let filled = done * BAR / size;
    let bar = |from: u64, to: u64, sign: &str| sign.repeat(usize::try_from(to - from).unwrap_or_default());
    format!("[{}{}] {} %, {lines}", bar(0, filled, "#"), bar(filled, BAR, "-"), done * 100 / size)
}

/// Says how far it has come before it failed.
fn after(tally: &BatchTally, error: CommandError) -> CommandError {
    if tally.line == 0 {
        return error;
    }
    error.after(&format!(
        "up to line {}: {}; the command can be run again with the same file",
        tally.line,
        tally.text()
    ))
}

fn stopped(tally: &BatchTally, under_way: u64) -> CommandError {
    let message = format!(
        "up to line {}: {}; lines up to {under_way} may be registered as well",
        tally.line,
        tally.text()
    );
    let hint = "run the command again with the same file: lines that are registered already do no harm";
    CommandError::new(Exit::Fault, "interrupted", message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_how_much_of_the_file_is_done() {
        let tally = BatchTally { registered: 5, bytes: 50, ..BatchTally::default() };
        assert_eq!(far(&tally, Some(200)), "[#####---------------] 25 %, lines: 5, refused: 0");
        // A file that has grown since.
        assert_eq!(far(&tally, Some(40)), "[####################] 100 %, lines: 5, refused: 0");
        assert_eq!(far(&tally, None), "lines: 5, refused: 0");
        assert_eq!(far(&BatchTally::default(), Some(0)), "lines: 0, refused: 0");
    }

    #[test]
    fn a_line_that_says_nothing_takes_what_the_flags_say() {
        let flags = LineDefaults { vcluster: Some("a".to_owned()), ..LineDefaults::default() };
        let own = RegisterNodeRequest { vcluster: Some("b".to_owned()), ..RegisterNodeRequest::default() };
        assert_eq!(flags.fill(own.clone()), own);
        assert_eq!(flags.fill(RegisterNodeRequest::default()).vcluster.as_deref(), Some("a"));
    }
}
