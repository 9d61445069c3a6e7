# shellcheck shell=bash
# Shared by the scripts of this folder: `source "$(dirname "$0")/lib.sh"` at their start.
#
# It leaves the shell at the top of the checkout, with `set -euo pipefail` in force.

set -euo pipefail
shopt -s inherit_errexit # an error in `$(…)` is one, too
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One locale for all that is parsed and compared.
export LC_ALL=C.UTF-8

# Says something to people: stderr, since stdout is for results.
say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "${0##*/}: $*"
    exit 1
}

# Seconds since the first timestamp (as EPOCHREALTIME gives it), to a tenth.
seconds_since() {
    local microseconds=$((${EPOCHREALTIME//[!0-9]/} - ${1//[!0-9]/}))
    printf '%d.%d' $((microseconds / 1000000)) $((microseconds / 100000 % 10))
}

# `part TITLE COMMAND…`: runs one part of a script under a title, and says how long it took. A failure ends the script.
#
# Never call it in a condition (`if part …`, `part … || …`): bash would then ignore errors inside a function it runs.
parts=()
current_part=
trap '[[ -z $current_part ]] || say "${0##*/}: failed: $current_part"' EXIT
part() {
    local title=$1 start=$EPOCHREALTIME
    shift
    current_part=$title
    say ""
    say "== $title"
    "$@"
    current_part=
    parts+=("$(printf '%8s s  %s' "$(seconds_since "$start")" "$title")")
}

# Says how long each part took, and all of them.
say_parts() {
    say ""
    printf '%s\n' "${parts[@]}" >&2
    say "$(printf '%8s s  in all' "$SECONDS")"
}

# Runs a command as root: by sudo where we are somebody else. Settings of bake go with it.
as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        local settings=() name
        for name in $(compgen -e | grep '^BAKE__' || true); do
            settings+=("$name=${!name}")
        done
        sudo env "${settings[@]}" "$@"
    else
        die "this needs root, and there is no sudo: $*"
    fi
}

# Prints those of the Debian packages that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            printf '%s\n' "$package"
        fi
    done
}

# Installs those of the Debian packages that are missing. If none is, it touches nothing and needs no root.
install_missing() {
    command -v dpkg-query >/dev/null || die "this machine is not a Debian; please install by hand: $*"
    local missing
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -eq 0 ]]; then
        say "all of these are installed: $*"
        return
    fi
    say "installing ${missing[*]}"
    # One source that cannot be reached is no reason to stop; the install will tell if it matters.
    as_root apt-get -q update >&2 || say "not all package lists could be updated"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "${missing[@]}" >&2
}

# The Rust toolchain is the one thing that we leave to you.
need_cargo() {
    command -v cargo >/dev/null || die "no cargo: install a Rust toolchain first, see https://rustup.rs"
}

# Where cargo puts what it builds.
target_folder() {
    realpath -m "${CARGO_TARGET_DIR:-target}"
}
