#!/bin/sh
# Runs a compiler through ccache (CMake's CXX_COMPILER_LAUNCHER): ccache_launcher.sh CCACHE COMPILER ARGUMENT…
#
# While an old precompiled header lies in its place, ccache's preprocessor reads that one and not the headers.
# Its key then does not depend on them, and ccache answers with a result for other headers. So the old one goes
# before a new one is compiled.
export CCACHE_SLOPPINESS=pch_defines,time_macros
before=
for argument; do
  if [ "$before" = -o ]; then
    case $argument in *.gch) rm -f -- "$argument" ;; esac
  fi
  before=$argument
done
exec "$@"
