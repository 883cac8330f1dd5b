//! The table of error codes.

use super::{Code, Grpc};

/// `NAME word status grpc retry|final hint` makes a constant and a row of [`CODES`].
macro_rules! codes {
    ($($name:ident $word:literal $status:literal $grpc:ident $again:ident $hint:literal;)*) => {
        $(
            #[doc = concat!("`", $word, "`: ", $hint)]
            pub const $name: &Code = &Code {
                word: $word,
                status: $status,
                grpc: Grpc::$grpc,
                retryable: codes!(@ $again),
                hint: $hint,
            };
        )*

        /// Every error code there is.
        pub const CODES: &[&Code] = &[$($name),*];

        /// Every error code with its page.
        pub const PAGES: &[(&Code, &str)] =
            &[$(($name, include_str!(concat!("../../../../docs/errors/", $word, ".md")))),*];
    };
    (@ retry) => { true };
    (@ final) => { false };
}

codes! {
    // What the caller sent cannot be read.
    BAD_REQUEST "bad_request" 400 InvalidArgument final
        "correct the request: the message names the field and what was expected";
    TOKEN_MALFORMED "token_malformed" 400 InvalidArgument final
        "pass the token exactly as it was printed, without quotes or line breaks";
    CSR_INVALID "csr_invalid" 400 InvalidArgument final
        "generate the CSR again: a PKCS#10 request (PEM; DER in pact's API) with a P-256, P-384, Ed25519 or RSA 2048-4096 key, signed with SHA-256 or stronger";
    WIREGUARD_KEY_INVALID "wireguard_key_invalid" 400 InvalidArgument final
        "send the base64 of a 32-byte public key as `wg pubkey` prints it";
    ENDPOINT_INVALID "endpoint_invalid" 400 InvalidArgument final
        "name an address and a port at which the other hosts of the tenant reach this host's WireGuard; the message says what is wrong with this one";
    IDEMPOTENCY_KEY_INVALID "idempotency_key_invalid" 400 InvalidArgument final
        "use 1 to 128 visible ASCII characters for Idempotency-Key";
    TOKEN_TTL_TOO_LONG "token_ttl_too_long" 400 InvalidArgument final
        "request a shorter lifetime, at most the policy's token.max_ttl";
    TOKEN_TTL_TOO_SHORT "token_ttl_too_short" 400 InvalidArgument final
        "request a lifetime of at least 10s";
    POLICY_VALUE_INVALID "policy_value_invalid" 400 InvalidArgument final
        "set a value of the kind that the message names; `enlist policy show` lists what is set";
    KEY_KIND_NOT_ALLOWED "key_kind_not_allowed" 400 InvalidArgument final
        "use a kind of key that the profile lists, or add this kind with `enlist policy set profile.NAME.keys`";
    OPERATOR_KEY_TTL_INVALID "operator_key_ttl_invalid" 400 InvalidArgument final
        "request a lifetime within the limits that the message names";
    BOOTSTRAP_TTL_INVALID "bootstrap_ttl_invalid" 400 InvalidArgument final
        "request a lifetime within the limits that the message names";
    CERTIFICATE_INVALID "certificate_invalid" 400 InvalidArgument final
        "send a PEM certificate of a node, with its id or worker:ID as common name";
    CERTIFICATE_NOT_OURS "certificate_not_ours" 400 InvalidArgument final
        "import certificates of the CA that the domain was initialized with (`--issuer imported` or `--from-taskrun`)";
    CERTIFICATE_EXPIRED "certificate_expired" 400 InvalidArgument final
        "issue a new certificate, or enroll with a token: `enlist token create`";
    MAC_INVALID "mac_invalid" 400 InvalidArgument final
        "pass the address of a network interface, such as 52:54:00:12:34:56: neither zero nor broadcast nor multicast";
    DOCUMENT_INVALID "document_invalid" 400 InvalidArgument final
        "send a JSON object whose keys stand once each and that is nested at most 64 deep";
    TOO_LARGE "too_large" 413 ResourceExhausted final
        "send at most 64 KiB, of a configuration document 256 KiB, of a batch 4 MiB";
    UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" 415 InvalidArgument final
        "send the header Content-Type: application/json with a body; for gRPC application/grpc";
    METHOD_NOT_ALLOWED "method_not_allowed" 405 Unimplemented final
        "use a method that this path has; /openapi.json lists them";
    TIMEOUT "timeout" 408 DeadlineExceeded retry
        "send the whole request within 30 seconds";

    // Who the caller is, and what it may do.
    UNAUTHENTICATED "unauthenticated" 401 Unauthenticated final
        "present a valid client certificate of this domain or a valid API key";
    TOKEN_INVALID "token_invalid" 401 Unauthenticated final
        "ask an operator for a token of this domain: `enlist token create`";
    TOKEN_EXPIRED "token_expired" 401 Unauthenticated final
        "ask an operator for a new token: `enlist token create`";
    TOKEN_REVOKED "token_revoked" 401 Unauthenticated final
        "ask an operator why the token was revoked, and for a new one: `enlist token create`";
    FORBIDDEN "forbidden" 403 PermissionDenied final
        "use an operator or API key whose role and tenants allow this; `enlist operator list` and `enlist operator key list` show them";
    CROSS_SITE "cross_site" 403 PermissionDenied final
        "use a program, or a page of the control plane itself: no other web site may send requests with your credential";
    LOCAL_ONLY "local_only" 403 PermissionDenied final
        "run the command on the machine of the control plane, over its socket: `--dir DIR` or `--socket PATH`";
    NOT_YOUR_NODE "not_your_node" 403 PermissionDenied final
        "use the certificate of the node that the request is about";
    NOT_YOUR_HOST "not_your_host" 403 PermissionDenied final
        "use the certificate of the host that the path names";
    NOT_YOUR_VCLUSTER "not_your_vcluster" 403 PermissionDenied final
        "name the vCluster that the node is in, or none; `enlist node show ID` tells which it is";
    NODE_NOT_REGISTERED "node_not_registered" 403 PermissionDenied final
        "register the node that the SPIFFE id stands for (`enlist node register ID`), or correct `map` in [[spire]] of enlist.toml";
    SVID_RENEWAL_OFF "svid_renewal_off" 403 PermissionDenied final
        "nothing, where hosts are to live by SPIRE alone; else `enlist policy set spire.renew true`, or give the host a token";
    BOOTSTRAP_READ_NOT_ALLOWED "bootstrap_read_not_allowed" 403 PermissionDenied final
        "enroll the host, or allow it with `enlist policy set bootstrap.read defaults|vclusters`";
    NODE_REVOKED "node_revoked" 403 PermissionDenied final
        "find out why (`enlist audit list --node ID`); `enlist node reinstate ID`, or for a machine `enlist node register ID` again, lets the node enroll again";
    CERTIFICATE_SUPERSEDED "certificate_superseded" 403 PermissionDenied final
        "use the newest certificate; if it is lost, enroll again with a token for this node: `enlist token create --node ID`";
    NODE_ID_IN_USE "node_id_in_use" 403 PermissionDenied final
        "choose another node id, or pin the token to this one: `enlist token create --node ID`";
    WORKER_REVOKED "worker_revoked" 403 PermissionDenied final
        "find out why (`enlist audit list --node ID`); `enlist node reinstate ID` lets the node enroll again";
    WORKER_ID_IN_USE "worker_id_in_use" 403 PermissionDenied final
        "choose another worker id, or pin the token to this one: `enlist token create --node ID`";
    ATTESTOR_NOT_ALLOWED "attestor_not_allowed" 403 PermissionDenied final
        "use a credential that the policy accepts, from where it accepts it (`enlist policy show`), or change the policy: `enlist policy set attestors`, `hardware.source_cidrs`";

    // What the request is about does not exist, or not like that.
    NOT_FOUND "not_found" 404 NotFound final
        "check the path; /openapi.json lists every path";
    NODE_NOT_FOUND "node_not_found" 404 NotFound final
        "check the id with `enlist node list`; nodes of other tenants are not visible";
    WORKER_NOT_FOUND "worker_not_found" 404 NotFound final
        "check the id with `enlist node list`; workers of other tenants are not visible";
    TOKEN_NOT_FOUND "token_not_found" 404 NotFound final
        "check the id with `enlist token list --all`; it is the token_id, not the token";
    TENANT_NOT_FOUND "tenant_not_found" 404 NotFound final
        "check the name with `enlist tenant list`, or create the tenant: `enlist tenant create`";
    PROFILE_NOT_FOUND "profile_not_found" 404 NotFound final
        "check the name with `enlist policy show`, or create the profile: `enlist policy set profile.NAME.lifetime`";
    OPERATOR_NOT_FOUND "operator_not_found" 404 NotFound final
        "check the name with `enlist operator list`";
    OPERATOR_KEY_NOT_FOUND "operator_key_not_found" 404 NotFound final
        "check the id with `enlist operator key list`; it is the key_id, not the key";
    POLICY_KEY_UNKNOWN "policy_key_unknown" 404 NotFound final
        "check the key with `enlist policy show`";
    ALERT_NOT_FOUND "alert_not_found" 404 NotFound final
        "check the id with `enlist alert list`";
    ISSUER_NOT_FOUND "issuer_not_found" 404 NotFound final
        "check the id with `enlist ca show`";
    NO_OVERLAY "no_overlay" 404 NotFound final
        "set `overlay.enable = true` in the host's agent.toml and restart its agent; with the plfm API, enroll the host with a WireGuard key";
    NODE_NOT_ENROLLED "node_not_enrolled" 404 NotFound final
        "register the machine: `enlist node register ID --mac MAC`; what is registered must match what the machine says of itself";
    BOOTSTRAP_NOT_FOUND "bootstrap_not_found" 404 NotFound final
        "check the name with `enlist ca bootstrap --list`";
    VCLUSTER_NOT_FOUND "vcluster_not_found" 404 NotFound final
        "check the name with `enlist vcluster list`, or create the vCluster: `enlist vcluster create`; it must be of the node's tenant";
    REPLICA_NOT_FOUND "replica_not_found" 404 NotFound final
        "check the id with `enlist cluster status`";
    ALREADY_ACTIVE "already_active" 409 AlreadyExists final
        "if this is the machine itself, wait until the node is inactive (`liveness.grace`); if not, somebody else has its place: see `enlist node show ID --timeline`";
    NODE_ALREADY_ENROLLED "node_already_enrolled" 409 FailedPrecondition final
        "use the node as it is, or choose another id; to register it with other hardware, decommission it first: `enlist node decommission ID`";
    HARDWARE_IDENTITY_CONFLICT "hardware_identity_conflict" 409 FailedPrecondition final
        "find the node that has this hardware (`macs` in `enlist node list --json`), and correct the registration that is wrong; if no node that you may see has it, another tenant does";
    HARDWARE_QUOTA "hardware_quota" 409 FailedPrecondition final
        "decommission machines that are no longer there, or have an operator of all tenants register them or raise `hardware.max_per_tenant`";
    VCLUSTER_EXISTS "vcluster_exists" 409 AlreadyExists final
        "use the vCluster as it is, or choose another name";
    VCLUSTER_IN_USE "vcluster_in_use" 409 FailedPrecondition final
        "move its nodes first: `enlist node list --vcluster NAME`, `enlist node move ID NAME`";
    ACTIVE_SESSIONS "active_sessions" 409 FailedPrecondition final
        "see who works there with `enlist node show ID`; `enlist node decommission ID --force` ends the sessions with the node";
    ALREADY_ASSIGNED "already_assigned" 409 FailedPrecondition final
        "move the node: `enlist node move ID VCLUSTER`";
    NOT_ASSIGNED "not_assigned" 409 FailedPrecondition final
        "assign the node: `enlist node assign ID VCLUSTER`";
    SERIAL_MISMATCH "serial_mismatch" 409 FailedPrecondition final
        "send the serial of the certificate that the node uses now";
    OUT_OF_RANGE "out_of_range" 400 OutOfRange final
        "resume from a sequence that was received";
    UNDERLAY_UNREACHABLE "underlay_unreachable" 422 FailedPrecondition final
        "check the network: the host must be reachable at the underlay endpoint that it names; then enroll again with the same token";
    KEY_IN_USE "key_in_use" 409 AlreadyExists final
        "generate a new key and send a request for that key";
    NO_CERTIFICATE "no_certificate" 409 FailedPrecondition final
        "enroll the node first: `enlist token create --node ID`";
    HELLO_EXPECTED "hello_expected" 409 FailedPrecondition final
        "send Hello first";
    ROLL_IN_PROGRESS "roll_in_progress" 409 FailedPrecondition final
        "finish the roll that is in progress (`enlist ca roll status` names its next step), or give it up: `enlist ca roll abandon`";
    ROOT_IN_USE "root_in_use" 409 FailedPrecondition final
        "let the named nodes connect and store the new trust bundle, or wait until their certificates expire; --force retires the root all the same, and these nodes have to recover";
    LIST_OLDER "list_older" 409 FailedPrecondition final
        "import the newest list; `enlist ca show --json` has the number of the one on record";
    LIST_INVALID "list_invalid" 400 InvalidArgument final
        "sign a list where the root key is, with `enlist ca sign-crl`; its --previous FILE takes over what the list on record denies, and `enlist ca crl --roots` writes that list";
    NO_ROLL "no_roll" 409 FailedPrecondition final
        "begin a roll: `enlist ca roll prepare --csr-out FILE`";
    ISSUER_NOT_PREPARED "issuer_not_prepared" 409 FailedPrecondition final
        "prepare an issuer: `enlist ca roll prepare`; `enlist ca show` lists the issuers";
    NOT_ADOPTED "not_adopted" 409 FailedPrecondition final
        "start the agents of the nodes that lack it, which store the new trust bundle within seconds, or wait for them (`enlist ca roll status`); decommission nodes that are gone, or override with --force";
    ISSUER_IN_USE "issuer_in_use" 409 FailedPrecondition final
        "let those renew that the message names (`enlist node rotate ID` makes a node renew now) or wait until their certificates expire, then retire the issuer again; a bootstrap identity goes with `enlist ca bootstrap NAME --revoke`, once hosts have the files of another";
    NO_REVOCATION_LIST "no_revocation_list" 409 FailedPrecondition final
        "ask for the list of a sealed or imported issuer (CRL in `enlist ca show --json`); what an ephemeral issuer signed is refused by the control plane itself once it is revoked";
    NO_EPHEMERAL_ISSUERS "no_ephemeral_issuers" 409 FailedPrecondition final
        "ephemeral issuers are chosen once, when a domain is initialized: `enlist server init --issuer ephemeral`";
    ISSUER_INVALID "issuer_invalid" 409 FailedPrecondition final
        "the message names what is wrong with the issuer's certificate; check the clock of the replica that made it";
    RECOVERY_NOT_NEEDED "recovery_not_needed" 409 FailedPrecondition final
        "if the node itself did not try to recover, its recovery token was stolen: see `enlist node show ID --timeline`, then `enlist node rotate ID`";
    TOKEN_SUPERSEDED "token_superseded" 409 FailedPrecondition final
        "use the newest recovery token that the node was given; if it is lost, ask for a repair bundle: `enlist node repair-bundle ID --out FILE`";
    NODE_QUARANTINED "node_quarantined" 409 FailedPrecondition final
        "an operator must release the node (`enlist node release ID`) or issue a repair bundle: `enlist node repair-bundle ID --out FILE`";
    CONFIRMATION_NEEDED "confirmation_needed" 409 FailedPrecondition final
        "if that is what you want, confirm it: answer the question or pass --yes; in the API repeat the id as `confirm` (for policy the key, for the clock `clock`)";
    CLOCK_BEHIND "clock_behind" 409 FailedPrecondition final
        "correct the clock; if it is right, stop the control plane and run `enlist server clock repair`";
    NODE_CONNECTED "node_connected" 409 FailedPrecondition final
        "look at the host first: whoever uses the token takes its place. If that is what you want, repeat with --replace (`\"replace\": true`)";
    REPAIR_BUNDLE_MISMATCH "repair_bundle_mismatch" 409 FailedPrecondition final
        "use the repair bundle exactly as it was issued, or issue a new one: `enlist node repair-bundle ID --out FILE`";
    TOKEN_USED "token_used" 409 FailedPrecondition final
        "a token works once: ask an operator for a new one (`enlist token create`); `enlist node revoke ID` revokes the node that was enrolled with it";
    REKEY_NOT_ORDERED "rekey_not_ordered" 409 FailedPrecondition final
        "order it: `enlist node rotate --overlay ID` (`--replace` if the host has lost the key on record); or put the key on record back into DIR/wireguard/private.key";
    WIREGUARD_KEY_UNPROVEN "wireguard_key_unproven" 403 PermissionDenied final
        "prove the key against the challenge of the connection that is open: HMAC under the X25519 product, as the protocol says";
    WIREGUARD_KEY_IN_USE "wireguard_key_in_use" 409 AlreadyExists final
        "find out which host has this key, as after a copied disk; on the copy remove wireguard/private.key from the agent's directory and enroll with a new token";
    ALREADY_CONFIRMED "already_confirmed" 409 FailedPrecondition final
        "the node's identity is in use; if this host did not confirm it, `enlist token create --node ID` and enroll again";
    SERIAL_IN_USE "serial_in_use" 409 AlreadyExists final
        "issue the certificate again with a serial of its own";
    WOULD_LOSE_MAJORITY "would_lose_majority" 409 FailedPrecondition final
        "start the replicas that did not answer (`enlist cluster status` shows which are unreachable), or remove one that is gone for good before this one; bring another in before the only one goes";
    REPLICA_REMOVED "replica_removed" 409 FailedPrecondition final
        "the removal is final: to use the machine again, join it as a new replica, with a new token (`enlist cluster token`) and an empty directory";
    PEER_ADDRESS_IN_USE "peer_address_in_use" 409 AlreadyExists final
        "choose another --peer-listen; if a replica that is gone has this address, remove that replica first: `enlist cluster remove ID`";
    TOO_MANY_REPLICAS "too_many_replicas" 409 FailedPrecondition final
        "remove a replica that is gone: `enlist cluster status`, `enlist cluster remove ID`";
    KEK_WRONG "kek_wrong" 409 FailedPrecondition final
        "pass the key-encryption key of the domain with --kek; `kek` in the enlist.toml of a replica says where that replica reads it from";
    REPLICA_DUPLICATE "replica_duplicate" 409 AlreadyExists final
        "stop one of the two processes; a directory runs in one place only, and another machine joins with a token: `enlist cluster token`";
    REPLICA_ROLLED_BACK "replica_rolled_back" 409 FailedPrecondition final
        "if this directory is a copy, stop its process and start the original; if the original is lost, remove the replica (`enlist cluster remove ID`) and join again with an empty directory";
    TENANT_EXISTS "tenant_exists" 409 AlreadyExists final
        "use the tenant as it is, or choose another name";
    OPERATOR_EXISTS "operator_exists" 409 AlreadyExists final
        "choose another name, or remove the old one first: `enlist operator remove`";
    ALREADY_FOUNDED "already_founded" 409 AlreadyExists final
        "use the existing domain, or initialize a new one in an empty directory";

    // Too much at once.
    RATE_LIMITED "rate_limited" 429 ResourceExhausted retry
        "wait for the time in Retry-After, then send the request again; the agent's daemon does so by itself";
    TOO_MANY_STREAMS "too_many_streams" 429 ResourceExhausted retry
        "close a stream or a waiting request of this credential, or wait until dead connections time out";
    TOO_MANY_CERTIFICATES "too_many_certificates" 429 ResourceExhausted retry
        "wait until older certificates of the node or operator have expired, and renew less often";
    TOO_MANY_ISSUERS "too_many_issuers" 429 ResourceExhausted retry
        "find out why the control plane restarts so often (`enlist audit list --event ca.published`); nodes keep their certificates meanwhile, and issuing works again when the oldest certificates have expired";
    TOO_MANY_BOOTSTRAPS "too_many_bootstraps" 429 ResourceExhausted retry
        "use a bootstrap identity that exists, or wait until one has expired; `enlist ca bootstrap --list` shows them";
    TOO_MANY_TOKENS "too_many_tokens" 429 ResourceExhausted retry
        "use a token that was created for a replica before, or wait until one has expired";
    TOO_SLOW "too_slow" 429 ResourceExhausted retry
        "connect again, and read messages as they arrive";
    OVERLOADED "overloaded" 429 ResourceExhausted retry
        "wait for the time in Retry-After plus a random delay, then send the request again";

    // The control plane cannot do it now.
    TRY_AGAIN "try_again" 503 Aborted retry
        "send the same request again: another change was committed first";
    OUTCOME_UNKNOWN "outcome_unknown" 503 Unavailable retry
        "send the same request again, with the same Idempotency-Key if it had one";
    UNAVAILABLE "unavailable" 503 Unavailable retry
        "send the request again shortly, or to another replica; /readyz gives the reasons";
    NO_QUORUM "no_quorum" 503 Unavailable retry
        "bring back enough replicas for a majority (`enlist cluster status` shows which are unreachable), then send the request again";
    STALE "stale" 503 Unavailable retry
        "send the request to another replica, or again when this one has found a majority of the others; `enlist cluster status` shows what it reaches";
    CLOCK_SKEW "clock_skew" 503 Unavailable retry
        "correct the clock of the control plane's machine, or accept it there: `enlist server clock accept` (one that was set back: stop, `enlist server clock repair`); then send the request again";
    ISSUER_UNAVAILABLE "issuer_unavailable" 503 Unavailable retry
        "send the request again shortly; if this persists, `enlist ca show` says which issuers are active and why an HSM or step-ca does not sign";
    ISSUER_REFUSED "issuer_refused" 503 Unavailable retry
        "have an operator look at `enlist ca show`, which says why step-ca refuses: its provisioner's name, key and limits, a configuration that it has not read since the provisioner was added (SIGHUP), or a clock; then send the request again";
    ISSUER_MISBEHAVED "issuer_misbehaved" 502 Internal final
        "have an operator look at `enlist alert list`, which says what step-ca answered; correct the provisioner's template, or find out who answers in its place";
    REQUEST_TOO_OLD "request_too_old" 503 FailedPrecondition final
        "check whether the request was carried out, then send it as a new request";
    ADDRESSES_EXHAUSTED "addresses_exhausted" 503 ResourceExhausted final
        "shorten the policy's overlay.cooldown, so that released addresses can be used again sooner";
    NOT_FOUNDED "not_founded" 503 FailedPrecondition final
        "initialize the domain first: `enlist server init`";
    INTERNAL "internal" 500 Internal final
        "give the request id to whoever runs the control plane: its log has the cause";
}
