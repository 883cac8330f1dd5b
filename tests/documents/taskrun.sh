#!/usr/bin/env bash
# 003 from beginning to end: its command line, its HTTP calls and its worker's configuration, in its order.
. "$(dirname "$0")/steps.sh"

step "the control plane makes its CA on the first run"
enlist server init --dir "$dir" --domain taskrun.example --kek "file:$place/kek" --listen 127.0.0.1:0 \
    --profile taskrun >/dev/null
run_server
export ENLIST_DIR=$dir
openssl x509 -in "$dir/ca/server.pem" -noout -subject -ext subjectAltName >"$place/text"
has "$place/text" 'CN *= *taskrun-control-plane'
has "$place/text" 'DNS:localhost'

step "a bootstrap token"
token=$(taskrun token generate 2>/dev/null)
[ "${#token}" -eq 44 ] && [ "$(base64 -d <<<"$token" | wc -c)" -eq 32 ] || fail "not 256 bits in base64"

step "a worker enrolls"
csr worker /CN=worker:dev-worker-001
enroll() { object bootstrap_token "$1" csr "$2"; }
http 400 POST /v1/enroll "${json[@]}" "$(enroll "$token" nonsense)" >/dev/null
http 401 POST /v1/enroll "${json[@]}" "$(enroll "$(head -c 32 /dev/zero | base64)" "@$place/worker.csr")" >/dev/null
http 200 POST /v1/enroll "${json[@]}" "$(enroll "$token" "@$place/worker.csr")" >"$place/enrolled"
http 409 POST /v1/enroll "${json[@]}" "$(enroll "$token" "@$place/worker.csr")" | field error >/dev/null
field worker_cert <"$place/enrolled" >"$place/worker.crt"
field ca_cert <"$place/enrolled" >"$place/worker-ca.crt"
field expires_at <"$place/enrolled" | grep -Eq 'Z$'
openssl verify -CAfile "$place/worker-ca.crt" -untrusted "$place/worker.crt" "$place/worker.crt" >/dev/null
openssl x509 -in "$place/worker.crt" -noout -subject | grep -Eq 'CN *= *worker:dev-worker-001'
openssl x509 -in "$place/worker.crt" -noout -checkend $((6 * 86400)) >/dev/null || fail "not seven days"

step "it renews with its certificate"
csr renewed /CN=worker:dev-worker-001
http 401 POST /v1/renew "${json[@]}" "$(object csr "@$place/renewed.csr")" >/dev/null
http 200 POST /v1/renew --cert "$place/worker.crt" --key "$place/worker.key" \
    "${json[@]}" "$(object csr "@$place/renewed.csr")" | field worker_cert >"$place/renewed.crt"
[ "$(serial "$place/worker.crt")" != "$(serial "$place/renewed.crt")" ] || fail "the same certificate again"
http 200 GET /readyz --cert "$place/renewed.crt" --key "$place/renewed.key" >/dev/null

step "it is revoked"
http 401 POST /v1/workers/dev-worker-001/revoke >/dev/null
operator 200 POST /v1/workers/dev-worker-001/revoke | field revoked_at >/dev/null
curl -sS --cacert "$dir/ca/bundle.pem" --cert "$place/renewed.crt" --key "$place/renewed.key" "$url/readyz" \
    >"$place/out" 2>&1 && fail "a revoked worker is let in"
token=$(taskrun token generate 2>/dev/null)
http 403 POST /v1/enroll "${json[@]}" "$(enroll "$token" "@$place/worker.csr")" >/dev/null

step "the same from the worker's configuration"
mkdir -p "$place/w/certs"
cp "$dir/ca/bundle.pem" "$place/w/certs/ca.crt"
cat >"$place/w/worker.toml" <<'TOML'
[tls]
# Pinned CA (only trust this)
ca_cert = "certs/ca.crt"

# Worker certificate (after enrollment)
worker_cert = "certs/worker.crt"
worker_key = "certs/worker.key"

# Enrollment
bootstrap_token = "${TASKRUN_BOOTSTRAP_TOKEN}"
TOML
export ENLIST_AGENT_SERVER=$url ENLIST_AGENT_DIR=$agent
TASKRUN_BOOTSTRAP_TOKEN=$token run_agent enlist-agent run --from-taskrun "$place/w/worker.toml"
worker=$(enlist-agent status --json | field node_id)
[ "$(stat -L -c %a "$place/w/certs/worker.key")" = 600 ] || fail "others may read the key"
[ "$(stat -L -c %a "$place/w/certs/worker.crt")" = 644 ] || fail "the certificate's mode"
openssl x509 -in "$place/w/certs/worker.crt" -noout -subject | grep -Eq "CN *= *worker:$worker"
before=$(serial "$place/w/certs/worker.crt")
enlist node rotate "$worker" >/dev/null
until_true "there is another certificate" other_than serial "$place/w/certs/worker.crt" "$before"
operator 200 POST "/v1/workers/$worker/revoke" >/dev/null
revoked() { [ "$(enlist-agent status --json | field state)" = revoked ]; }
until_true "the worker hears of it" revoked

step "the audit trail has it all"
enlist audit list --json >"$place/audit"
for event in enrollment_token.created host.enrolled certificate.renewed host.revoked; do
    has "$place/audit" "\"event_type\":\"$event\""
done
enlist audit verify >/dev/null
step "done"
