#!/usr/bin/env bash
# 004 from beginning to end: its variables, its flows and the rows of its failure matrix that need no other clock.
. "$(dirname "$0")/steps.sh"

step "a control plane"
enlist server init --dir "$dir" --domain gpuaas.example --kek "file:$place/kek" --listen 127.0.0.1:0 --root-key-out "$place/root.key" >/dev/null
run_server
export ENLIST_DIR=$dir
enlist policy set liveness.interval 1s >/dev/null
enlist policy set liveness.grace 5s >/dev/null
enlist policy set quarantine.observe 2s >/dev/null

step "host state: the document's variables"
mkdir "$place/gpu"
cp "$dir/ca/bundle.pem" "$place/gpu/ca.pem"
GPUAAS_ENROLLMENT_TOKEN=$(enlist token create --json | field token)
export GPUAAS_ENROLLMENT_TOKEN GPUAAS_API_URL=$url GPUAAS_CA_BUNDLE_PATH=$place/gpu/ca.pem
export GPUAAS_CERT_PATH=$place/gpu/cert.pem GPUAAS_KEY_PATH=$place/gpu/key.pem
export GPUAAS_RECOVERY_API_URL=$url GPUAAS_RECOVERY_CA_BUNDLE_PATH=$place/gpu/ca.pem
export GPUAAS_DIAGNOSTIC_PATH=$place/gpu/diagnostics
export ENLIST_AGENT_LAYOUT=gpuaas ENLIST_AGENT_METRICS_TEXTFILE=$place/gpu/metrics.prom
run_agent enlist-agent run --dir "$agent"
unset GPUAAS_ENROLLMENT_TOKEN
id=$(enlist-agent status --dir "$agent" --json | field node_id)
openssl verify -CAfile "$dir/ca/bundle.pem" -untrusted "$place/gpu/cert.pem" "$place/gpu/cert.pem" >/dev/null
[ "$(stat -L -c %a "$place/gpu/key.pem")" = 600 ] || fail "others may read the key"
until_true "there is a recovery token" test -f "$agent/recovery/token"
[ "$(stat -c %a "$agent/recovery/token")" = 600 ] || fail "others may read the recovery token"

step "renewal flow"
before=$(serial "$place/gpu/cert.pem")
token=$(sha256sum "$agent/recovery/token")
enlist node rotate "$id" >/dev/null
until_true "there is another certificate" other_than serial "$place/gpu/cert.pem" "$before"
until_true "the recovery token is another" other_than sha256sum "$agent/recovery/token" "$token"

step "metrics"
until_true "they are written" test -s "$place/gpu/metrics.prom"
for name in cert_expiry_seconds cert_renewal_attempts_total recovery_enrollment_success_total \
    last_successful_mtls_task_poll_timestamp endpoint_profile_drift_total; do
    has "$place/gpu/metrics.prom" "^gpuaas_node_agent_$name "
done

step "operator evidence"
enlist node show "$id" --json >"$place/shown"
[ "$(field schedulable <"$place/shown")" = true ] || fail "not schedulable: $(field excluded <"$place/shown")"
[ "$(field evidence.diagnostic_writable <"$place/shown")" = true ] || fail "diagnostics are not writable"
enlist-agent doctor --dir "$agent" >"$place/doctor" || { cat "$place/doctor" >&2; fail "the doctor finds fault"; }

step "recovery flow: the identity is lost, the token brings it back"
stop_agent() {
    kill "${started[-1]}"
    wait "${started[-1]}" || true
    unset 'started[-1]'
}
state_is() { [ "$(enlist node show "$id" --json | field state)" = "$1" ]; }
quarantined() { [ "$(enlist node show "$id" --json | field quarantined)" = "$1" ]; }
stop_agent
refused 3 enlist-agent recover --dir "$agent"
has "$place/out" recovery_not_needed
until_true "it has been silent for long enough" state_is inactive
rm "$agent/identity/current"
run_agent enlist-agent run --dir "$agent"
[ "$(enlist-agent status --dir "$agent" --json | field node_id)" = "$id" ] || fail "another node"
until_true "it is active" state_is active

step "operator repair bundle"
stop_agent
rm -r "$agent/recovery" "$agent/identity"
enlist node repair-bundle "$id" --out "$place/bundle.json" >/dev/null
[ "$(stat -c %a "$place/bundle.json")" = 600 ] || fail "others may read the bundle"
grep -q 'PRIVATE KEY' "$place/bundle.json" && fail "a private key travels"
until_true "it is fenced" quarantined true
enlist-agent recover --dir "$agent" --bundle "$place/bundle.json" >/dev/null
run_agent enlist-agent run --dir "$agent"
until_true "it is let go once it has been seen to be well" quarantined false

step "node identity revoked: no self-recovery"
enlist node revoke "$id" --reason sold >/dev/null
revoked() { [ "$(enlist-agent status --dir "$agent" --json | field state)" = revoked ]; }
until_true "the agent hears of it" revoked
stop_agent
if [ -f "$agent/recovery/token" ]; then refused 3 enlist-agent recover --dir "$agent"; fi
refused 3 enlist node repair-bundle "$id" --out "$place/other.json"

step "every attempt and outcome is on record"
enlist node show "$id" --timeline --json >"$place/timeline"
for event in host.enrolled certificate.renewed recovery_token.rotated recovery.refused recovery.requested recovery.issued \
    recovery.resolved repair_bundle.issued host.quarantined host.released host.revoked; do
    has "$place/timeline" "\"event_type\":\"$event\""
done
enlist audit verify >/dev/null
step "done"
