# Finds, installs and starts the servers that the tests need. Sourced by ./test.
#
# A server that answers on its usual port is used. What this script installs and starts
# from the distribution keeps running; RabbitMQ 4 is stopped by the last run that uses it.

cache=${ACEMQ_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/acemq}
rabbitmq4_tree=${ACEMQ_TEST_RABBITMQ4_ROOT:-$cache/rabbitmq4}
rabbitmq_port=${ACEMQ_TEST_RABBITMQ_PORT:-5672}
rabbitmq4_port=${ACEMQ_TEST_RABBITMQ4_PORT:-5673}
postgres_port=5432
mariadb_port=3306
lock=

heading() { printf '\n== %s\n' "$1"; }

say() { printf '%-12s %s\n' "$1" "$2"; }

fail() {
    echo "$1" >&2
    exit 1
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

as_user() {
    local user=$1
    shift
    (cd / && as_root su "$user" -s /bin/sh -c '"$0" "$@"' -- "$@")
}

# Whether packages can be installed here.
can_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

install_packages() {
    say apt "installing $*"
    local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
    quietly "${apt[@]}" update
    quietly "${apt[@]}" install --yes --no-install-recommends "$@"
}

# Runs a command and shows what it printed only if it fails.
quietly() {
    local output
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        fail "FAILED: $*"
    }
}

# Waits for a command to succeed: wait_for WHAT SECONDS COMMAND…
wait_for() {
    local what=$1 end=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "$what does not answer"
        sleep 0.2
    done
}

# Prints the version that a broker on a port greets with; fails if none does.
broker_version() {
    timeout 5 bash -c '
        exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "AMQP\0\0\x09\x01" >&3 &&
            dd bs=4096 count=1 <&3' "$1" 2>/dev/null |
        tr -dc '[:print:]' | grep -o 'versionS[0-9][0-9.]*' | sed 's/versionS//'
}

postgres_url() { echo "postgres://acemq_test:acemq_test@127.0.0.1:$postgres_port/acemq_test"; }
mariadb_url() { echo "mysql://acemq_test:acemq_test@127.0.0.1:$mariadb_port/acemq_test"; }

broker_answers() { [ -n "$(broker_version "$1")" ]; }

port_is_open() { timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"' "$1" 2>/dev/null; }

# Whether the test's user gets in. Without a client, an open port has to do.
postgres_answers() {
    if command -v psql >/dev/null; then
        psql "$(postgres_url)" -qtc 'SELECT 1' >/dev/null 2>&1
    else
        port_is_open $postgres_port
    fi
}

mariadb_answers() {
    if command -v mariadb >/dev/null; then
        mariadb --no-defaults --protocol=tcp --host=127.0.0.1 --port=$mariadb_port \
            --user=acemq_test --password=acemq_test --execute='SELECT 1' acemq_test >/dev/null 2>&1
    else
        port_is_open $mariadb_port
    fi
}

# Exports the variable of every server, after making sure that it answers.
start_servers() {
    local missing=()
    find_missing
    if [ ${#missing[@]} -gt 0 ] || ! command -v cc >/dev/null; then
        if can_install; then
            # shellcheck source=scripts/debian.sh
            source scripts/debian.sh
            install_and_start
        elif [ ${#missing[@]} -gt 0 ] && docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
            say compose.yaml "starting its servers"
            quietly docker compose up --detach --wait
        fi
        find_missing
        [ ${#missing[@]} -eq 0 ] || explain_missing
    fi
    use_lock
    : "${ACEMQ_TEST_AMQP_URL:=amqp://guest:guest@127.0.0.1:$rabbitmq_port}"
    : "${ACEMQ_TEST_AMQP4_URL:=amqp://guest:guest@127.0.0.1:$rabbitmq4_port}"
    : "${ACEMQ_TEST_POSTGRES_URL:=$(postgres_url)}"
    : "${ACEMQ_TEST_MARIADB_URL:=$(mariadb_url)}"
    export ACEMQ_TEST_AMQP_URL ACEMQ_TEST_AMQP4_URL ACEMQ_TEST_POSTGRES_URL ACEMQ_TEST_MARIADB_URL
    # shellcheck source=scripts/python.sh
    source scripts/python.sh
    prepare_python
    require_servers
}

# Sets `missing` to the servers that are neither named nor answer.
find_missing() {
    missing=()
    if [ -z "${ACEMQ_TEST_AMQP_URL:-}" ] && ! broker_answers "$rabbitmq_port"; then
        missing+=(rabbitmq)
    fi
    if [ -z "${ACEMQ_TEST_AMQP4_URL:-}" ] && ! broker_answers "$rabbitmq4_port"; then
        missing+=(rabbitmq4)
    fi
    if [ -z "${ACEMQ_TEST_POSTGRES_URL:-}" ] && ! postgres_answers; then
        missing+=(postgres)
    fi
    if [ -z "${ACEMQ_TEST_MARIADB_URL:-}" ] && ! mariadb_answers; then
        missing+=(mariadb)
    fi
}

explain_missing() {
    fail "Not there: ${missing[*]}.
On Debian or Ubuntu, run ./test as root or with passwordless sudo, and it installs them.
Elsewhere, start the servers of compose.yaml (docker compose up --detach --wait), or name
your own by ACEMQ_TEST_AMQP_URL, ACEMQ_TEST_AMQP4_URL, ACEMQ_TEST_POSTGRES_URL and
ACEMQ_TEST_MARIADB_URL."
}

# Lists the servers without which a test fails: all of the shared ones, and for tests
# that start their own the programs that are installed here.
require_servers() {
    local require=rabbitmq,rabbitmq4,postgres,mariadb
    if [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]; then
        require+=,own-rabbitmq
    fi
    if compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
        require+=,own-postgres
    fi
    [ -z "$ACEMQ_TEST_PYTHON" ] || require+=,python
    if [ -e "$rabbitmq4_tree/usr/lib/rabbitmq" ]; then
        export ACEMQ_TEST_RABBITMQ4_ROOT=$rabbitmq4_tree
        # Tests run it by chroot.
        [ "$(id -u)" != 0 ] || require+=,own-rabbitmq4
    fi
    export ACEMQ_TEST_REQUIRE=$require
    local name
    for name in AMQP AMQP4 POSTGRES MARIADB; do
        name=ACEMQ_TEST_${name}_URL
        # Without the credentials.
        say "${!name%%:*}" "$name at ${!name##*@}"
    done
    say required "$require"
    local version
    version=$(broker_version "$rabbitmq_port") || true
    if [ "$ACEMQ_TEST_AMQP_URL" = "amqp://guest:guest@127.0.0.1:$rabbitmq_port" ]; then
        case $version in 3.*) ;; *) say NOTE "the RabbitMQ here is $version: nothing runs on 3.x" ;; esac
    fi
}

# Runs agree on RabbitMQ 4 by a lock: whoever installs and starts it holds that alone,
# whoever tests shares it, and whoever gets it alone at the end is the last.
open_lock() {
    if [ -z "$lock" ]; then
        mkdir -p "$cache"
        exec {lock}>"$cache/rabbitmq4.lock"
    fi
}

# Fails when another run has started RabbitMQ 4 meanwhile.
take_lock() {
    open_lock
    local end=$((SECONDS + 900))
    until flock -n -x "$lock"; do
        if broker_answers "$rabbitmq4_port"; then return 1; fi
        [ $SECONDS -lt $end ] || fail "another run of ./test keeps RabbitMQ 4 and it does not answer"
        sleep 0.3
    done
}

use_lock() {
    # Also where it ran before: the run that started it may end before this one.
    if [ -e "$cache/rabbitmq4.lock" ]; then
        open_lock
        flock -s "$lock"
    fi
}

close_lock() { [ -z "$lock" ] || exec {lock}>&-; }

rabbitmq4_pid_file() { echo "$rabbitmq4_tree/var/lib/acemq-test/pid"; }

# Prints nothing: the last lines of a run are those of the tests.
stop_servers() {
    [ -n "$lock" ] && flock -n -x "$lock" || return 0
    local id
    id=$(as_root cat "$(rabbitmq4_pid_file)" 2>/dev/null) || return 0
    as_root kill "$id" 2>/dev/null || return 0
    local end=$((SECONDS + 20))
    while as_root kill -0 "$id" 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.1; done
    as_root rm -f "$(rabbitmq4_pid_file)"
}
