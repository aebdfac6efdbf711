#!/usr/bin/env bash
# Writes proto/released/VERSION.binpb: the descriptors of the protocol as it is released.
#   scripts/release_proto.sh VERSION      for example v0.1.0
# tests/proto/released_proto_test.py then checks that later versions of proto/ still speak it.
set -euo pipefail
[ $# -eq 1 ] && [[ $1 =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
out=proto/released/$1.binpb
[ ! -e "$out" ] || { echo "release_proto: $out exists; a release does not change" >&2; exit 1; }
mkdir -p proto/released
protoc -Iproto --descriptor_set_out="$out" $(find proto/baton -name '*.proto' | sort)
echo "$out"
