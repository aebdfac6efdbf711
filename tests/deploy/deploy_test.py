#!/usr/bin/env python3
"""Checks deploy/: alerts.yaml and dashboard.json.

 1. Every expression names only metrics and labels that docs/METRICS.md declares. A test of metrics/ keeps that file current.
 2. promtool parses every expression, checks the alerts and passes tests/deploy/alerts_test.yaml.
 3. alerts_test.yaml shows every alert firing, and every alert silent.

Before, the script shows that it finds a wrong metric, a wrong label and a wrong label value. Standard library only. Without promtool
it makes the other checks, then prints `not run` and ends with 77.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Labels that Prometheus or the router's /targets add to every series, and those of histograms.
ADDED_LABELS = {"instance", "job", "le", "baton_role", "baton_worker"}
OTHER_METRICS = {"up": {}}
KEYWORDS = {"by", "on", "and", "or", "unless", "without", "ignoring", "group_left", "group_right", "bool", "offset"}


def declared_metrics():
    """Returns {name: {label: set of values}}; an empty set means any value."""
    metrics = dict(OTHER_METRICS)
    codes = re.search(r"kStatusCodeNames = \{(.*?)\}", (ROOT / "metrics/metric_labels.h").read_text(), re.S).group(1)
    codes = set(re.findall(r'"(\w+)"', codes))
    for line in (ROOT / "docs/METRICS.md").read_text().splitlines():
        row = re.match(r"\| `((?:baton|process)_\w+)` \| (counter|gauge|histogram) \| \w* \| (.*?) \| ", line)
        if not row:
            continue
        name, kind, labels = row.groups()
        known = {}
        for label in filter(None, labels.split("; ")):
            values = re.match(r"`(\w+)`(?:: (.*))?$", label)
            names = values.group(2) or ""
            known[values.group(1)] = codes if names == "a status code" else set(filter(None, names.split(", ")))
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            metrics[name + suffix] = known
    return metrics


def problems(expression, metrics):
    """Returns what is wrong with the metrics and labels of a PromQL expression."""
    found = []
    selectors = re.findall(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?", re.sub(r"\[[^]]*\]", "", re.sub(r'"[^"]*"', lambda m: m.group(0), expression)))
    used = set()
    for name, selector in selectors:
        if name.startswith(("baton_", "process_")) or name in OTHER_METRICS:
            if name in ADDED_LABELS:
                continue
            if name not in metrics:
                found.append(f"{name} is no metric")
                continue
            used |= set(metrics[name])
            for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector or ""):
                if label in ADDED_LABELS:
                    continue
                if label not in metrics[name]:
                    found.append(f"{name} has no label {label}")
                elif metrics[name][label] and "$" not in value:
                    for one in value.split("|") if "~" in operator else [value]:
                        if one not in metrics[name][label]:
                            found.append(f"{name}: label {label} has no value {one}")
    for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        for label in filter(None, (part.strip() for part in group.split(","))):
            if label not in ADDED_LABELS | used:
                found.append(f"grouped by {label}, which no metric here has")
    if not used and not any(name in expression for name in metrics):
        found.append("names no metric")
    return found


def alert_rules():
    """Returns {alert: expression}. alerts.yaml has one form only, so no YAML parser is needed."""
    rules, name = {}, None
    lines = (ROOT / "deploy/alerts.yaml").read_text().splitlines()
    for i, line in enumerate(lines):
        if match := re.match(r"\s*- alert: (\w+)$", line):
            name = match.group(1)
        if match := re.match(r"(\s*)expr: (.*)$", line):
            text = match.group(2)
            if text == ">":
                depth = len(match.group(1))
                text = ""
                for more in lines[i + 1:]:
                    if len(more) - len(more.lstrip()) <= depth:
                        break
                    text += more.strip() + " "
            rules[name] = text
    return rules


def dashboard_expressions():
    dashboard = json.loads((ROOT / "deploy/dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), "two panels have the same id"
    found = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found["variable " + variable["name"]] = re.match(r"label_values\((\w+), \w+\)", variable["definition"]).group(1)
    return found


def check_expressions(metrics):
    failures = []
    expressions = {f"alerts.yaml {name}": text for name, text in alert_rules().items()}
    expressions |= {f"dashboard.json {name}": text for name, text in dashboard_expressions().items()}
    for where, text in expressions.items():
        failures += [f"{where}: {problem}" for problem in problems(text, metrics)]
    print(f"{len(expressions)} expressions use {len(metrics)} declared series")
    return failures


def check_tests_name_every_alert():
    tests = (ROOT / "tests/deploy/alerts_test.yaml").read_text()
    failures = []
    for alert in alert_rules():
        if f"alertname: {alert}, eval_time: 45m, exp_alerts: []" not in tests:
            failures.append(f"alerts_test.yaml does not show that {alert} can be silent")
        if f'{{alertname="{alert}"}}' not in tests:
            failures.append(f"alerts_test.yaml does not show that {alert} fires")
    return failures


def check_runbook_names_every_alert():
    runbook = (ROOT / "docs/RUNBOOK.md").read_text()
    return [f"docs/RUNBOOK.md does not say what to do about {alert}" for alert in alert_rules() if f"| `{alert}` |" not in runbook]


def check_self(metrics):
    for expression in ('sum(baton_no_such_metric)', 'baton_workers{colour="red"}', 'baton_workers{role="king"}',
                       'sum by (colour) (baton_workers)', 'rate(baton_time_to_first_token_seconds[5m])', 'vector(1)'):
        assert problems(expression, metrics), f"{expression} should be found wrong"
    for expression in ('sum by (role, instance) (baton_workers{role=~"decode|both",state!="usable"})',
                       'histogram_quantile(0.9, sum by (le) (rate(baton_time_to_first_token_seconds_bucket[5m])))'):
        assert not problems(expression, metrics), problems(expression, metrics)
    assert len(metrics) > 100 and len(alert_rules()) > 15 and len(dashboard_expressions()) > 30


def check_with_promtool():
    failures = []

    def run(*arguments):
        done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            failures.append(f"promtool {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")

    run("check", "rules", "deploy/alerts.yaml")
    run("test", "rules", "tests/deploy/alerts_test.yaml")
    with tempfile.TemporaryDirectory() as folder:
        # The dashboard's expressions as rules, with values for Grafana's variables.
        rules = []
        for i, text in enumerate(dashboard_expressions().values()):
            text = text.replace("$__rate_interval", "5m").replace("$", "")
            rules.append({"record": f"dashboard:expression:{i}", "expr": text})
        path = pathlib.Path(folder, "dashboard.json")  # JSON is YAML
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        run("check", "rules", path)
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": [{"record": "a:b", "expr": "sum(("}]}]}))
        assert subprocess.run(["promtool", "check", "rules", path], capture_output=True).returncode != 0
    return failures


def main():
    metrics = declared_metrics()
    check_self(metrics)
    failures = check_expressions(metrics) + check_tests_name_every_alert() + check_runbook_names_every_alert()
    has_promtool = shutil.which("promtool") is not None
    if has_promtool:
        failures += check_with_promtool()
    for failure in failures:
        print(failure, file=sys.stderr)
    if failures:
        return 1
    if not has_promtool:
        print("not run: promtool is missing (scripts/install_packages.sh --test)")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
