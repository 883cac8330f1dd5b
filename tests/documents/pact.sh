#!/usr/bin/env bash
# 001 from beginning to end: its command lines, a machine that boots by its hardware alone, and every state it goes through.
. "$(dirname "$0")/steps.sh"

step "a journal: hardware alone is enough, and the limit of the document is on"
enlist server init --dir "$dir" --domain site.example --kek "file:$place/kek" --listen 127.0.0.1:0 >/dev/null
run_server
export ENLIST_DIR=$dir
enlist policy set attestors join-token,recovery-token,hardware >/dev/null
enlist policy set enroll.max_per_minute 100 >/dev/null
enlist policy set liveness.interval 1s >/dev/null
enlist policy set liveness.grace 5s >/dev/null
enlist operator key create pact --role platform-admin --json | field key >"$place/bearer"
chmod 600 "$place/bearer"
# The document's operator is at another machine, with a bearer.
pact() { env -u ENLIST_DIR "$place/bin/pact" --server "$url" --ca "$dir/ca/bundle.pem" --api-key-file "$place/bearer" "$@"; }
inspected() { pact node inspect "$1" --json | field "$2"; }
state_is() { [ "$(inspected "$1" enrollment_state)" = "$2" ]; }

step "the machine as the kernel shows it"
mac=02:00:5e:10:00:01
mkdir -p "$place/sys/class/net/eth0" "$place/sys/class/dmi/id"
echo "$mac" >"$place/sys/class/net/eth0/address"
ln -s ../../../devices/pci "$place/sys/class/net/eth0/device"
echo BMC-0001 >"$place/sys/class/dmi/id/board_serial"
export ENLIST_AGENT_SERVER=$url ENLIST_AGENT_DIR=$agent ENLIST_AGENT_CA_FILE=$dir/ca/bundle.pem
export ENLIST_AGENT_ATTESTOR=hardware ENLIST_AGENT_SYSFS_ROOT=$place/sys ENLIST_AGENT_OVERLAY_BACKEND=off

step "a node that is not registered gets nothing"
refused 3 enlist-agent enroll --json
has "$place/out" node_not_enrolled

step "enrollment by an operator, and what is refused"
pact node enroll compute-1 --mac "$mac" --bmc-serial BMC-0001 | grep -q Registered
refused 3 pact node enroll compute-1 --mac 02:00:5e:10:00:09 --json
has "$place/out" node_already_enrolled
refused 3 pact node enroll compute-2 --mac "$mac" --json
has "$place/out" hardware_identity_conflict
printf 'node_id,mac,bmc_serial\ncompute-3,02:00:5e:10:00:03,BMC-0003\n' >"$place/nodes.csv"
pact node enroll --batch "$place/nodes.csv" >/dev/null
pact node enroll --batch "$place/nodes.csv" >"$place/again"
has "$place/again" '1 registered before'
state_is compute-1 Registered || fail "not Registered"

step "the node boots by its hardware and is in maintenance mode"
run_agent enlist-agent run
state_is compute-1 Active || fail "not Active"
leaf=$agent/identity/current/cert.pem
openssl x509 -in "$leaf" -noout -subject | grep -Eq 'CN *= *pact-service-agent/compute-1@site.example$' || fail "another common name"
openssl x509 -in "$leaf" -noout -checkend $((3 * 86400 - 3600)) >/dev/null || fail "it ends before three days"
openssl x509 -in "$leaf" -noout -checkend $((3 * 86400 + 3600)) >/dev/null && fail "it lasts longer than three days"
until_true "it has the defaults of maintenance mode" grep -q '"observe"' "$agent/config/current.json"
[ "$(inspected compute-1 vcluster_id)" = null ] || fail "in a vCluster already"

step "assigned, moved and unassigned without another certificate"
enlist vcluster create ml-training >/dev/null
enlist vcluster create regulated >/dev/null
echo '{"of":"ml-training"}' >"$place/ml.json"
echo '{"of":"regulated"}' >"$place/regulated.json"
enlist vcluster set-config ml-training --file "$place/ml.json" >/dev/null
enlist vcluster set-config regulated --file "$place/regulated.json" >/dev/null
before=$(serial "$leaf")
pact node assign compute-1 --vcluster ml-training >/dev/null
until_true "the vCluster's configuration is there" grep -q ml-training "$agent/config/current.json"
refused 3 pact node assign compute-1 --vcluster regulated --json
pact node move compute-1 --to-vcluster regulated >/dev/null
until_true "the other's is there" grep -q '"regulated"}' "$agent/config/current.json"
pact node list --vcluster regulated >"$place/listed"
has "$place/listed" compute-1
pact node unassign compute-1 >/dev/null
until_true "maintenance mode again" grep -q '"observe"' "$agent/config/current.json"
pact node list --unassigned >"$place/listed"
has "$place/listed" compute-1
[ "$(serial "$leaf")" = "$before" ] || fail "a move has touched the certificate"

step "renewal"
enlist node rotate compute-1 >/dev/null
until_true "there is another certificate" other_than serial "$leaf" "$before"
openssl verify -CAfile "$dir/ca/bundle.pem" -untrusted "${leaf%/*}/chain.pem" "$leaf" >/dev/null
state_is compute-1 Active || fail "not Active"

step "a second machine with the same hardware is refused, and seen"
refused 3 enlist-agent enroll --dir "$place/spoof" --json
has "$place/out" already_active
enlist alert list --json >"$place/alerts"
has "$place/alerts" '"already_active"'

step "a reboot: inactive after the grace, and active again with another key"
kill "${started[-1]}"
wait "${started[-1]}" || true
unset 'started[-1]'
until_true "it is taken for gone" state_is compute-1 Inactive
rm -r "$agent"
before=$(inspected compute-1 cert_serial)
run_agent enlist-agent run
state_is compute-1 Active || fail "not Active"
[ "$(inspected compute-1 cert_serial)" != "$before" ] || fail "the same certificate again"

step "decommission: revoked, cut off, and only a new registration lets it in"
cp -r "$agent/identity/current/" "$place/gone"
pact node decommission compute-1 --force | grep -q Revoked
revoked() { [ "$(enlist-agent status --json | field state)" = revoked ]; }
until_true "the agent hears of it" revoked
curl -sS --cacert "$dir/ca/bundle.pem" --cert "$place/gone/cert.pem" --key "$place/gone/key.pem" "$url/readyz" \
    >"$place/out" 2>&1 && fail "a revoked node is let in"
refused 3 enlist-agent enroll --dir "$place/anew" --json
has "$place/out" node_revoked
pact node enroll compute-1 --mac "$mac" --bmc-serial BMC-0001 | grep -q Registered
enlist-agent enroll --dir "$place/anew" >/dev/null
state_is compute-1 Active || fail "not Active"
curl -sS --cacert "$dir/ca/bundle.pem" --cert "$place/gone/cert.pem" --key "$place/gone/key.pem" "$url/readyz" \
    >"$place/out" 2>&1 && fail "the certificate of the life before is let in"

step "the audit trail has it all"
enlist audit list --json >"$place/audit"
for event in host.registered host.enrolled host.active host.assigned host.moved host.unassigned certificate.renewed \
    host.inactive host.decommissioned enrollment.refused; do
    has "$place/audit" "\"event_type\":\"$event\""
done
enlist audit verify >/dev/null
step "done"
