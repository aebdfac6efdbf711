#!/usr/bin/env bash
# Makes the base image of k8s/Containerfile from Debian's packages, without a registry of images: scripts/kube_base_image.sh NAME
# Needs root, debootstrap and podman. Does nothing if the image exists.
set -euo pipefail
name=${1:?the name of the image, for example localhost/baton-base}
podman image exists "$name" && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase bookworm "$work/tree" >&2
rm -rf "$work"/tree/var/lib/apt/lists/* "$work"/tree/var/cache/apt/*
tar -C "$work/tree" -c . | podman import --quiet - "$name" >&2
