#!/usr/bin/env bash
# Installs the Debian 12 packages that Baton needs. Does nothing if all are installed.
#   scripts/install_packages.sh           packages for building and running
#   scripts/install_packages.sh --test    also packages for the tests
#   scripts/install_packages.sh --browser also Chromium, for the test of the status page
#   scripts/install_packages.sh --clang   also packages for clang-format, clang-tidy and the fuzz targets
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc grpc-proto
  libabsl-dev libgoogle-glog-dev libpcre2-dev libssl-dev libxxhash-dev libzstd-dev nlohmann-json3-dev libcli11-dev libedit-dev
  prometheus-cpp-dev
  libboost1.81-dev
  python3 python3-pip python3-venv
)
for argument; do
  case $argument in
    --test) packages+=(libgtest-dev libgmock-dev prometheus python3-prometheus-client) ;;
    --browser) packages+=(chromium) ;;
    --clang) packages+=(clang libclang-rt-14-dev clang-format clang-tidy) ;;
    *) echo "install_packages: unknown option $argument" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || true
  [[ $status == *'ok installed'* ]] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

run=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages: not root, and no sudo; install as root: ${missing[*]}" >&2; exit 1; }
  run=(sudo)
fi
echo "installing ${#missing[@]} packages: ${missing[*]}" >&2
"${run[@]}" apt-get update -qq
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
