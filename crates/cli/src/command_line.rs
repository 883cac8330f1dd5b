//! The command line: one definition feeds parser, help, completions, man pages and docs/cli.md.

use crate::reach::Reach;
use crate::{
    alert, audit, ca, compat, completions, dev, manual, node, operator, policy, server, tenant, token,
};
use clap::{CommandFactory, Parser, Subcommand};

/// Lets machines into a fleet, gives them an identity, and takes it away
///
/// Exit codes: 0 done, 1 fault, 2 usage or configuration, 3 refused by the control plane, 4 unreachable.
#[derive(Debug, Parser)]
#[command(name = "enlist", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    pub(crate) family: Family,
    /// One JSON document, or one line per item; errors as JSON too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Family {
    /// Try it: a control plane and a first node on this machine, in seconds
    ///
    /// Not for production. Everything is made in a new directory among the system's temporary ones, or in
    /// --dir DIR, which may be absent, empty, or one that this command made before.
    Dev(dev::Arguments),
    /// Found, run and check a control plane
    #[command(subcommand)]
    Server(server::Command),
    /// Enrollment tokens: each lets one node in, once
    #[command(subcommand)]
    Token(token::Command),
    /// Nodes: the machines of the fleet
    #[command(subcommand, visible_aliases = ["nodes", "host", "hosts"])]
    Node(node::Command),
    /// Alerts: what wants attention
    #[command(subcommand, visible_aliases = ["alerts"])]
    Alert(alert::Command),
    /// Tenants: every node belongs to one
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Policy: the replicated rules of the domain
    #[command(subcommand)]
    Policy(policy::Command),
    /// The domain's certificate authority
    #[command(subcommand)]
    Ca(ca::Command),
    /// The audit trail: every change, hash-chained
    #[command(subcommand)]
    Audit(audit::Command),
    /// Operators: who may run the fleet, and with what role
    #[command(subcommand)]
    Operator(operator::Command),
    /// The names and command lines of other systems
    #[command(subcommand)]
    Compat(compat::Command),
    /// Print a completion script
    Completions(completions::Arguments),
    /// Print the manual page, or write all of them
    Man(manual::Arguments),
}

/// The definition, for whatever is made from it.
pub fn definition() -> clap::Command {
    CommandLine::command()
}

/// A duration as it is written, known to be one: the flag is named where it was typed.
pub fn duration(text: &str) -> Result<String, lifecycle::names::Malformed> {
    lifecycle::names::Span::parse(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values travel by id, so that an argument with the id of a global flag would take its place.
    #[test]
    fn no_argument_takes_the_place_of_a_global_flag() {
        let mut root = definition();
        // Finds every other contradiction in the definition.
        root.clone().debug_assert();
        let globals: Vec<String> = root
            .get_arguments()
            .filter(|arg| arg.is_global_set())
            .map(|arg| arg.get_id().to_string())
            .collect();
        assert!(globals.contains(&"dir".to_owned()), "{globals:?}");
        let mut todo: Vec<clap::Command> =
            root.get_subcommands_mut().map(|command| command.clone()).collect();
        while let Some(command) = todo.pop() {
            todo.extend(command.get_subcommands().cloned());
            for id in command.get_arguments().map(|arg| arg.get_id().to_string()) {
                // `ca export --server`, `ca roll prepare --cert` and `node import --cert` have meanings of their own,
                // and make room.
                let known = [("export", "server"), ("prepare", "cert"), ("import", "cert")];
                let known = known.contains(&(command.get_name(), id.as_str()));
                assert!(known || !globals.contains(&id), "{} {id}", command.get_name());
            }
        }
    }
}
