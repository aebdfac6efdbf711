#!/usr/bin/env bash
# Prints the path of a Python that has PyPI's kubernetes-validate, which tests/kube/manifests_test.py needs. Installs it once, in a
# virtual environment of its own. Ends with an error where that is not possible.
set -euo pipefail
venv=${XDG_CACHE_HOME:-$HOME/.cache}/baton/kube-python
packages=(kubernetes-validate==1.37.0)
if [ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ]; then
  echo "installing ${packages[*]} in $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" > "$venv/packages"
fi
echo "$venv/bin/python"
