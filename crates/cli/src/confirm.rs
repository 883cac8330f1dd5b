//! Asking an operator before something that would cut off many nodes. Whether to ask is the control plane's to say.

use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::screen::Screen;
use crate::table::harmless;
use api::code;
use std::io::{BufRead, IsTerminal, Write};

#[derive(Debug, clap::Args)]
pub struct ConfirmFlag {
    /// Do it without asking, even if it cuts off nodes
    #[arg(long)]
    pub yes: bool,
}

impl ConfirmFlag {
    /// Whether a request that was refused is to be sent again, confirmed. Every other refusal is the answer.
    pub fn or_ask(&self, refused: client::Error, output: Output) -> Result<(), CommandError> {
        if refused.code() != code::CONFIRMATION_NEEDED.word {
            return Err(refused.into());
        }
        if self.yes {
            return Ok(());
        }
        let at_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if output.is_json() || !at_terminal {
            return Err(refused.into());
        }
        if is_answered_yes(&refused.to_string())
            .map_err(|error| CommandError::fault("terminal", error.to_string()))?
        {
            return Ok(());
        }
        let hint = "answer y to go on, or pass --yes";
        Err(CommandError::new(
            Exit::Refused,
            code::CONFIRMATION_NEEDED.word,
            "not confirmed: nothing was changed",
            hint,
        ))
    }
}

fn is_answered_yes(consequence: &str) -> std::io::Result<bool> {
    let question = Screen::of_stderr().hang(0, 0, &harmless(consequence));
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}\nContinue? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        // Ctrl-D leaves the cursor behind the question.
        writeln!(stderr)?;
    }
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
