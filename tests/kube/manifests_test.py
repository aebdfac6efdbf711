#!/usr/bin/env python3
"""Checks k8s/: renders every overlay, alone and with every component, and checks the result.

 1. `kubectl kustomize` (kustomize 5 or later) renders it.
 2. `kubernetes-validate --strict` accepts every object that is no custom resource.
 3. Rules of our own: restricted pods, probes, a grace period that is long enough, memory limits that count the KV pool, Services
    and policies whose selectors find pods and whose ports exist, and only settings that the programs know.
    The largest fleet and one more pod of each Deployment fit the quota. No manifest sets the replicas that an autoscaler owns.
 4. k8s/operator-pod.yaml is valid and restricted, and the routers' network policy admits it.

Before, the script shows that each rule finds a manifest that breaks it. Nothing here runs a pod: scripts/kube_test.sh does.

Needs kubectl, and PyPI's kubernetes-validate. If this Python lacks the latter, the script continues in $BATON_KUBE_PYTHON
(scripts/kube_python.sh makes it). Without them it prints `not run` and ends with 77.
"""

import copy
import fractions
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUSTOM = ("monitoring.coreos.com/", "keda.sh/")
UNITS = {"m": fractions.Fraction(1, 1000), "": 1, "Mi": 2**20, "Gi": 2**30}
SPARE_MIB = 512  # of a worker on a CPU: the smallest model, its steps, stacks and code


def not_run(reason):
    print(f"not run: {reason}")
    sys.exit(77)


try:
    import kubernetes_validate  # noqa: F401
    import yaml
except ImportError:
    other = os.environ.pop("BATON_KUBE_PYTHON", None)
    if other:
        os.execv(other, [other, "-B", *sys.argv])
    not_run("no kubernetes-validate from PyPI (scripts/kube_python.sh)")


def render(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"kubectl kustomize {folder}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def amount(text):
    number, unit = re.fullmatch(r"(\d+)(m|Mi|Gi|)", str(text)).groups()
    return int(number) * UNITS[unit]


def mib(text):
    return amount(text) / 2**20


def name_of(document):
    return f"{document['kind']} {document['metadata']['name']}"


def pods(documents):
    """Returns {name: (labels, pod spec)} of all Deployments."""
    return {document["metadata"]["name"]: (document["spec"]["template"]["metadata"]["labels"], document["spec"]["template"]["spec"])
            for document in documents if document["kind"] == "Deployment"}


def matches(selector, labels):
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In", rule
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


def setting(container, name, default=None):
    return next((entry.get("value") for entry in container["env"] if entry["name"] == name), default)


def security_problems(name, spec):
    pod = spec.get("securityContext", {})
    found = []
    if not (pod.get("runAsNonRoot") and pod.get("runAsUser")):
        found.append(f"{name} may run as root")
    if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        found.append(f"{name} has no seccomp profile")
    if spec.get("automountServiceAccountToken") is not False:
        found.append(f"{name} gets a token of the API")
    for container in spec.get("initContainers", []) + spec["containers"]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities") != {"drop": ["ALL"]} or \
                own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{name}/{container['name']} is not restricted")
        if "memory" not in container.get("resources", {}).get("limits", {}):
            found.append(f"{name}/{container['name']} has no memory limit")
    return found


def serving_problems(name, spec, replicas):
    container = spec["containers"][0]
    found = []
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        if container.get(probe, {}).get("httpGet", {}).get("path") != path:
            found.append(f"{name} has no {probe} at {path}")
    ends_ms = int(setting(container, "BATON_SHUTDOWN_DELAY_MS", 0)) + int(setting(container, "BATON_DRAIN_MS", 5000))
    if spec["terminationGracePeriodSeconds"] * 1000 <= ends_ms + 10_000:
        found.append(f"{name}: the kubelet kills it {spec['terminationGracePeriodSeconds']} s after SIGTERM, "
                     f"but it may need {ends_ms} ms")
    if int(setting(container, "BATON_SHUTDOWN_DELAY_MS", 0)) < 5000:
        found.append(f"{name} refuses requests before endpoints know that it ends")
    pool = setting(container, "BATON_KV_CACHE_MIB")
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    if pool is not None and limit is not None:
        needed = int(pool) + int(setting(container, "BATON_RPC_MEMORY_MIB", 1024)) + SPARE_MIB
        if mib(limit) < needed:
            found.append(f"{name}: its memory limit is {limit}, its KV pool and buffers need {needed} MiB")
    on_cpu = "worker" in name and setting(container, "BATON_DEVICE", "cpu") == "cpu"
    if on_cpu and pool is None:
        found.append(f"{name}: the size of the KV pool is not set, so the memory limit cannot count it")
    files = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
    for needed in ("BATON_TLS_CERT", "BATON_TLS_CA") + (("BATON_HTTP_TLS_CERT", "BATON_API_KEYS") if "router" in name else ()):
        if os.path.dirname(setting(container, needed, "")) not in files:
            found.append(f"{name} has no file for {needed}")
    if setting(container, "BATON_ROUTER_COUNT", str(replicas)) != str(replicas):
        found.append(f"{name}: BATON_ROUTER_COUNT is not the number of replicas, {replicas}")
    cpu = container.get("resources", {}).get("limits", {}).get("cpu", "1")
    if not str(cpu).isdigit():
        found.append(f"{name}: {cpu} processors are not a whole number")
    return found


def known_settings(bin_dir):
    """Returns {program: names of its settings as environment variables}, from --help of the programs; None without them."""
    if bin_dir is None:
        return None
    known = {}
    for program in ("baton-router", "baton-prefill-worker", "baton-decode-worker"):
        text = subprocess.run([os.path.join(bin_dir, program), "--help"], capture_output=True, text=True, check=True).stdout
        known[program] = {"BATON_" + option.upper().replace("-", "_") for option in re.findall(r"^ {2}--([a-z-]+)", text, re.M)}
    return known


def setting_problems(name, spec, known):
    container = spec["containers"][0]
    program = container["command"][0]
    return [f"{name}: {program} has no setting {entry['name']}" for entry in container["env"]
            if known is not None and entry["name"] not in known[program]]


def object_problems(documents):
    """Problems of objects that select pods."""
    found = []
    every_pod = pods(documents)
    for document in documents:
        selector = document.get("spec", {}).get("selector") if document["kind"] == "Service" else None
        if document["kind"] == "Service":
            chosen = [spec for labels, spec in every_pod.values() if matches({"matchLabels": selector}, labels)]
            ports = [port["targetPort"] for port in document["spec"]["ports"]]
        elif document["kind"] in ("NetworkPolicy", "PodDisruptionBudget"):
            key = "podSelector" if document["kind"] == "NetworkPolicy" else "selector"
            chosen = [spec for labels, spec in every_pod.values() if matches(document["spec"][key], labels)]
            ports = []
        else:
            continue
        if not chosen:
            found.append(f"{name_of(document)} selects no pod")
        for port in ports:
            for spec in chosen:
                if port not in [known["name"] for known in spec["containers"][0]["ports"]]:
                    found.append(f"{name_of(document)}: a pod has no port {port}")
    budgets = [document["spec"]["selector"] for document in documents if document["kind"] == "PodDisruptionBudget"]
    for name, (labels, _) in every_pod.items():
        if sum(matches(selector, labels) for selector in budgets) != 1:
            found.append(f"{name} does not have one disruption budget")
    hosts = {document["metadata"]["name"] for document in documents if document["kind"] == "Service"}
    for name, (_, spec) in every_pod.items():
        for argument in spec["containers"][0].get("args", []):
            host = re.fullmatch(r"--router=dns:///([\w-]+):8090", argument)
            if not host or host.group(1) not in hosts:
                found.append(f"{name}: {argument} names no Service")
                continue
            service = next(one for one in documents if one["kind"] == "Service" and one["metadata"]["name"] == host.group(1))
            if not service["spec"].get("publishNotReadyAddresses") or service["spec"].get("clusterIP") != "None":
                found.append(f"{name}: the Service {host.group(1)} hides routers that wait for workers")
    for document in documents:
        if document["kind"] != "ScaledObject":
            continue
        target = document["spec"]["scaleTargetRef"]["name"]
        if target not in every_pod:
            found.append(f"{name_of(document)} scales nothing")
        if any("replicas" in one["spec"] for one in documents if one["kind"] == "Deployment" and one["metadata"]["name"] == target):
            found.append(f"{target} sets replicas, so each apply undoes what {name_of(document)} has scaled")
    return found


def pod_needs(spec):
    """Returns {key of a ResourceQuota: amount} for one pod. Init containers run before the others, one at a time."""
    def of(container):
        resources = container.get("resources", {})
        return {f"{kind}.{name}": amount(text) for kind in ("requests", "limits") for name, text in resources.get(kind, {}).items()}

    steps = [[one] for one in spec.get("initContainers", [])] + [spec["containers"]]
    needs = {"pods": 1}
    for needed in [[of(one) for one in step] for step in steps]:
        for key in {key for one in needed for key in one}:
            needs[key] = max(needs.get(key, 0), sum(one.get(key, 0) for one in needed))
    return needs


def largest_fleet(documents):
    """Returns {Deployment: its most pods}, with the one that a rolling update adds."""
    most = {one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in documents if one["kind"] == "Deployment"}
    most |= {one["spec"]["scaleTargetRef"]["name"]: one["spec"]["maxReplicaCount"]
             for one in documents if one["kind"] == "ScaledObject"}
    return {name: count + 1 for name, count in most.items()}


def quota_problems(documents):
    found = []
    every_pod = pods(documents)
    needs = [(count, pod_needs(every_pod[name][1])) for name, count in largest_fleet(documents).items() if name in every_pod]
    for quota in (one for one in documents if one["kind"] == "ResourceQuota"):
        for key, text in quota["spec"]["hard"].items():
            needed = sum(count * one.get(key, 0) for count, one in needs)
            if needed > amount(text):
                unit = text.lstrip("0123456789")
                found.append(f"the quota of {key} is {text}, but the largest fleet and one more pod of each kind need "
                             f"{float(needed / UNITS[unit]):g}{unit}")
    return found


def problems(documents, known=None):
    found = object_problems(documents) + quota_problems(documents)
    replicas = {one["metadata"]["name"]: one["spec"].get("replicas", 1) for one in documents if one["kind"] == "Deployment"}
    for name, (_, spec) in pods(documents).items():
        found += security_problems(name, spec) + serving_problems(name, spec, replicas[name]) + setting_problems(name, spec, known)
    return found


def validate(documents, folder):
    path = os.path.join(folder, "objects.yaml")
    with open(path, "w") as file:
        yaml.safe_dump_all([one for one in documents if not one["apiVersion"].startswith(CUSTOM)], file)
    done = subprocess.run([sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", path], capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr or f"kubernetes-validate ended with {done.returncode}")


def check_quota_rule(documents):
    """The GPU overlay with keda: each quota may be what the largest fleet needs, and one unit less is found."""
    exact = {"pods": ("21", "20"), "requests.cpu": ("75", "74"), "requests.memory": ("579Gi", "578Gi"),
             "limits.memory": ("579Gi", "578Gi"), "requests.nvidia.com/gpu": ("18", "17")}
    changed = copy.deepcopy(documents)
    hard = next(one for one in changed if one["kind"] == "ResourceQuota")["spec"]["hard"]
    assert hard.keys() == exact.keys(), f"this test knows no figures for {hard.keys() ^ exact.keys()}"
    hard.update({key: enough for key, (enough, _) in exact.items()})
    assert not quota_problems(changed), quota_problems(changed)
    for key, (enough, too_little) in exact.items():
        hard[key] = too_little
        found = quota_problems(changed)
        assert len(found) == 1 and f"the quota of {key} is {too_little}" in found[0], found
        hard[key] = enough


def check_rules(documents, folder):
    """Breaks the manifests of the CPU overlay with keda in one place at a time; each time a rule must find it."""
    def deployment(changed, name="baton-decode-worker"):
        return pods(changed)[name][1]

    def container(changed, name="baton-decode-worker"):
        return deployment(changed, name)["containers"][0]

    def of_kind(changed, kind):
        return next(one for one in changed if one["kind"] == kind)

    breaks = {
        "may run as root": lambda c: deployment(c)["securityContext"].pop("runAsNonRoot"),
        "no seccomp profile": lambda c: deployment(c)["securityContext"].pop("seccompProfile"),
        "token of the API": lambda c: deployment(c).pop("automountServiceAccountToken"),
        "is not restricted": lambda c: container(c)["securityContext"].pop("capabilities"),
        "has no memory limit": lambda c: container(c)["resources"]["limits"].pop("memory"),
        "no livenessProbe": lambda c: container(c).pop("livenessProbe"),
        "the kubelet kills it": lambda c: deployment(c).update(terminationGracePeriodSeconds=30),
        "before endpoints know": lambda c: container(c, "baton-router")["env"].clear(),
        "KV pool and buffers need": lambda c: container(c)["resources"]["limits"].update(memory="1Gi"),
        "the size of the KV pool is not set": lambda c: container(c)["env"].remove(
            {"name": "BATON_KV_CACHE_MIB", "value": "1024"}),
        "no file for BATON_TLS_CERT": lambda c: container(c)["volumeMounts"].pop(),
        "no file for BATON_API_KEYS": lambda c: container(c, "baton-router")["volumeMounts"].pop(),
        "is not the number of replicas": lambda c: [one["spec"].update(replicas=7) for one in c if one["kind"] == "Deployment"],
        "not a whole number": lambda c: container(c)["resources"]["limits"].update(cpu="1500m"),
        "selects no pod": lambda c: of_kind(c, "Service")["spec"]["selector"].update({"app.kubernetes.io/component": "x"}),
        "has no port": lambda c: container(c, "baton-router")["ports"].pop(1),
        "disruption budget": lambda c: c.remove(of_kind(c, "PodDisruptionBudget")),
        "names no Service": lambda c: container(c).update(args=["--router=dns:///nothing:8090"]),
        "hides routers": lambda c: [one["spec"].pop("publishNotReadyAddresses", None) for one in c if one["kind"] == "Service"],
        "sets replicas": lambda c: [one["spec"].update(replicas=2) for one in c if one["kind"] == "Deployment"],
        "scales nothing": lambda c: of_kind(c, "ScaledObject")["spec"]["scaleTargetRef"].update(name="x"),
        "the quota of pods": lambda c: of_kind(c, "ScaledObject")["spec"].update(maxReplicaCount=20),
        "has no setting BATON_NOTHING": lambda c: container(c)["env"].append({"name": "BATON_NOTHING", "value": "1"}),
    }
    known = {program: {entry["name"] for _, spec in pods(documents).values() for entry in spec["containers"][0]["env"]}
             for program in ("baton-router", "baton-prefill-worker", "baton-decode-worker")}
    for expected, break_it in breaks.items():
        changed = copy.deepcopy(documents)
        break_it(changed)
        found = problems(changed, known)
        assert any(expected in problem for problem in found), f"no rule says '{expected}': {found}"
    changed = copy.deepcopy(documents)
    container(changed)["terminationGracePeriod"] = 1
    assert validate(changed, folder), "kubernetes-validate --strict accepts an unknown field"


def render_with(folder, overlay, components):
    """Renders an overlay with components through a kustomization that it writes into `folder`."""
    k8s = os.path.relpath(ROOT / "k8s", folder)  # kustomize refuses absolute paths
    with open(os.path.join(folder, "kustomization.yaml"), "w") as file:
        yaml.safe_dump({"resources": [f"{k8s}/overlays/{overlay}"],
                        "components": [f"{k8s}/components/{one}" for one in components]}, file)
    return render(folder)


def check_operator_pod(routers, folder):
    """`routers`: manifests with the routers' network policy."""
    pod, = yaml.safe_load_all((ROOT / "k8s/operator-pod.yaml").read_text())
    said = validate([pod], folder)
    assert not said, f"k8s/operator-pod.yaml: {said}"
    found = security_problems("baton-operator", pod["spec"])
    assert not found, f"k8s/operator-pod.yaml: {found}"
    policy = next(one for one in routers if name_of(one) == "NetworkPolicy baton-router")
    admitted = [source["podSelector"] for rule in policy["spec"]["ingress"] if rule["ports"] == [{"protocol": "TCP", "port": 8090}]
                for source in rule["from"] if source.get("namespaceSelector") == {}]
    labels = pod["metadata"]["labels"]
    assert any(matches(selector, labels) for selector in admitted), f"the routers' policy does not admit {labels}"


def main():
    if shutil.which("kubectl") is None:
        not_run("no kubectl")
    version = re.search(r"Kustomize Version: v(\d+)", subprocess.run(["kubectl", "version", "--client"], capture_output=True,
                                                                     text=True).stdout)
    if version is None or int(version.group(1)) < 5:
        not_run("kubectl is older than 1.27")
    bin_dir = sys.argv[sys.argv.index("--bin") + 1] if "--bin" in sys.argv else None
    known = known_settings(bin_dir)
    overlays = sorted(path.parent.name for path in (ROOT / "k8s/overlays").glob("*/kustomization.yaml"))
    components = sorted(path.parent.name for path in (ROOT / "k8s/components").glob("*/kustomization.yaml"))
    assert overlays and components
    with tempfile.TemporaryDirectory() as folder:
        with_keda = render_with(folder, "cpu", ["keda"])
        check_rules(with_keda, folder)
        check_quota_rule(render_with(folder, "gpu", ["keda"]))
        check_operator_pod(with_keda, folder)
        for overlay in overlays:
            for chosen in [[], *[[one] for one in components], components]:
                documents = render_with(folder, overlay, chosen)
                found = problems(documents, known)
                said = validate(documents, folder)
                what = f"{overlay} with {', '.join(chosen) or 'no component'}"
                custom = sum(one["apiVersion"].startswith(CUSTOM) for one in documents)
                print(f"{what}: {len(documents)} objects, of which {custom} are custom resources and not validated")
                assert not found, f"{what}: {found}"
                assert not said, f"{what}: {said}"


main()
