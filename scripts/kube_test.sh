#!/usr/bin/env bash
# Runs the rendered CPU overlay of k8s/ with podman: two routers, two prefill and two decode workers in pods. Replaces, kills and
# pauses every pod under load over HTTP and gRPC, and counts the requests that fail: scripts/kube_test.sh [--bin DIR] [--model FILE]
#
# Needs root, kubectl 1.27 or later, PyYAML, and Debian's packages podman, buildah, runc, catatonit, netavark, iptables, aardvark-dns and
# debootstrap. It uses a storage of its own (--state DIR, /var/tmp/baton-kube), so it touches no other containers. The image holds
# programs that are already built.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -B tests/kube/kube_play.py "$@"
