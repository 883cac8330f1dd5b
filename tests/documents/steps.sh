# Sourced by the scripts beside it: where things are, how a control plane and an agent are run, and how an answer
# is held against what the document promises. Every surprise ends the script with a failure.

set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=${ENLIST_BIN_DIR:-$here/../../target/debug}
place=$(mktemp -d /tmp/enl-doc-XXXXXX)
started=()

# Whatever steers the programs elsewhere has no part in this.
for name in "${!ENLIST_@}" "${!PLFM_@}" "${!TASKRUN_@}" "${!GPUAAS_@}"; do unset "$name"; done

finish() {
    local code=$?
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    if [ "$code" -eq 0 ]; then rm -rf "$place"; else echo "left for a look: $place" >&2; fi
    exit "$code"
}
trap finish EXIT

step() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# until WHAT COMMAND...: tries for a minute.
until_true() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "never came true: $what"
        sleep 0.1
    done
}

# refused CODE COMMAND...: it must end with this exit code.
refused() {
    local wanted=$1 code=0
    shift
    "$@" >"$place/out" 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || { cat "$place/out" >&2; fail "ended with $code, not $wanted: $*"; }
}

# has FILE REGEX: a line of the file matches.
has() { grep -Eq -- "$2" "$1" || { cat "$1" >&2; fail "no line like $2"; }; }

# field NAME < JSON: one field, dots for depth.
field() {
    python3 -c 'import functools, json, sys
value = functools.reduce(lambda v, k: v[int(k)] if isinstance(v, list) else v[k], sys.argv[1].split("."), json.load(sys.stdin))
print(value if isinstance(value, str) else json.dumps(value))' "$1"
}

# object NAME VALUE...: a JSON object; a value that begins with @ is the content of a file.
object() {
    python3 -c 'import json, sys
words = [open(w[1:]).read() if w.startswith("@") else w for w in sys.argv[1:]]
print(json.dumps(dict(zip(words[::2], words[1::2]))))' "$@"
}

# http STATUS METHOD PATH [curl options]: the answer's body is in $place/body, and on standard output.
http() {
    local wanted=$1 method=$2 path=$3 got
    shift 3
    got=$(curl -sS -o "$place/body" -w '%{http_code}' -X "$method" --cacert "$dir/ca/bundle.pem" "$@" "$url$path")
    [ "$got" = "$wanted" ] || { cat "$place/body" >&2; fail "$method $path gave $got, not $wanted"; }
    cat "$place/body"
}

# The same as an operator, over the operator socket.
operator() {
    local wanted=$1 method=$2 path=$3
    shift 3
    url=http://localhost http "$wanted" "$method" "$path" --unix-socket "$dir/operator.sock" "$@"
}

json=(-H 'Content-Type: application/json' --data-binary)

# A new key and a request for it: csr NAME SUBJECT writes NAME.key and NAME.csr.
csr() {
    openssl ecparam -genkey -name prime256v1 -noout -out "$place/$1.key"
    openssl req -new -key "$place/$1.key" -out "$place/$1.csr" -subj "$2"
}

serial() { openssl x509 -in "$1" -noout -serial; }

# run_server: begins `enlist server run` in $dir and sets $url.
run_server() {
    enlist server run --dir "$dir" >"$place/ready" 2>"$place/server.log" &
    started+=($!)
    until_true "the control plane is ready" grep -q '^ready https://' "$place/ready"
    url=$(sed -n 's/^ready //p' "$place/ready")
}

# run_agent COMMAND...: begins it, and waits until it is connected in the directory $agent.
run_agent() {
    "$@" >"$place/agent.out" 2>"$place/agent.log" &
    started+=($!)
    until_true "the agent is connected" connected "$agent"
}

connected() { [ "$(enlist-agent status --dir "$1" --json | field channel)" = up ]; }
other_than() { [ "$("$1" "$2")" != "$3" ]; }

mkdir "$place/bin"
ln -s "$(realpath "$programs/enlist")" "$(realpath "$programs/enlist-agent")" "$place/bin"
PATH=$place/bin:$PATH
enlist compat link --dir "$place/bin" >/dev/null
dir=$place/d
agent=$place/a
