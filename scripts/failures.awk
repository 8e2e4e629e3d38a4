# SPDX-License-Identifier: Apache-2.0
#
# failures.awk: what the failed tests of a `go test` printed.  With -v a test's words stand before its
# verdict, under "=== RUN" or "=== NAME"; without, after it.
function keep(name, line) {
    if (count[name] < 40) words[name] = words[name] substr(line, 1, 300) "\n"
    else if (count[name] == 40) words[name] = words[name] "    ...\n"
    count[name]++
}
/^ *=== (RUN|NAME|CONT) / { current = $3; after = ""; next }
/^ *=== PAUSE / { next }
/^ *--- FAIL: / { failed[++failures] = $3; verdict[$3] = $0; after = $3; next }
/^ *--- (PASS|SKIP): / { after = ""; next }
/^(panic:|fatal error:|FAIL|signal: |exit status )/ { other = other $0 "\n"; current = ""; after = $1 == "panic:" || $1 == "fatal" ? "panic" : ""; next }
after == "panic" { if (++panicked < 60) other = other $0 "\n"; next }
current == "" && after != "" { keep(after, $0); next }
current != "" { keep(current, $0); next }
END {
    printf "%s", other
    for (i = 1; i <= failures; i++) {
        inner = 0 # a subtest of it failed, too, and says why
        for (j = 1; j <= failures; j++)
            if (index(failed[j], failed[i] "/") == 1) inner = 1
        printf "%s\n%s", verdict[failed[i]], inner ? "" : words[failed[i]]
    }
}
