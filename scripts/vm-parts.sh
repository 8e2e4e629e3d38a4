# SPDX-License-Identifier: Apache-2.0
#
# vm-parts.sh is sourced by scripts whose tests run in virtual machines (scripts/vm.sh), in parts, each in a machine of its own:
# what all parts said is joined in bench/results/$suite.txt, with a table beside it, which says of each part when it
# ran, and of what; a part that did not run is named there. A run that is ended before its end leaves what it has found out.
#
# It is sourced in the root of the repository, by a script that has set
#
#   suite      name of the files, and of make's target behind "test-"
#   build      the build tree
#   parts      names, in their order; VM_PARTS="NAME..." are those that run, the others' logs stay as they are
#   tests      of each part, the names of its tests
#   lacks      why tests are skipped where this machine cannot, in a few words for the list
#   machine    function PART ONLY: the tests of a part in a machine, or those whose names match ONLY; status 125: that cannot be
#   heading    function: the title of the table, and what stands below it
#
# and then calls run_parts. ONLY=REGEXP runs only the tests whose name it matches, in the machine of the first part that is wanted;
# nothing is kept.

dir=$build/$suite
logs=$dir/logs
mkdir -p "$dir" "$logs" || exit 1
read -ra wanted <<<"${VM_PARTS:-${parts[*]}}"
for part in "${wanted[@]}"; do
    [ -n "${tests[$part]:-}" ] || { echo "test-$suite: there is no part $part: ${parts[*]}" >&2; exit 2; }
done

# What is tested, with which the parts of the table are marked.
tree=$(git rev-parse --short=10 HEAD 2>/dev/null || echo '?')
git diff --quiet HEAD -- . ':!bench/results' 2>/dev/null || tree+=' and changes'

# left_out PART LOG: what could not be run, for the list at the end.
unable=()
left_out() {
    local test why
    why=$(tail -n 1 "$2")
    for test in ${tests[$1]}; do unable+=("$lacks: $test ($1: $why)"); done
}

# ended STATUS says what was left out, and ends.
ended() {
    [ "${#unable[@]}" = 0 ] || { printf '%s\n' "${unable[@]}" && echo "test-$suite: the ${#unable[@]} tests above were skipped"; }
    exit "$1"
}

# rows PART: a line of the table for each test, with the reason when it was skipped.
rows() {
    awk '
        /^=== (RUN|NAME)/ { of = $3 }
        /^ +[a-z0-9_]+_test\.go:[0-9]+: / { said[of] = $0; sub(/^[^:]*:[0-9]+: /, "", said[of]) }
        match($0, /^ *--- (PASS|FAIL|SKIP): [^ ]+ \([0-9.]+s\)/) {
            n = split($0, word, " ")
            result = word[2] == "PASS:" ? "passed" : word[2] == "FAIL:" ? "**failed**" : "skipped: " said[word[3]]
            gsub(/[()s]/, "", word[4])
            print "| `" word[3] "` | " result " | " word[4] " |"
        }' "$logs/$1.txt"
}

results() {
    local part
    for part in "${parts[@]}"; do
        [ -e "$logs/$part.txt" ] || continue
        echo "== $part | $(cat "$logs/$part.ran")"
        cat "$logs/$part.txt"
    done >"bench/results/$suite.txt"
    {
        echo "<!-- Written by \`make test-$suite\`. -->"
        heading
        echo
        echo '| part | result | s | began (UTC) | of |'
        echo '|---|---|---|---|---|'
        for part in "${parts[@]}"; do
            echo "| $part | $(cat "$logs/$part.ran" 2>/dev/null || echo 'not run | | |') |"
        done
        for part in "${parts[@]}"; do
            [ -e "$logs/$part.txt" ] || continue
            printf '\n## %s\n\n' "$part"
            # The machines of this part.
            sed -n 's/^vm: \(Linux .*\)/\1/p' "$logs/$part.txt" | sort -u | awk '{ print $0 "." } END { if (NR) print "" }'
            printf '| test | result | s |\n|---|---|---|\n'
            rows "$part"
        done
    } >"bench/results/${suite}.md"
}

run_parts() {
    local part began status what failed=()
    if [ -n "${ONLY:-}" ]; then
        machine "${wanted[0]}" "$ONLY" 2>&1 | tee "$dir/only.log"
        status=${PIPESTATUS[0]}
        [ "$status" != 125 ] || { left_out "${wanted[0]}" "$dir/only.log" && ended 0; }
        exit "$status"
    fi
    # What other parts have said, where it is not in this BUILD.
    [ ! -e "bench/results/$suite.txt" ] || awk -v logs="$logs" '
        /^== [a-z0-9-]+ \| / { log_of = logs "/" $2; known = !system("test -e " log_of ".txt"); sub(/^== [a-z0-9-]+ \| /, ""); if (!known) print >log_of ".ran"; next }
        log_of && !known { print >log_of ".txt" }' "bench/results/$suite.txt"
    for part in "${wanted[@]}"; do
        echo "== $part"
        rm -f "$dir/.status"
        began=$(date +%s)
        machine "$part" '' 2>&1 | tee "$dir/part.log"
        status=${PIPESTATUS[0]}
        [ "$status" != 125 ] || { left_out "$part" "$dir/part.log" && continue; }
        what=$([ "$status" = 0 ] && echo passed || echo "**failed**, status $status")
        [ -s "$dir/.status" ] || what="**stopped** before all tests had run"
        echo "$what | $(($(date +%s) - began)) | $(date -u -d "@$began" '+%d %b %H:%M') | $tree" >"$logs/$part.ran"
        # The screen of a serial line has control characters, paths of this machine, and the kernel's last words.
        sed -e 's/\x1b[^A-Za-z]*[A-Za-z]//g' -e "s,$build,build,g" -e "s,$PWD/,,g" -e '/SeaBIOS\|Booting from\|sysrq: \|reboot: \|\.inside: line/d' \
            "$dir/part.log" >"$logs/$part.txt"
        [ "$status" = 0 ] || failed+=("$part")
        results
    done
    if [ "${#failed[@]}" -gt 0 ]; then
        echo "test-$suite: FAILED: ${failed[*]}"
        ended 1
    fi
    [ "${#unable[@]}" -gt 0 ] || echo "test-$suite: passed"
    ended 0
}
