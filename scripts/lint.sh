#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh: what a reader should not have to look for.  C is compiled with -Wall -Wextra -Werror by the
# build itself, which `make lint` runs first; the house rules (import direction, doc.go, sizes, ...)
# are tests in internal/house.
set -uo pipefail

go=${GO:-go}
cd "$(dirname "$0")/.." || exit 1
status=0

check() {
    local name=$1
    shift
    if "$@"; then
        echo "lint: $name: good"
    else
        echo "lint: $name: FAILED"
        status=1
    fi
}

# The functions below are called through check.
# shellcheck disable=SC2317
formatted() {
    local files
    files=$("$($go env GOROOT)/bin/gofmt" -l .) || return 1
    [ -z "$files" ] || { echo "not formatted (run gofmt -w): $files" && return 1; }
}

# All C that people write, by .clang-format; what generators write has their form.
# shellcheck disable=SC2317
c_formatted() {
    git ls-files '*.c' '*.h' | grep -v /gen/ | xargs clang-format --dry-run -Werror ||
        { echo "not formatted (run make format)" && return 1; }
}

# Every public header by itself, as C and as C++, as strictly as a user's build may be.
# shellcheck disable=SC2317
headers() {
    local header
    for header in include/*.h include/ckpt/*.h; do
        gcc -std=gnu11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Iinclude -fsyntax-only -x c "$header" &&
            g++ -std=c++17 -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude -fsyntax-only -x c++ "$header" || return 1
    done
}

# Functions that neither a program nor a test reaches. Those that C calls are reached too: a file that names
# them all stands in capi meanwhile (cgo's own stubs for them, which it makes, are not ours).
# shellcheck disable=SC2317
no_dead_code() {
    local roots=capi/zz_roots.go dead
    { printf 'package main\n\nvar _ = []any{\n' && sed -n 's|^//export \(.*\)|\t\1,|p' capi/*.go && echo '}'; } >"$roots"
    dead=$("$go" tool deadcode -test -tags faults ./...)
    local rc=$?
    rm -f "$roots"
    [ $rc = 0 ] || return 1
    ! grep -v 'func: _cgoexp_' <<<"$dead" | grep .
}

# shellcheck disable=SC2317
tidy() { "$go" mod tidy -diff; }

check "gofmt" formatted
check "clang-format" c_formatted
check "go vet" "$go" vet ./...
check "staticcheck" "$go" tool staticcheck ./...
check "dead code" no_dead_code
check "go.mod" tidy
check "public headers, as C and C++" headers
check "generated files are up to date" "$go" run ./cmd/mpigen -check
exit $status
