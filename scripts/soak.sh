#!/usr/bin/env bash
# Soak test: many clients for minutes against two prefill and two decode workers. See tests/e2e/soak.py.
#   scripts/soak.sh [--seconds 300] [--clients 32] [--seed N] …
set -euo pipefail
cd "$(dirname "$0")/.."
me=soak bin=build/release/bin venv=build/venv
source scripts/python_client_env.sh
PYTHONPATH="$venv/stubs" exec "$venv/bin/python" tests/e2e/soak.py --bin "$bin" "$@"
