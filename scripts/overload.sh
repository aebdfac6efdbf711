#!/usr/bin/env bash
# Overload test: ten times the sustained rate, clients that do not read, many cancellations. See tests/e2e/overload.py.
#   scripts/overload.sh [--seconds 60] [--factor 10] [--seed N] …
set -euo pipefail
cd "$(dirname "$0")/.."
me=overload bin=build/release/bin venv=build/venv
source scripts/python_client_env.sh
PYTHONPATH="$venv/stubs" exec "$venv/bin/python" tests/e2e/overload.py --bin "$bin" "$@"
