#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Pipelines, subshells, substitutions, here-documents, redirections, functions, traps.
# usage: pipes.sh ROUNDS
rounds=${1:-20}
set -o pipefail

# Computes in the shell itself, without a child.
compute() {
    local i v=$1
    for ((i = 0; i < 4000; i++)); do
        v=$(((v * 1103515245 + 12345) & 0x7fffffff))
    done
    result=$v
}

exec 7> >(:) 2>&1
wait $!
exec 7>&-
exec 5<<END
first line of five
second line of five
END

v=1
for ((round = 0; round < rounds; round++)); do
    compute $v
    v=$result
    sorted=$(printf '%s\n' $v 3 2 1 | sort -n | tail -1)
    compute $v
    words=$(echo "a b c d" | tr ' ' '\n' | while read -r w; do echo -n "<$w>"; done)
    (
        cd /
        v=changed
        echo "subshell in $PWD"
    ) | cat
    compute $v
    v=$result
    cat <<END | tr a-z A-Z
here-document of round $round: $v $sorted $words
END
    diff <(echo one; echo two) <(echo one; echo three) | tail -1
    false | true
    echo "pipe status ${PIPESTATUS[*]} $?"
    (exit $((round % 5)))
    echo "exit $?"
    compute $v
    v=$result
done
read -r line <&5
echo "$line"
read -r line <&5
echo "$line"
trap 'echo "trapped, $v"; exit 3' EXIT
echo "to stderr" >&2
no-such-command-here 2>/dev/null
echo "status $?"
