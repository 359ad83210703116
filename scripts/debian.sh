# Installs and starts servers on Debian and Ubuntu, with or without systemd. Sourced by
# servers.sh when something is missing.

install_and_start() {
    local packages=() name
    command -v cc >/dev/null || packages+=(build-essential)
    for name in "${missing[@]}"; do
        case $name in
        rabbitmq) [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || packages+=(rabbitmq-server) ;;
        rabbitmq4) rabbitmq4_is_installed || command -v debootstrap >/dev/null ||
            packages+=(debootstrap debian-archive-keyring) ;;
        postgres) command -v pg_ctlcluster >/dev/null || packages+=(postgresql) ;;
        mariadb) [ -x /usr/sbin/mariadbd ] || packages+=(mariadb-server) ;;
        esac
    done
    if [ ${#packages[@]} -gt 0 ]; then
        install_packages "${packages[@]}"
    fi
    for name in "${missing[@]}"; do
        "start_$name"
    done
}

# Starts a daemon's unit where systemd runs; fails where it does not.
start_unit() { [ -d /run/systemd/system ] && as_root systemctl start "$1"; }

start_rabbitmq() {
    say rabbitmq "starting"
    if ! start_unit rabbitmq-server; then
        # A node is named after the host, which containers do not always know.
        local node=()
        getent hosts "$(hostname -s)" >/dev/null || node=(RABBITMQ_NODENAME=rabbit@localhost)
        as_root env "${node[@]}" rabbitmq-server -detached >/dev/null 2>&1 || true
    fi
    wait_for RabbitMQ 90 broker_answers "$rabbitmq_port"
}

start_postgres() {
    # The first cluster, which may have another port than the usual.
    local version cluster port status
    pg_lsclusters -h | grep -q . ||
        quietly as_root pg_createcluster "$(ls /usr/lib/postgresql | sort -n | tail -1)" main
    read -r version cluster port status _ < <(pg_lsclusters -h)
    postgres_port=$port
    if [ "$status" != online ]; then
        say postgres "starting"
        start_unit "postgresql@$version-$cluster" ||
            quietly as_root pg_ctlcluster --skip-systemctl-redirect "$version" "$cluster" start
    fi
    local psql=(as_user postgres psql -p "$port" -qAt -v ON_ERROR_STOP=1 -c)
    wait_for PostgreSQL 60 "${psql[@]}" 'SELECT 1'
    postgres_answers && return
    say postgres "creating the role and database acemq_test"
    [ -n "$("${psql[@]}" "SELECT 1 FROM pg_roles WHERE rolname = 'acemq_test'")" ] ||
        quietly "${psql[@]}" 'CREATE ROLE acemq_test'
    quietly "${psql[@]}" "ALTER ROLE acemq_test LOGIN CREATEDB PASSWORD 'acemq_test'"
    [ -n "$("${psql[@]}" "SELECT 1 FROM pg_database WHERE datname = 'acemq_test'")" ] ||
        quietly "${psql[@]}" 'CREATE DATABASE acemq_test OWNER acemq_test'
}

start_mariadb() {
    local client=(as_root mariadb --no-defaults --user=root --execute)
    if ! port_is_open $mariadb_port; then
        say mariadb "starting"
        if ! start_unit mariadb; then
            as_root install -d -o mysql -g mysql /run/mysqld
            as_root start-stop-daemon --start --oknodo --background --exec /usr/sbin/mariadbd -- --user=mysql
        fi
        wait_for MariaDB 60 "${client[@]}" 'SELECT 1'
    fi
    say mariadb "creating the user and database acemq_test"
    # By name and by address: which one a connection has depends on the server's settings.
    quietly "${client[@]}" "
        CREATE DATABASE IF NOT EXISTS acemq_test;
        CREATE OR REPLACE USER acemq_test@localhost IDENTIFIED BY 'acemq_test';
        CREATE OR REPLACE USER acemq_test@'127.0.0.1' IDENTIFIED BY 'acemq_test';
        GRANT ALL ON \`acemq\\_test%\`.* TO acemq_test@localhost, acemq_test@'127.0.0.1';"
}

rabbitmq4_is_installed() { [ -e "$rabbitmq4_tree/usr/lib/rabbitmq" ]; }

# RabbitMQ 4 comes from a later Debian, in a tree of its own that it is run in.
start_rabbitmq4() {
    take_lock || return 0
    # The last run may have ended, or another have begun, while this one waited.
    if broker_answers "$rabbitmq4_port"; then return; fi
    if ! rabbitmq4_is_installed; then
        say rabbitmq4 "installing into $rabbitmq4_tree, which takes some minutes"
        local new=$rabbitmq4_tree.new
        as_root rm -rf "$new"
        quietly as_root debootstrap --variant=minbase --include=rabbitmq-server \
            trixie "$new" "${ACEMQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
        as_root rm -rf "$new"/var/cache/apt/archives/*.deb
        # The name of this machine, and no other.
        echo "127.0.0.1 localhost" | as_root tee "$new/etc/hosts" >/dev/null
        as_root mv "$new" "$rabbitmq4_tree"
    fi
    say rabbitmq4 "starting"
    local home=/var/lib/acemq-test
    as_root rm -rf "$rabbitmq4_tree$home"
    as_root mkdir -p "$rabbitmq4_tree$home"
    # Its disk is as full as the machine's, and its memory cannot be read inside.
    printf '%s\n' "listeners.tcp.1 = 127.0.0.1:$rabbitmq4_port" 'log.console = false' \
        'disk_free_limit.absolute = 1MB' 'total_memory_available_override_value = 4GB' |
        as_root tee "$rabbitmq4_tree$home/rabbitmq.conf" >/dev/null
    echo '[].' | as_root tee "$rabbitmq4_tree$home/plugins" >/dev/null
    : | as_root tee "$rabbitmq4_tree$home/environment" >/dev/null
    # `detached` makes the start script replace itself by the server.
    (
        close_lock
        as_root setsid chroot "$rabbitmq4_tree" env -i HOME=$home LANG=C.UTF-8 \
            PATH=/usr/sbin:/usr/bin:/sbin:/bin detached=true \
            ERL_EPMD_ADDRESS=127.0.0.1 ERL_FLAGS='-kernel inet_dist_use_interface {127,0,0,1}' \
            RABBITMQ_CONF_ENV_FILE=$home/environment RABBITMQ_CONFIG_FILE=$home/rabbitmq \
            RABBITMQ_ADVANCED_CONFIG_FILE=$home/advanced.config \
            RABBITMQ_DIST_PORT=$((rabbitmq4_port + 20000)) RABBITMQ_NODENAME=acemq-test@localhost \
            RABBITMQ_ENABLED_PLUGINS_FILE=$home/plugins RABBITMQ_LOG_BASE=$home/log \
            RABBITMQ_MNESIA_BASE=$home/data RABBITMQ_PID_FILE=$home/pid \
            /usr/lib/rabbitmq/bin/rabbitmq-server >/dev/null 2>&1 &
    )
    wait_for "RabbitMQ 4" 90 broker_answers "$rabbitmq4_port"
}
