//! Examples of every command: one table, put into the definition when that is made, so that help, manual pages and
//! docs/cli.md show the same lines.

use clap::Command;

/// What an example does, and the command line. Lines fit 80 columns; a longer one goes on after a backslash.
type Example = (&'static str, &'static str);

/// The path of a command, and its examples. A new command needs a row here.
const TABLE: &[(&str, &[Example])] = &[
    (
        "enlist",
        &[
            ("Try Enlist on this machine", "enlist dev"),
            ("Create a token that enrolls one node", "enlist token create"),
        ],
    ),
    (
        "enlist dev",
        &[
            ("Start a control plane and a demo node; Ctrl-C stops them", "enlist dev"),
            (
                "Start three replicas, each in a process of its own that you may kill",
                "enlist dev --replicas 3",
            ),
            ("Keep the data in a directory of your own", "enlist dev --dir ./enlist-dev"),
        ],
    ),
    (
        "enlist server init",
        &[
            (
                "Initialize a domain in /var/lib/enlist, with a new root and intermediate",
                "enlist server init --domain prod.example --kek file:/etc/enlist/kek \\\n    \
                 --name cp.prod.example --root-key-out root.key",
            ),
            (
                "Import an existing CA",
                "enlist server init --domain prod.example --kek env:ENLIST_KEK_HEX \\\n    \
                 --issuer imported --ca-cert ca.pem --ca-key ca.key",
            ),
        ],
    ),
    (
        "enlist server run",
        &[
            ("Run the control plane of /var/lib/enlist", "enlist server run"),
            (
                "Use another data directory, and serve metrics on localhost",
                "enlist server run --dir /srv/enlist --metrics 127.0.0.1:9090",
            ),
            (
                "Serve health checks without TLS for a load balancer",
                "enlist server run --health 10.0.0.5:8080",
            ),
        ],
    ),
    (
        "enlist server check",
        &[("Check a configuration before a restart", "enlist server check --dir /var/lib/enlist")],
    ),
    (
        "enlist server join",
        &[(
            "Make /var/lib/enlist the directory of one more replica",
            "enlist server join --peer https://cp-1.prod.example:8443 \\\n    \
             --ca-pin sha256:PIN --kek file:/etc/enlist/kek --token-file join.token \\\n    \
             --name cp-2.prod.example",
        )],
    ),
    ("enlist server clock show", &[("Show whether the clock is believed", "enlist server clock show")]),
    (
        "enlist server clock accept",
        &[("Accept the clock after the machine was asleep", "enlist server clock accept")],
    ),
    (
        "enlist server clock repair",
        &[(
            "Set back the time of a stopped domain that ran with a wrong clock",
            "enlist server clock repair --dir /var/lib/enlist",
        )],
    ),
    (
        "enlist token create",
        &[
            ("Create a token that enrolls one node, with the default lifetime", "enlist token create"),
            (
                "Create a token for node web-1 of tenant acme, valid for 15 minutes",
                "enlist token create --node web-1 --tenant acme --expires 15m",
            ),
            (
                "Create a token while the control plane is stopped",
                "enlist token create --stopped --dir /var/lib/enlist",
            ),
            ("Create a token whose node gets labels", "enlist token create --label env=prod --label rack=7"),
        ],
    ),
    (
        "enlist token list",
        &[
            ("List the tokens that can still be used", "enlist token list"),
            ("Include used, revoked and expired tokens", "enlist token list --all"),
        ],
    ),
    (
        "enlist token revoke",
        &[("Revoke a token by its id", "enlist token revoke 01JD2Q3R4S5T6V7W8X9Y0Z1A2B")],
    ),
    (
        "enlist node list",
        &[
            ("List all nodes", "enlist node list"),
            ("List the inactive nodes of a tenant", "enlist node list --state inactive --tenant acme"),
            ("List the nodes with two labels", "enlist node list --label env=prod --label rack=7"),
            ("Find a node by a part of its hostname", "enlist node list --search web-"),
        ],
    ),
    (
        "enlist node show",
        &[
            ("Show the state, health and certificates of a node", "enlist node show web-1"),
            ("Show the audit events about a node", "enlist node show web-1 --timeline"),
        ],
    ),
    (
        "enlist node register",
        &[
            (
                "Register a machine by its MAC address and serial number",
                "enlist node register n1 --mac 52:54:00:12:34:56 --bmc-serial S1",
            ),
            ("Register a node that comes in by its SVID", "enlist node register web-1"),
            ("Register a rack from a file", "enlist node register --batch rack-7.csv --vcluster ml"),
        ],
    ),
    ("enlist node assign", &[("Assign a node to vCluster ml", "enlist node assign n1 ml")]),
    ("enlist node unassign", &[("Put a node into maintenance mode", "enlist node unassign n1")]),
    ("enlist node move", &[("Move a node to vCluster batch", "enlist node move n1 batch")]),
    (
        "enlist node set-config",
        &[("Configure one node beside its vCluster", "enlist node set-config n1 --file n1.json")],
    ),
    (
        "enlist node label",
        &[("Set one label of a node and remove another", "enlist node label web-1 env=prod rack-")],
    ),
    (
        "enlist node import",
        &[("Import a node by its existing certificate", "enlist node import --cert worker-7.pem")],
    ),
    (
        "enlist node repair-bundle",
        &[(
            "Write a repair bundle for a node, valid for an hour",
            "enlist node repair-bundle web-1 --out web-1.bundle --expires 1h",
        )],
    ),
    (
        "enlist node watch",
        &[
            ("Follow all changes of nodes", "enlist node watch"),
            ("Follow them as JSON lines", "enlist node watch --json"),
        ],
    ),
    (
        "enlist node drain",
        &[
            ("Drain a node without a time limit", "enlist node drain web-1"),
            ("Drain a node within 15 minutes", "enlist node drain web-1 --within 15m"),
            ("Drain every node of a rack, after a question", "enlist node drain --label rack=7"),
        ],
    ),
    (
        "enlist node undrain",
        &[
            ("Give a drained node work again", "enlist node undrain web-1"),
            ("Give the nodes of a rack work again", "enlist node undrain --label rack=7"),
        ],
    ),
    (
        "enlist node quarantine",
        &[
            (
                "Quarantine a node, with the reason for the audit trail",
                "enlist node quarantine web-1 --reason 'unexpected login'",
            ),
            (
                "Quarantine a whole vCluster in a script",
                "enlist node quarantine --vcluster ml --reason intrusion --yes",
            ),
        ],
    ),
    (
        "enlist node release",
        &[
            ("Release a node from quarantine", "enlist node release web-1"),
            ("Release the nodes that a file names", "enlist node release -f checked.txt"),
        ],
    ),
    (
        "enlist node recovery revoke",
        &[("End a recovery token that may have been copied", "enlist node recovery revoke web-1")],
    ),
    (
        "enlist node rotate",
        &[
            ("Order a node to renew its certificate now", "enlist node rotate web-1"),
            (
                "Order every active node of a tenant to renew its certificate",
                "enlist node rotate --tenant acme --state active",
            ),
            ("Order a node to replace its WireGuard key", "enlist node rotate --overlay web-1"),
            (
                "The same where the host has lost the key on record",
                "enlist node rotate --overlay web-1 --replace",
            ),
        ],
    ),
    ("enlist node decommission", &[("Decommission a node", "enlist node decommission web-1")]),
    (
        "enlist node revoke",
        &[
            (
                "Revoke a node, with the reason for the audit trail",
                "enlist node revoke web-1 --reason 'host stolen'",
            ),
            (
                "Revoke the nodes of a file in a script, with a result for each",
                "enlist node revoke -f stolen.txt --reason 'rack stolen' --yes --json",
            ),
        ],
    ),
    ("enlist node reinstate", &[("Let a revoked node enroll again", "enlist node reinstate web-1")]),
    ("enlist vcluster create", &[("Create vCluster ml", "enlist vcluster create ml")]),
    ("enlist vcluster list", &[("List vClusters with their nodes counted", "enlist vcluster list")]),
    (
        "enlist vcluster show",
        &[
            ("Show a vCluster and its configuration", "enlist vcluster show ml"),
            ("Show what nodes in maintenance mode are given", "enlist vcluster show --defaults"),
        ],
    ),
    (
        "enlist vcluster set-config",
        &[
            ("Set the configuration of a vCluster", "enlist vcluster set-config ml --file ml.json"),
            (
                "Set that of nodes in no vCluster",
                "enlist vcluster set-config --defaults --file maintenance.json",
            ),
        ],
    ),
    ("enlist vcluster remove", &[("Remove an empty vCluster", "enlist vcluster remove ml")]),
    (
        "enlist overlay status",
        &[("Show who has which peers, and where registry and hosts differ", "enlist overlay status")],
    ),
    (
        "enlist alert list",
        &[
            ("List the open alerts", "enlist alert list"),
            ("List the alerts about a node", "enlist alert list --node web-1"),
        ],
    ),
    (
        "enlist alert show",
        &[("Show an alert and what to do", "enlist alert show 01JD2Q3R4S5T6V7W8X9Y0Z1A2B")],
    ),
    (
        "enlist alert ack",
        &[("Acknowledge an alert by its id", "enlist alert ack 01JD2Q3R4S5T6V7W8X9Y0Z1A2B")],
    ),
    ("enlist tenant create", &[("Create tenant acme", "enlist tenant create acme")]),
    ("enlist tenant list", &[("List all tenants", "enlist tenant list")]),
    (
        "enlist policy show",
        &[
            ("Show the whole policy", "enlist policy show"),
            ("Show one value", "enlist policy show token.default_ttl"),
        ],
    ),
    (
        "enlist policy set",
        &[(
            "Let tokens live 30 minutes unless --expires says otherwise",
            "enlist policy set token.default_ttl 30m",
        )],
    ),
    ("enlist ca show", &[("Show the root, its fingerprint for --ca-pin, and the issuers", "enlist ca show")]),
    (
        "enlist ca export",
        &[
            ("Save the trust bundle that verifies node certificates", "enlist ca export > nodes.pem"),
            ("Save the CA that verifies the control plane", "enlist ca export --server > ca.pem"),
        ],
    ),
    (
        "enlist ca crl",
        &[
            ("Save the revocation lists of all issuers", "enlist ca crl > crl.pem"),
            (
                "Show the list of one issuer",
                "enlist ca crl --issuer 053d2dca3ce9b630 | openssl crl -noout -text",
            ),
            (
                "Save the lists by which hosts refuse issuers, for `enlist ca sign-crl`",
                "enlist ca crl --roots > on-record.pem",
            ),
        ],
    ),
    (
        "enlist ca roll prepare",
        &[
            ("Begin a roll: write the CSR of the next issuer", "enlist ca roll prepare --csr-out issuer.csr"),
            ("Submit the signed certificate", "enlist ca roll prepare --cert issuer.pem"),
            (
                "Begin a roll of the root: write the CSRs of the issuers below it",
                "enlist ca roll prepare --new-root --csr-out issuers.csr",
            ),
        ],
    ),
    ("enlist ca roll status", &[("Show the stage of the roll and what to do next", "enlist ca roll status")]),
    ("enlist ca roll activate", &[("Let the prepared issuer sign", "enlist ca roll activate")]),
    ("enlist ca roll retire", &[("Retire the previous issuer", "enlist ca roll retire")]),
    (
        "enlist ca roll abandon",
        &[
            ("Give up the roll that was begun", "enlist ca roll abandon"),
            (
                "Give it up in a script, although its certificates have come back",
                "enlist ca roll abandon --yes",
            ),
        ],
    ),
    (
        "enlist ca update-trust",
        &[
            (
                "Take over new roots and lists into the CA file of the current context",
                "enlist ca update-trust",
            ),
            (
                "The same where a program uses an API key",
                "enlist ca update-trust --server https://cp.prod.example:8443 --ca ca.pem \\\n    --api-key-file ci.key",
            ),
        ],
    ),
    (
        "enlist ca bootstrap",
        &[
            (
                "Issue an identity for the image of a fleet",
                "enlist ca bootstrap image-7 --expires 90d --out ./image-7",
            ),
            ("See which there are", "enlist ca bootstrap --list"),
            ("Refuse every host that still uses one", "enlist ca bootstrap image-6 --revoke"),
        ],
    ),
    (
        "enlist ca import-crl",
        &[("Tell every host to refuse the issuers of a list", "enlist ca import-crl --file denied.pem")],
    ),
    (
        "enlist ca migrate",
        &[(
            "Roll to an issuer whose key is in the HSM",
            "enlist ca migrate --to pkcs11 --csr-out issuer.csr",
        )],
    ),
    (
        "enlist ca revoke",
        &[(
            "Revoke an issuer whose key was exposed",
            "enlist ca revoke 053d2dca3ce9b630 --reason 'key exposed'",
        )],
    ),
    (
        "enlist ca rewrap",
        &[("Seal every private key under a new key file", "enlist ca rewrap --kek file:/etc/enlist/kek-2")],
    ),
    (
        "enlist ca step-ca set",
        &[(
            "step-ca has another address",
            "enlist ca step-ca set --step-ca-url https://step-ca-2.example.org",
        )],
    ),
    (
        "enlist ca sign-intermediate",
        &[(
            "Sign the CSR of the next issuer, on the machine that holds the root key",
            "enlist ca sign-intermediate --root-key root.key --root-cert ca.pem \\\n    \
             --csr issuer.csr --out issuer.pem",
        )],
    ),
    (
        "enlist ca sign-root",
        &[(
            "Make the next root, with a new key, on the machine that holds the root key",
            "enlist ca sign-root --root-key root.key --root-cert ca.pem \\\n    \
             --csr issuer.csr --new-root-key-out root-2.key --out root-2.pem",
        )],
    ),
    (
        "enlist ca sign-crl",
        &[
            (
                "List a revoked issuer, on the machine that holds the root key",
                "enlist ca sign-crl --root-key root.key --root-cert ca.pem \\\n    \
                 --issuer revoked.pem --out root-crl.pem",
            ),
            (
                "List another one beside those of the list on record",
                "enlist ca sign-crl --root-key root.key --root-cert ca.pem \\\n    \
                 --previous on-record.pem --issuer revoked.pem --out root-crl.pem",
            ),
        ],
    ),
    (
        "enlist cluster status",
        &[
            ("Show the replicas and which one leads", "enlist cluster status"),
            ("Watch a replica join, or the others elect a leader", "enlist cluster status --watch"),
        ],
    ),
    (
        "enlist cluster token",
        &[("Let one replica join within 15 minutes", "enlist cluster token --expires 15m")],
    ),
    ("enlist cluster remove", &[("Remove a replica whose machine is gone", "enlist cluster remove 2")]),
    (
        "enlist audit list",
        &[
            ("List the 20 newest audit events of the last hour", "enlist audit list --since 1h --limit 20"),
            ("List the enrollments of a node", "enlist audit list --node web-1 --event host.enrolled"),
        ],
    ),
    ("enlist audit export", &[("Export the audit trail to a file", "enlist audit export --out audit.jsonl")]),
    (
        "enlist audit verify",
        &[
            ("Verify the audit trail of the control plane", "enlist audit verify"),
            (
                "Verify an exported file, without a control plane",
                "enlist audit verify --file audit.jsonl --ca-file ca.pem",
            ),
        ],
    ),
    (
        "enlist operator add",
        &[
            (
                "Add an operator, and write a certificate and its key to ./alice",
                "enlist operator add alice --role operator --out ./alice",
            ),
            (
                "The same for a key that alice has made, with the request that she has sent",
                "enlist operator add alice --role operator --csr alice.csr --out ./alice",
            ),
            ("Add a viewer of one tenant", "enlist operator add bob --role viewer --tenant acme"),
        ],
    ),
    ("enlist operator list", &[("List all operators", "enlist operator list")]),
    (
        "enlist operator renew",
        &[
            ("Renew the certificate of the current context", "enlist operator renew"),
            ("Renew that of another context", "enlist operator renew --context prod"),
        ],
    ),
    ("enlist operator remove", &[("Remove an operator", "enlist operator remove alice")]),
    (
        "enlist operator key create",
        &[(
            "Create an API key for a CI job, valid for 30 days",
            "enlist operator key create ci --role operator --expires 30d",
        )],
    ),
    ("enlist operator key list", &[("List all API keys", "enlist operator key list")]),
    (
        "enlist operator key revoke",
        &[("Revoke an API key by its id", "enlist operator key revoke 01JD2Q3R4S5T6V7W8X9Y0Z1A2B")],
    ),
    (
        "enlist context add",
        &[
            (
                "Take in what `enlist operator add --out ./alice` has written, and use it",
                "enlist context add prod --file ./alice/context.toml --use",
            ),
            (
                "Save a control plane that is reached with an API key",
                "enlist context add ci --server https://cp.prod.example:8443 \\\n    \
                 --ca ca.pem --api-key-file ci.key",
            ),
        ],
    ),
    ("enlist context use", &[("Make prod the current context", "enlist context use prod")]),
    ("enlist context list", &[("List all saved contexts", "enlist context list")]),
    (
        "enlist context show",
        &[
            ("Show the context in use, and what chose it", "enlist context show"),
            ("Show the context prod", "enlist context show prod"),
        ],
    ),
    ("enlist context remove", &[("Remove the context prod", "enlist context remove prod")]),
    (
        "enlist compat link",
        &[("Create the links in a directory that is in PATH", "enlist compat link --dir /usr/local/bin")],
    ),
    ("enlist explain", &[("Explain why a token was refused", "enlist explain token_used")]),
    ("enlist version", &[("Print the version", "enlist version")]),
    (
        "enlist completions",
        &[("Install completions for bash", "enlist completions bash > /etc/bash_completion.d/enlist")],
    ),
    (
        "enlist man",
        &[
            ("Read the manual page", "enlist man | man -l -"),
            ("Install the pages of all commands", "enlist man --out /usr/local/share/man/man1"),
        ],
    ),
    ("plfm hosts list", &[("List the hosts of a tenant", "plfm hosts list --tenant acme")]),
    ("plfm hosts show", &[("Show a host", "plfm hosts show web-1")]),
    ("plfm hosts drain", &[("Drain a host", "plfm hosts drain web-1")]),
    ("plfm hosts decommission", &[("Decommission a host", "plfm hosts decommission web-1")]),
    ("plfm hosts revoke", &[("Revoke a host", "plfm hosts revoke web-1 --reason 'host stolen'")]),
    (
        "plfm hosts enroll-token create",
        &[("Create a token that is valid for 15 minutes", "plfm hosts enroll-token create --expires 15m")],
    ),
    ("plfm hosts enroll-token list", &[("List the pending tokens", "plfm hosts enroll-token list")]),
    (
        "plfm hosts enroll-token revoke",
        &[("Revoke a token by its id", "plfm hosts enroll-token revoke 01JD2Q3R4S5T6V7W8X9Y0Z1A2B")],
    ),
    (
        "pact node enroll",
        &[
            (
                "Enroll a node by its MAC address and serial number",
                "pact node enroll n1 --mac 52:54:00:12:34:56 --bmc-serial S1",
            ),
            ("Enroll every node of a file", "pact node enroll --batch nodes.csv"),
        ],
    ),
    ("pact node decommission", &[("Decommission a node", "pact node decommission n1 --force")]),
    ("pact node assign", &[("Assign a node to vCluster ml", "pact node assign n1 --vcluster ml")]),
    ("pact node unassign", &[("Put a node into maintenance mode", "pact node unassign n1")]),
    ("pact node move", &[("Move a node to vCluster batch", "pact node move n1 --to-vcluster batch")]),
    ("pact node list", &[("List active nodes of a vCluster", "pact node list --state active --vcluster ml")]),
    ("pact node inspect", &[("Show the enrollment of a node", "pact node inspect n1")]),
    (
        "probectl-control agent-ca init",
        &[(
            "Create the CA in /var/lib/enlist",
            "probectl-control agent-ca init --name cp.prod.example --root-key-out root.key",
        )],
    ),
    (
        "probectl-control agent-ca export",
        &[("Write the trust bundle to a file", "probectl-control agent-ca export agents.pem")],
    ),
    (
        "probectl-control enroll-token",
        &[(
            "Create a join token for an agent, valid for 15 minutes",
            "probectl-control enroll-token --tenant acme --agent probe-1 --ttl 15m",
        )],
    ),
    (
        "taskrun token generate",
        &[("Create a token that is valid for 15 minutes", "taskrun token generate --expires 15m")],
    ),
];

/// Puts the examples of the table below the help of each command.
pub fn added_to(program: Command) -> Command {
    let path = program.get_name().to_owned();
    added(program, &path)
}

fn added(command: Command, path: &str) -> Command {
    let command = match of(path) {
        [] => command,
        examples => {
            let head = command.get_styles().get_header().to_owned();
            let lines: String = examples
                .iter()
                .flat_map(|(what, line)| [format!("# {what}"), (*line).to_owned()])
                .map(|text| format!("\n  {}", text.replace('\n', "\n  ")))
                .collect();
            command.after_help(format!("{head}Examples:{head:#}{lines}"))
        }
    };
    command.mut_subcommands(|child| {
        let path = format!("{path} {}", child.get_name());
        added(child, &path)
    })
}

/// The examples of the command at this path.
pub fn of(path: &str) -> &'static [Example] {
    TABLE.iter().find(|(known, _)| *known == path).map_or(&[], |(_, examples)| examples)
}

#[cfg(test)]
mod tests;
