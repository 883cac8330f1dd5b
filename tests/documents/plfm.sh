#!/usr/bin/env bash
# 000 from beginning to end: its command lines and its HTTP calls, in its order.
. "$(dirname "$0")/steps.sh"

step "a control plane"
enlist server init --dir "$dir" --domain plfm.example --kek "file:$place/kek" --listen 127.0.0.1:0 >/dev/null
run_server
export ENLIST_DIR=$dir

token_of() { sed -n 's/^Token: //p' "$1"; }

step "1: the operator creates a token"
plfm hosts enroll-token create --expires 1h >"$place/created"
has "$place/created" '^Enrollment token created\.$'
has "$place/created" '^Token: enroll_[A-Za-z0-9_-]{43}$'
has "$place/created" '^Expires: [0-9-]{10}T[0-9:]{8}Z$'
has "$place/created" '^Use this token within 1 hour to enroll a new host\.$'
has "$place/created" '^This token can only be used once\.$'
token=$(token_of "$place/created")
refused 3 plfm hosts enroll-token create --expires 25h
http 401 POST /v1/hosts/enroll-tokens "${json[@]}" '{}' >/dev/null

step "tokens are listed and revoked"
id=$(plfm hosts enroll-token create --json | field token_id)
plfm hosts enroll-token list >"$place/listed"
has "$place/listed" "$id"
plfm hosts enroll-token revoke "$id"
plfm hosts enroll-token list >"$place/listed"
! grep -q "$id" "$place/listed" || fail "a revoked token is still pending"

step "2, 3: a host makes its keys and calls the endpoint"
csr host /CN=host
wireguard() { openssl genpkey -algorithm X25519 | openssl pkey -pubout -outform DER | tail -c 32 | base64; }
key=$(wireguard)
request() {
    object enrollment_token "$1" wireguard_public_key "$2" mtls_csr "$3" | python3 -c 'import json, sys
body = json.load(sys.stdin)
body["underlay_endpoint"] = {"ipv4": "127.0.0.1", "port": 51820}
body["hardware_facts"] = {"cpu_cores": 32, "memory_bytes": 137438953472, "disk_bytes": 1099511627776, "arch": "amd64"}
print(json.dumps(body))'
}

step "4: what is wrong is refused, and does not cost the token"
http 400 POST /v1/hosts/enroll "${json[@]}" "$(request "$token" "$key" nonsense)" | field error.code | grep -qx csr_invalid
http 401 POST /v1/hosts/enroll "${json[@]}" "$(request "enroll_$(printf 'A%.0s' {1..43})" "$key" "@$place/host.csr")" >/dev/null

step "5: credentials"
http 201 POST /v1/hosts/enroll "${json[@]}" "$(request "$token" "$key" "@$place/host.csr")" >"$place/enrolled"
host=$(field host_id <"$place/enrolled")
field mtls_cert <"$place/enrolled" >"$place/host.crt"
field mtls_ca_chain <"$place/enrolled" >"$place/host-ca.crt"
openssl verify -CAfile "$place/host-ca.crt" -untrusted "$place/host.crt" "$place/host.crt" >/dev/null
[ "$(field overlay_config.listen_port <"$place/enrolled")" = 51820 ] || fail "another port"
[ "$(field overlay_config.mtu <"$place/enrolled")" = 1420 ] || fail "another MTU"
[ "$(plfm hosts show "$host" --json | field state)" = enrolled ] || fail "not enrolled"

step "a token works once, a WireGuard key on one host"
http 409 POST /v1/hosts/enroll "${json[@]}" "$(request "$token" "$(wireguard)" "@$place/host.csr")" | field error.code | grep -qx token_used
plfm hosts enroll-token create >"$place/created"
csr second /CN=second
http 409 POST /v1/hosts/enroll "${json[@]}" "$(request "$(token_of "$place/created")" "$key" "@$place/second.csr")" |
    field error.code | grep -qx wireguard_key_in_use

step "7: the host confirms with its certificate"
mine=(--cert "$place/host.crt" --key "$place/host.key")
http 401 POST "/v1/hosts/$host/confirm-enrollment" >/dev/null
http 200 POST "/v1/hosts/$host/confirm-enrollment" "${mine[@]}" | field state | grep -qx active
http 403 POST /v1/hosts/01JHOST/confirm-enrollment "${mine[@]}" | field error.code | grep -qx not_your_host

step "2 to 7 again, by the agent"
plfm hosts enroll-token create --expires 10m >"$place/created"
export ENLIST_AGENT_SERVER=$url ENLIST_AGENT_CA_FILE=$dir/ca/bundle.pem ENLIST_AGENT_DIR=$agent
plfm-agent enroll --token "$(token_of "$place/created")" --underlay 127.0.0.1:51821
for name in certs/agent.key wireguard/private.key; do
    [ "$(stat -L -c %a "$agent/$name")" = 600 ] || fail "others may read $name"
done
openssl verify -CAfile "$agent/certs/ca.crt" -untrusted "$agent/certs/agent.crt" "$agent/certs/agent.crt" >/dev/null
http 200 GET /readyz --cert "$agent/certs/agent.crt" --key "$agent/certs/agent.key" >/dev/null
run_agent plfm-agent run
second=$(enlist-agent status --json | field node_id)
plfm hosts list >"$place/listed"
has "$place/listed" "$host +active"
has "$place/listed" "$second +active"

step "the certificate is renewed"
before=$(serial "$agent/certs/agent.crt")
enlist node rotate "$second" >/dev/null
until_true "there is another certificate" other_than serial "$agent/certs/agent.crt" "$before"
openssl verify -CAfile "$agent/certs/ca.crt" -untrusted "$agent/certs/agent.crt" "$agent/certs/agent.crt" >/dev/null

step "graceful decommission"
plfm hosts drain "$host" | grep -q draining
plfm hosts decommission "$host" | grep -q decommissioned

step "immediate revocation"
plfm hosts revoke "$second" --reason compromised | grep -q disabled
revoked() { [ "$(enlist-agent status --json | field state)" = revoked ]; }
until_true "the agent hears of it" revoked
curl -sS --cacert "$dir/ca/bundle.pem" --cert "$agent/certs/agent.crt" --key "$agent/certs/agent.key" "$url/readyz" \
    >"$place/out" 2>&1 && fail "a revoked host is let in"

step "the audit trail has it all"
enlist audit list --json >"$place/audit"
for event in enrollment_token.created enrollment_token.revoked host.enrolled host.active certificate.renewed \
    host.draining host.decommissioned host.revoked; do
    has "$place/audit" "\"event_type\":\"$event\""
done
has "$place/audit" '"event_type":"host.revoked".*"reason":"compromised"|"reason":"compromised".*"event_type":"host.revoked"'
enlist audit verify >/dev/null
step "done"
