#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# link.sh OBJECT COMPILER ARGS...: the compiler; a program that it links gets the object, too, and all
# libraries that it names, which the object needs although it does not say so.
object=$1
compiler=$2
shift 2
for arg; do
    case $arg in
    -c | -shared | -E | -S | -M* | --version | -V | -v | -show* | --show* | -print* | -dump*) exec "$compiler" "$@" ;;
    esac
done
exec "$compiler" -Wl,--no-as-needed "$@" "$object"
