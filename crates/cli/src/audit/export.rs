//! `enlist audit export`: the trail as it is, line by line, the signed footer last.

use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::progress::Progress;
use client::OperatorApi;
use client::rest::{Path, ResponseLines};
use journal::audit::Footer;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

/// The control plane reads its own disk; a longer silence means that it is gone.
const IDLE: Duration = Duration::from_secs(60);

async fn lines(operator: &OperatorApi) -> Result<ResponseLines, CommandError> {
    Ok(operator.lines(&Path::new("/v1/audit/export"), Some(IDLE)).await?)
}

/// Remembers whether the last line was the footer: an export without one proves nothing.
#[derive(Default)]
struct Completeness {
    lines: u64,
    complete: bool,
}

impl Completeness {
    fn saw(&mut self, line: &str) {
        self.complete = Footer::read(line).is_some();
        self.lines += u64::from(!self.complete);
    }

    fn finish(self) -> Result<u64, CommandError> {
        if self.complete {
            return Ok(self.lines);
        }
        let message = format!("the export ended after {} lines, without its signed footer", self.lines);
        Err(CommandError::new(
            Exit::Fault,
            "truncated",
            message,
            "export again; the control plane's log has the cause",
        ))
    }
}

pub async fn to_output(operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let mut lines = lines(operator).await?;
    let mut seen = Completeness::default();
    while let Some(mut line) = lines.next().await? {
        seen.saw(&line);
        line.push('\n');
        output.verbatim(&line)?;
    }
    seen.finish().map(drop)
}

/// Under another name until it is whole.
pub async fn to_file(operator: &OperatorApi, path: &FilePath, output: Output) -> Result<(), CommandError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = write(operator, &part, Progress::new("exporting", output)).await;
    let count = match written {
        Ok(count) => count,
        Err(failure) => {
            let _ = std::fs::remove_file(&part);
            return Err(failure);
        }
    };
    std::fs::rename(&part, path).map_err(|error| CommandError::file(path, &error))?;
    let done = serde_json::json!({ "file": path.display().to_string(), "lines": count });
    output.document(&done, |_| format!("{count} lines and the footer are in {}\n", path.display()))
}

async fn write(operator: &OperatorApi, part: &FilePath, mut progress: Progress) -> Result<u64, CommandError> {
    let mut lines = lines(operator).await?;
    let failed = |error| CommandError::file(part, &error);
    // The trail tells who did what from where: not for every reader of this machine.
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(part).map_err(failed)?;
    let mut file = BufWriter::new(file);
    let mut seen = Completeness::default();
    while let Some(line) = lines.next().await? {
        seen.saw(&line);
        progress.at(|| format!("{} lines", seen.lines));
        writeln!(file, "{line}").map_err(failed)?;
    }
    let count = seen.finish()?;
    let file = file.into_inner().map_err(|error| CommandError::file(part, error.error()))?;
    file.sync_all().map_err(failed)?;
    Ok(count)
}
