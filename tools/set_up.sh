#!/usr/bin/env bash
# Makes the virtual environment: uv (installed by pip, pinned) installs the package and its test tools, exactly the
# versions of constraints.txt. Run by `make setup`.
set -euo pipefail

python="${PYTHON:-python3}"
venv="${VENV:-.venv}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "sightline needs Python 3.11 or later; $python is $("$python" --version 2>&1). Try: make PYTHON=python3.12" >&2
    exit 2
}
echo "setting up $venv (about half a minute, beyond the download of packages)"
# An environment that another tool made may have no pip; venv adds it.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt uv

# uv does not read pip's configuration. Where pip was told of a folder with wheels (a CPU build of torch, say) or of
# another index, uv is told the same; an option that is not set prints nothing.
pip_option() {
    local variable="PIP_$(tr 'a-z-' 'A-Z_' <<<"$1")"
    if [ -n "${!variable:-}" ]; then
        echo "${!variable}"
    else
        "$venv/bin/python" -m pip config get "install.$1" 2>/dev/null ||
            "$venv/bin/python" -m pip config get "global.$1" 2>/dev/null || true
    fi
}
if [ -z "${UV_FIND_LINKS:-}" ]; then
    read -r -a links <<<"$(pip_option find-links | tr '\n' ' ')"
    UV_FIND_LINKS="$(IFS=,; echo "${links[*]}")"
fi
[ -n "${UV_DEFAULT_INDEX:-}" ] || UV_DEFAULT_INDEX="$(pip_option index-url)"
[ -z "$UV_FIND_LINKS" ] || export UV_FIND_LINKS
[ -z "$UV_DEFAULT_INDEX" ] || export UV_DEFAULT_INDEX
[ -n "${SSL_CERT_FILE:-}" ] || [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="$PIP_CERT"

export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}"
"$venv/bin/uv" pip install --python "$venv/bin/python" --quiet --compile-bytecode \
    --constraints constraints.txt --build-constraints constraints.txt \
    --editable '.[test,digits,docs]'

# What to type next: the way without activation always works.
echo
echo "ready. next: $venv/bin/sightline demo        (or: make demo)"
echo "to type \`sightline\` alone in this shell: source $venv/bin/activate"
