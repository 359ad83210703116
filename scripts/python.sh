# Python with the libraries that services in other languages read and write messages with.
# Sourced by servers.sh.

# One folder a list of libraries, so that a new list makes a new one.
python_home=$cache/python-$(sha256sum scripts/python.txt | cut -c1-12)

# Exports ACEMQ_TEST_PYTHON, unless it is set; leaves it empty where there is no Python to
# be had, and the tests that need it say that they are left out.
prepare_python() {
    : "${ACEMQ_TEST_PYTHON:=}"
    export ACEMQ_TEST_PYTHON
    [ -z "$ACEMQ_TEST_PYTHON" ] || return 0
    if [ ! -x "$python_home/bin/python" ]; then
        if ! has_venv; then
            can_install || return 0
            install_packages python3-venv
        fi
        say python "installing its libraries into $python_home"
        # Beside it and then renamed: another run may be at it, and this one may be stopped.
        mkdir -p "$cache"
        local new
        new=$(mktemp -d "$cache/python.XXXXXX")
        quietly python3 -m venv "$new"
        quietly "$new/bin/python" -m pip install --quiet --disable-pip-version-check -r scripts/python.txt
        mv -T "$new" "$python_home" 2>/dev/null || rm -rf "$new"
    fi
    ACEMQ_TEST_PYTHON=$python_home/bin/python
}

has_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }
