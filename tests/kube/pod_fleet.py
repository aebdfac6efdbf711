"""Runs rendered manifests as pods with podman, and plays the parts of Kubernetes that podman lacks: replicas, the downward API,
probes, endpoints of Services and rolling updates. Needs PyYAML; otherwise the standard library only."""

import copy
import http.client
import os
import pathlib
import subprocess
import threading
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUBNET = "10.89.77"
NETWORK = f"baton-{os.getpid()}"  # podman remembers the addresses of a network that a killed run has left
START_TIMEOUT_S = 300  # a guard against hangs
PROBE_S = 1
GRPC, HTTP, METRICS = 8090, 8000, 9090
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""


def get(address, path, timeout_s=5):
    """Returns (status, body) of an HTTP GET; status 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""


class Podman:
    """podman and buildah with a storage of their own."""

    def __init__(self, state):
        self.state = pathlib.Path(state)
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "containers.conf").write_text(CONTAINERS_CONF)
        (self.state / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.state}/storage"\nrunroot = "{self.state}/run"\n')
        self.environment = {**os.environ, "CONTAINERS_CONF": str(self.state / "containers.conf"),
                            "CONTAINERS_STORAGE_CONF": str(self.state / "storage.conf")}

    def __call__(self, *command, check=True, text=None):
        done = subprocess.run(command, env=self.environment, cwd=ROOT, input=text, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout

    def build_image(self, bin_dir, base="localhost/baton-base"):
        """Builds localhost/baton:latest from built programs. Returns its size in MiB."""
        self("scripts/kube_base_image.sh", base)
        programs = ROOT / "build/image/bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("baton", "baton-router", "baton-prefill-worker", "baton-decode-worker"):
            subprocess.run(["install", "--strip", os.path.join(bin_dir, name), programs / name], check=True)
        self("buildah", "bud", "--isolation", "chroot", "--layers", "--target", "prebuilt", "--build-arg", f"BASE={base}",
             "-f", "k8s/Containerfile", "-t", "localhost/baton:latest", ".")
        return int(self("podman", "image", "inspect", "--format", "{{.Size}}", "localhost/baton:latest")) / (1 << 20)


    def make_volume(self, name, files):
        """Makes a volume with these files, {name: bytes}, which the image's user may read."""
        self("podman", "volume", "rm", "--force", name, check=False)
        self("podman", "volume", "create", name)
        folder = pathlib.Path(self("podman", "volume", "inspect", "--format", "{{.Mountpoint}}", name).strip())
        for file, contents in files.items():
            (folder / file).write_bytes(contents)
            os.chmod(folder / file, 0o444)


class Pod:
    """One pod of a Deployment. `ready` is what the readiness probe last said."""

    def __init__(self, fleet, role, host):
        self.fleet, self.role, self.host = fleet, role, host
        self.name = f"baton-{role}-{host}"
        self.ip = f"{SUBNET}.{host}"
        self.ready, self.ending, self.id = False, False, None

    def address(self, port):
        return f"{self.ip}:{port}"

    def manifest(self):
        """The Deployment of this role as podman can play it: one replica under this pod's name. The script gives values to the
        fields that Kubernetes fills in, and calls the probes itself."""
        document = copy.deepcopy(self.fleet.deployments[f"baton-{self.role}"])
        document["metadata"]["name"] = self.name
        document["spec"]["replicas"] = 1
        # podman removes an init container of the type `once`, and fails if it has not quite ended.
        document["metadata"]["annotations"] = {"io.podman.annotations.init.container.type": "always"}
        spec = document["spec"]["template"]["spec"]
        for volume in spec.get("volumes", []):
            if "secret" in volume:  # the script puts Secrets into volumes of the same names
                volume["persistentVolumeClaim"] = {"claimName": volume.pop("secret")["secretName"]}
        for container in spec.get("initContainers", []) + spec["containers"]:
            container["imagePullPolicy"] = "Never"
            # podman would publish every port of a container on the host.
            for name in ("livenessProbe", "readinessProbe", "ports"):
                container.pop(name, None)
            for entry in container.get("env", []):
                field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                if field is not None:
                    del entry["valueFrom"]
                    entry["value"] = {"status.podIP": self.ip, "metadata.name": self.name}[field]
        return yaml.safe_dump_all([*self.fleet.config_maps, document])

    def start(self):
        # Every router answers to the name of the headless Service.
        alias = ",alias=baton-registry" if self.role == "router" else ""
        said = self.fleet.podman("podman", "kube", "play", "--network", f"{NETWORK}:ip={self.ip}{alias}", "-", text=self.manifest())
        lines = said.split()
        self.id = lines[lines.index("Pod:") + 1]

    def container(self):
        """The id of its program's container."""
        listed = self.fleet.podman("podman", "ps", "--all", "--filter", f"pod={self.id}", "--format", "{{.ID}} {{.IsInfra}} {{.Names}}")
        return next(line.split()[0] for line in listed.splitlines() if " false " in line and not line.endswith("check-model"))

    def await_ready(self):
        end = time.monotonic() + START_TIMEOUT_S
        while not self.ready:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} is not ready: {get(self.address(METRICS), '/readyz')}; {self.log()}")
            time.sleep(0.2)

    def log(self):
        done = subprocess.run(["podman", "pod", "logs", "--tail", "30", self.id], env=self.fleet.podman.environment, text=True,
                              capture_output=True)
        return (done.stdout + done.stderr)[-3000:]

    def end(self, grace_s=90):
        """As the kubelet ends a pod: SIGTERM, and SIGKILL after the grace period. Returns the program's exit code."""
        self.ending = True
        container = self.container()
        self.fleet.podman("podman", "stop", "--time", str(grace_s), container)
        code = int(self.fleet.podman("podman", "inspect", "--format", "{{.State.ExitCode}}", container))
        self.remove()
        return code

    def remove(self):
        self.ending = True
        self.fleet.podman("podman", "pod", "rm", "--force", "--time", "0", self.id, check=False)
        self.fleet.pods.pop(self.name, None)

    def signal(self, verb):
        """Verbs: kill, pause, unpause. `runc pause` sometimes answers "unable to freeze". Then this asks again, up to ten times."""
        for attempt in range(11):
            try:
                return self.fleet.podman("podman", verb, self.container())
            except RuntimeError as error:
                if attempt == 10 or "unable to freeze" not in str(error):
                    raise
            time.sleep(0.2)


class PodFleet:
    """The pods of the rendered manifests, probed every second. A context manager."""

    def __init__(self, podman, documents, replicas):
        self.podman = podman
        self.deployments = {one["metadata"]["name"]: one for one in documents if one["kind"] == "Deployment"}
        self.config_maps = [one for one in documents if one["kind"] == "ConfigMap"]
        self.pods, self.hosts = {}, 10
        self.stopping = threading.Event()
        self.podman("podman", "pod", "rm", "--all", "--force", check=False)
        self.podman("podman", "network", "prune", "--force", check=False)
        self.podman("podman", "network", "create", "--subnet", f"{SUBNET}.0/24", NETWORK)
        self.prober = threading.Thread(target=self.probe, daemon=True)
        self.prober.start()
        try:
            for role, count in replicas.items():
                for _ in range(count):
                    self.add(role)
            for pod in list(self.pods.values()):
                pod.await_ready()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.prober.join()
        self.podman("podman", "pod", "rm", "--all", "--force", "--time", "0", check=False)
        self.podman("podman", "network", "rm", "--force", NETWORK, check=False)

    def add(self, role):
        self.hosts += 1
        pod = Pod(self, role, self.hosts)
        pod.start()
        self.pods[pod.name] = pod
        return pod

    def probe(self):
        while not self.stopping.wait(PROBE_S):
            for pod in list(self.pods.values()):
                pod.ready = get(pod.address(METRICS), "/readyz", timeout_s=2)[0] == 200

    def of_role(self, role):
        return [pod for pod in list(self.pods.values()) if pod.role == role]

    def endpoints(self, port):
        """The addresses that a Service has: those of ready routers that do not end."""
        return [pod.address(port) for pod in self.of_role("router") if pod.ready and not pod.ending]

    def replace(self, pod):
        """As a rolling update with maxSurge 1 and maxUnavailable 0. Returns the old pod's exit code."""
        new = self.add(pod.role)
        new.await_ready()
        return pod.end()
