//! The command line: one definition feeds parser, help, completions, man pages and docs/cli.md.

use crate::reach::Reach;
use crate::{
    alert, audit, ca, cluster, compat, completions, context, dev, examples, explain, manual, node, operator,
    overlay, policy, server, tenant, token, vcluster,
};
use clap::{CommandFactory, Parser, Subcommand};

/// Enroll machines into a fleet, and issue, renew and revoke their certificates
///
/// Exit codes: 0 done, 1 fault, 2 usage or configuration, 3 refused by the control plane, 4 unreachable.
#[derive(Debug, Parser)]
#[command(name = "enlist", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    pub(crate) family: Family,
    /// Print results and errors as JSON, one item per line
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Family {
    /// Try Enlist: start a control plane and a demo node on this machine
    ///
    /// Not for production: the root key, and the key that seals the CA keys, lie in the same directory. All data is written to a new
    /// temporary directory, or to --dir DIR, which must be absent, empty, or made by an earlier `enlist dev`. The log is
    /// written to dev.log in that directory (of several replicas: to replica-1.log and so on) or, with ENLIST_LOG set, to standard
    /// error.
    Dev(dev::Arguments),
    /// Initialize, run and check a control plane
    #[command(subcommand)]
    Server(server::Command),
    /// Create, list and revoke enrollment tokens, one for each node
    #[command(subcommand)]
    Token(token::Command),
    /// Register, list, show, label, assign, drain, quarantine, decommission and revoke nodes
    #[command(subcommand, visible_aliases = ["nodes", "host", "hosts"])]
    Node(node::Command),
    /// Create, list, show, configure and remove vClusters: groups of nodes with a configuration of their own
    #[command(subcommand, visible_aliases = ["vclusters"])]
    Vcluster(vcluster::Command),
    /// Show the overlay: the WireGuard network between the hosts of a tenant
    #[command(subcommand)]
    Overlay(overlay::Command),
    /// List, show and acknowledge alerts
    #[command(subcommand, visible_aliases = ["alerts"])]
    Alert(alert::Command),
    /// Create and list tenants; every node belongs to one tenant
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Show and change the policy: lifetimes, limits and other rules
    #[command(subcommand)]
    Policy(policy::Command),
    /// Show, export, roll and revoke the certificate authority
    #[command(subcommand)]
    Ca(ca::Command),
    /// Show, add and remove the replicas of the control plane
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// List, export and verify the hash-chained audit trail
    #[command(subcommand)]
    Audit(audit::Command),
    /// Add, list and remove operators, and manage their API keys
    #[command(subcommand)]
    Operator(operator::Command),
    /// Save, choose and show contexts: how to reach a control plane, and with which credentials
    #[command(subcommand, visible_aliases = ["contexts"])]
    Context(context::Command),
    /// Install the command lines of other systems
    #[command(subcommand)]
    Compat(compat::Command),
    /// Explain an error code: what it means and what to do
    Explain(explain::Arguments),
    /// Print the version of this program
    Version,
    /// Print a shell completion script
    Completions(completions::Arguments),
    /// Print the manual page, or write the pages of all commands
    Man(manual::Arguments),
}

/// The definition, for whatever is made from it.
pub fn definition() -> clap::Command {
    examples::added_to(CommandLine::command())
}

/// The command that was called, with its flags.
pub fn called(definition: &clap::Command, found: &clap::ArgMatches) -> clap::Command {
    match found.subcommand().and_then(|(name, found)| Some((definition.find_subcommand(name)?, found))) {
        Some((below, found)) => called(below, found),
        None => definition.clone(),
    }
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
                // and make room; `compat link --dir` is the global flag with words of its own.
                let known = [("export", "server"), ("prepare", "cert"), ("import", "cert"), ("link", "dir")];
                let known = known.contains(&(command.get_name(), id.as_str()));
                assert!(known || !globals.contains(&id), "{} {id}", command.get_name());
            }
        }
    }
}
