#!/usr/bin/env bash
# Set up .venv with the extras named, and the system packages that the lanes need, where apt exists.
#   scripts/setup.sh EXTRAS    for example: scripts/setup.sh browser,catalog
# Does nothing when the same extras were set up before from the same pyproject.toml and constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=$1
stamp=".venv/set-up-$(printf '%s' "$extras" | cat - pyproject.toml constraints.txt scripts/setup.sh | cksum | cut -d' ' -f1)"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi
}

# Install Debian packages if apt is there; without it, or without the right to, the lanes say what they lack.
apt_install() {
    command -v apt-get >/dev/null || return 0
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return 0
    echo "setup: installing ${missing[*]} with apt" >&2
    { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } ||
        echo "setup: could not install ${missing[*]}; \`assay lanes\` says which lanes that costs" >&2
}

find_python() {
    local name
    for name in python3 python3.11 python3.12 python3.13 python; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "$name"
            return 0
        fi
    done
    echo "setup: Python 3.11 or newer is needed" >&2
    return 1
}

[ -f "$stamp" ] && exit 0
# chromium ships SwiftShader, a Vulkan driver in software, and is the browser of the browser lanes.
apt_install chromium libvulkan1
if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    "$python" -m venv .venv 2>/dev/null || { rm -rf .venv; apt_install python3-venv; "$python" -m venv .venv; }
fi
echo "setup: installing litert-assay[$extras] into .venv" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[$extras]"
touch "$stamp"
