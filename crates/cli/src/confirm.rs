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
        if output.is_json() || !at_terminal() {
            return Err(refused.into());
        }
        ask(&refused.to_string())
    }

    /// The same where it is this program itself that would do it.
    pub fn or_ask_about(&self, consequence: &str, output: Output) -> Result<(), CommandError> {
        if self.yes {
            return Ok(());
        }
        if output.is_json() || !at_terminal() {
            let word = code::CONFIRMATION_NEEDED.word;
            return Err(CommandError::new(Exit::Refused, word, consequence, "pass --yes to do it"));
        }
        ask(consequence)
    }

    /// Asks a person; scripts are not asked.
    pub fn at_terminal(&self, consequence: &str, output: Output) -> Result<(), CommandError> {
        if self.yes || output.is_json() || !at_terminal() { Ok(()) } else { ask(consequence) }
    }
}

fn at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn ask(consequence: &str) -> Result<(), CommandError> {
    if is_answered_yes(consequence).map_err(|error| CommandError::fault("terminal", error.to_string()))? {
        return Ok(());
    }
    let hint = "answer y to go on, or pass --yes";
    let (word, message) = (code::CONFIRMATION_NEEDED.word, "not confirmed: nothing was changed");
    Err(CommandError::new(Exit::Refused, word, message, hint))
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
