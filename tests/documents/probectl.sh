#!/usr/bin/env bash
# 002 from beginning to end: its command lines and its HTTP calls, in its order.
. "$(dirname "$0")/steps.sh"

step "decision 2: the hierarchy"
export ENLIST_DIR=$dir
probectl-control agent-ca init --listen 127.0.0.1:0 >"$place/init" 2>"$place/warned"
has "$place/init" 'BEGIN PRIVATE KEY'
has "$place/warned" 'key-encryption key'
refused 1 probectl-control agent-ca init
run_server
probectl-control agent-ca export "$place/agents.pem"
probectl-control agent-ca export - | cmp - "$place/agents.pem"
enlist tenant create acme >/dev/null

step "decision 1: a join token from the command line"
probectl-control enroll-token -tenant acme -agent probe-1 -ttl 1h >"$place/minted"
token=$(grep -Eo 'pjt_[0-9a-f]{64}' "$place/minted" | head -1)
pin=$(openssl x509 -in "$dir/ca/server.pem" -outform DER | sha256sum | cut -d' ' -f1)
has "$place/minted" "$pin"
refused 3 probectl-control enroll-token -tenant nobody

step "decision 3: the agent enrolls"
refused 4 probectl-agent enroll --server "$url" --token "$token" --dir "$agent" --ca-pin "$(printf 'ab%.0s' {1..32})" --timeout 3s
probectl-agent enroll --server "$url" --token "$token" --dir "$agent" --ca-pin "$pin"
for name in key.pem cert.pem ca.pem; do
    [ "$(stat -L -c %a "$agent/$name")" = 600 ] || fail "others may read $name"
done
has "$agent/key.pem" 'BEGIN EC PRIVATE KEY'
openssl verify -CAfile "$agent/ca.pem" "$agent/cert.pem" >/dev/null
openssl verify -CAfile "$place/agents.pem" "$agent/cert.pem" >/dev/null
openssl x509 -in "$agent/cert.pem" -noout -text >"$place/text"
has "$place/text" 'URI:spiffe://probectl/tenant/acme/agent/probe-1'
has "$place/text" 'TLS Web Client Authentication'
refused 3 probectl-agent enroll --server "$url" --token "$token" --dir "$place/again" --ca-pin "$pin"

step "the same by hand: mint over the API, enroll, rotate with a proof"
operator 201 POST /v1/agents/enroll-tokens -H 'X-Tenant: acme' "${json[@]}" '{"ttl_seconds":600}' >"$place/minted"
token=$(field token <"$place/minted")
csr first /CN=ignored
enroll() { object token "$1" csr_pem "@$2" hostname probe version 1.0 attestor "${3-join-token}"; }
http 400 POST /enroll/agent "${json[@]}" "$(enroll "$token" "$place/first.csr" aws-iid)" >/dev/null
http 200 POST /enroll/agent "${json[@]}" "$(enroll "$token" "$place/first.csr")" >"$place/identity"
http 401 POST /enroll/agent "${json[@]}" "$(enroll "$token" "$place/first.csr")" >/dev/null
[ "$(field tenant_id <"$place/identity")" = acme ] || fail "another tenant than the token's"
id=$(field agent_id <"$place/identity")
spiffe=$(field spiffe_id <"$place/identity")
field cert_pem <"$place/identity" >"$place/first.crt"
field ca_bundle <"$place/identity" >"$place/first-ca.pem"
openssl verify -CAfile "$place/first-ca.pem" "$place/first.crt" >/dev/null

# rotate OLD NEW: the body, with the old key's signature over the new request.
rotate() {
    local proof
    proof=$(openssl dgst -sha256 -sign "$place/$1.key" "$place/$2.csr" | od -An -v -tx1 | tr -d ' \n')
    object cert_pem "@$place/$1.crt" csr_pem "@$place/$2.csr" proof "$proof"
}
csr second /CN=somebody-else
http 200 POST /enroll/agent/rotate "${json[@]}" "$(rotate first second)" >"$place/identity"
[ "$(field spiffe_id <"$place/identity")" = "$spiffe" ] || fail "the identity has changed"
field cert_pem <"$place/identity" >"$place/second.crt"
http 200 GET /readyz --cert "$place/second.crt" --key "$place/second.key" >/dev/null
cp "$place/first.key" "$place/wrong.key"
cp "$place/second.crt" "$place/wrong.crt"
csr third /CN=third
http 401 POST /enroll/agent/rotate "${json[@]}" "$(rotate wrong third)" >/dev/null

step "the agent rotates by itself"
run_agent probectl-agent run --dir "$agent"
before=$(serial "$agent/cert.pem")
enlist node rotate probe-1 >/dev/null
until_true "there is another certificate" other_than serial "$agent/cert.pem" "$before"
openssl verify -CAfile "$agent/ca.pem" "$agent/cert.pem" >/dev/null
has "$agent/key.pem" 'BEGIN EC PRIVATE KEY'

step "revocation"
operator 200 POST "/v1/agents/$id/revoke" -H 'X-Tenant: acme' >/dev/null
operator 200 POST /v1/agents/probe-1/revoke -H 'X-Tenant: acme' >/dev/null
http 401 POST /enroll/agent/rotate "${json[@]}" "$(rotate second third)" >/dev/null
curl -sS --cacert "$dir/ca/bundle.pem" --cert "$place/second.crt" --key "$place/second.key" "$url/readyz" \
    >"$place/out" 2>&1 && fail "a revoked agent is let in"
revoked() { [ "$(enlist-agent status --dir "$agent" --json | field state)" = revoked ]; }
until_true "the agent hears of it" revoked

step "every issuance is on record"
enlist audit list --json >"$place/audit"
for event in enrollment_token.created host.enrolled certificate.renewed host.revoked; do
    has "$place/audit" "\"event_type\":\"$event\""
done
enlist audit verify >/dev/null
step "done"
