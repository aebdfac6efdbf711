#!/bin/sh
# Runs a compiler through ccache (CMake's CXX_COMPILER_LAUNCHER): ccache_launcher.sh CCACHE COMPILER ARGUMENT…
#
# This script deletes an old precompiled header before it compiles a new one. Otherwise ccache's preprocessor reads
# the old file instead of the headers. Its key then does not depend on the headers, and ccache returns a wrong result.
export CCACHE_SLOPPINESS=pch_defines,time_macros
export CCACHE_IGNOREOPTIONS='--param=ggc-min-heapsize=*'  # changes how fast gcc works, but not its output
before=
for argument; do
  if [ "$before" = -o ]; then
    case $argument in *.gch) rm -f -- "$argument" ;; esac
  fi
  before=$argument
done
exec "$@"
