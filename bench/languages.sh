#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# languages.sh [NAME...]: programs in other languages than C, whose runtimes compile while they run, protect pages, stop their
# threads by signals, and want memory at addresses of their own. Each is run natively, under ckptrun, and under ckptrun while it is
# saved and killed twice and continued; what it prints must be the same bytes. Writes bench/results/languages.md, when all are run.
#
# They are in bench/languages: each prints 20 lines. Runtimes that are not installed are said to be so in the table. With Debian:
#   apt-get install default-jdk-headless nodejs octave ruby erlang-base luajit guile-3.0 racket sbcl chezscheme pypy3 \
#       mono-runtime mono-mcs ghc php-cli tcl swi-prolog-nox ocaml-interp
set -uo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
bin=$here/build/bin
[ -x "$bin/ckptrun" ] || { echo "languages.sh: no $bin/ckptrun: run make first" >&2 && exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/bench/languages/* "$work"
cd "$work" || exit 2

# name | what must be there | how it is made | what prints its version | command
table='
C# (Mono) | mono mcs | mcs Work.cs | mono --version | mono Work.exe 100
Chez Scheme | scheme | | scheme --version | scheme --script work.ss 60
Common Lisp (SBCL) | sbcl | | sbcl --version | sbcl --script work.lisp 200
Erlang | erl erlc | erlc work.erl | erl -noshell -eval "io:put_chars(erlang:system_info(otp_release)),halt()." | erl -noshell -run work main 600
Guile | guile | | guile --version | guile --no-auto-compile work.scm 60
Haskell (GHC) | ghc | ghc -v0 -O1 -threaded -rtsopts -with-rtsopts=-N2 -o work-hs work.hs | ghc --version | ./work-hs 500
Java, G1 | java javac | javac Work.java | java -version | java -XX:+UseG1GC Work 50
Java, parallel collector | java javac | javac Work.java | java -version | java -XX:+UseParallelGC Work 50
Java, serial collector | java javac | javac Work.java | java -version | java -XX:+UseSerialGC Work 50
Java, Shenandoah | java javac | javac Work.java | java -version | java -XX:+UseShenandoahGC Work 50
Java, ZGC | java javac | javac Work.java | java -version | java -XX:+UseZGC Work 50
JavaScript (Node.js) | node | | node --version | node work.js 40
LuaJIT | luajit | | luajit -v | luajit work.lua 400
OCaml, interpreted | ocaml | | ocaml -version | ocaml work.ml 300
Octave | octave | | octave --version 2>/dev/null | octave -q work.m 60
PHP | php | | php --version | php work.php 50
Prolog (SWI) | swipl | | swipl --version | swipl work.pl 60
Python (PyPy) | pypy3 | | pypy3 --version | pypy3 work.py 200
Racket | racket raco | raco make work.rkt | racket --version | racket work.rkt 60
Ruby | ruby | | ruby --version | ruby work.rb 50
Tcl | tclsh | | basename "$(readlink -f "$(command -v tclsh)")" | tclsh work.tcl 40
'

# lines FILE N PID: waits until there are so many, or the process has ended.
lines() {
    while [ "$(wc -l <"$1")" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do sleep 0.02; done
}

# trim TEXT: without spaces at its ends.
trim() { sed -e 's/^ *//' -e 's/ *$//' <<<"$1"; }

# told FILE: the first reason that a refusal names, else its first line.
told() { sed -n -e 's/^ *- //p' "$1" | head -1 | grep . || head -1 "$1"; }

# saved COMMAND...: in ckpt, to the file out, saved and killed twice and continued. Prints what became of it.
saved() {
    local pid status said=""
    "$bin/ckptrun" --dir ckpt -- "$@" >out 2>err &
    pid=$!
    for n in 6 12; do
        lines out $n $pid
        if ! "$bin/ckptctl" checkpoint ckpt --then kill >ctl 2>&1; then
            said="not saved: $(told ctl)"
            break
        fi
        wait "$pid"
        "$bin/ckptrun" --restart ckpt >>out 2>err &
        pid=$!
    done
    wait "$pid"
    status=$?
    if [ -n "$said" ]; then
        echo "$said"
    elif [ $status != "$native" ]; then
        echo "status $status: $(head -1 err)"
    elif cmp -s native out; then
        echo "the same"
    else
        echo "prints something else"
    fi
}

row() { # NAME NEEDS BUILD VERSION COMMAND
    local version plain need
    for need in $2; do
        command -v "$need" >/dev/null || { echo "| $1 | not installed | | | |" && return; }
    done
    rm -rf ckpt native out err ctl
    [ -z "$3" ] || eval "$3" >make.log 2>&1 || { echo "| $1 | is not made: $(head -1 make.log) | | | |" && return; }
    version=$(eval "$4" 2>&1 </dev/null | grep . | head -1 | cut -c1-40)
    read -ra command <<<"$5"
    "${command[@]}" >native 2>/dev/null
    native=$?
    "$bin/ckptrun" --dir ckpt -- "${command[@]}" >out 2>err
    plain=$?
    if [ $plain = $native ] && cmp -s native out; then plain="the same"; else plain="status $plain: $(cat err out | grep -i error | head -1 | cut -c1-100)"; fi
    rm -rf ckpt
    local after=
    [ "$plain" != "the same" ] || after=$(saved "${command[@]}")
    echo "| $1 | ${version//|/} | status $native, $(wc -l <native) lines | $plain | $after |"
}

report=$work/report
{
    echo "<!-- Written by \`bench/languages.sh\`. -->"
    echo "# Programs in other languages"
    echo
    echo "Each prints 20 lines. What it prints under ckptrun, and when it is saved and killed twice on the way and continued, must be the same bytes."
    echo
    echo "| language | version | natively | under ckptrun | saved, killed and continued, twice |"
    echo "|---|---|---|---|---|"
} >"$report"
while IFS='|' read -r name needs build version command; do
    name=$(trim "$name")
    [ -n "$name" ] || continue
    if [ $# -gt 0 ]; then
        [[ " $* " == *" ${name%% *} "* || " $* " == *" $name "* ]] || continue
    fi
    row "$name" "$(trim "$needs")" "$(trim "$build")" "$(trim "$version")" "$(trim "$command")" 2>/dev/null </dev/null | tee -a "$report"
done <<<"$table"
cd "$here" || exit 2
[ $# -gt 0 ] || cp "$report" bench/results/languages.md
