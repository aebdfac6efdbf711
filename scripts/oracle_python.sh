#!/usr/bin/env bash
# Prints the path of a Python that has the packages of PyPI which the oracle tests need (numpy, gguf). Installs them once, in a
# virtual environment of its own. Ends with an error where that is not possible.
set -euo pipefail
venv=${XDG_CACHE_HOME:-$HOME/.cache}/baton/oracle-python
packages=(numpy==2.3.5 gguf==0.19.0)
if [ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "installing ${packages[*]} in $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" > "$venv/packages"
fi
echo "$venv/bin/python"
