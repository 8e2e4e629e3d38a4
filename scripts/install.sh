#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD PREFIX: copies the installable part of the build tree.  Nothing in it knows where
# it lies, so this is all there is to it.
set -euo pipefail

build=$1
prefix=$2

for part in bin lib include share; do
    (cd "$build" && find "$part" ! -type d ! -name '*.new') | while read -r file; do
        mkdir -p "$prefix/$(dirname "$file")"
        # Over a new name and a rename: a running job keeps the file that it has mapped.
        cp -P "$build/$file" "$prefix/$file.new"
        mv -T "$prefix/$file.new" "$prefix/$file"
    done
done
echo "installed in $prefix: bin/ckptrun, bin/ckptctl, lib/libckpt.so, include/mpix_checkpoint.h"
