#!/usr/bin/env python3
"""Checks rules of the source tree that a compiler does not check. Prints a line for each violation; then the exit code is 1.

    tree_test.py [ROOT]

 1. Includes obey the dependency table: the baton_folder(... DEPS ...) rows of the root CMakeLists.txt. A folder may include
    itself and the folders of its row, but not their dependencies. A subfolder may have its own row. cli/ may use engine and
    everything below it; only its *_client files may use rpc and proto. bench/ and tests/ may include anything.
 2. Only the edges include generated wire types (*.pb.h). Files that are built with BATON_GRPC=OFF do not reach gRPC.
 3. Every .cc of a pure folder, and of worker_rpc/, has a test of the same name, or a line with the reason in TESTED_ELSEWHERE.
 4. Headers have #pragma once. No file has `using namespace` or a note of unfinished work. No file outside tests/ is longer than
    450 lines. Python files compile.
 5. Only common/command_line.cc and common/command_line_help.* include CLI11, because CLI11 takes seconds to compile.
 6. The tree names no path of a developer's machine, and no document that is not in the tree. No file has a conflict marker.
 7. Sources of one library do not give a file-local name different meanings, because release builds compile several as one file.
 8. Only the files in POOL_ADDRESSES use the address of a KV pool.
 9. No file includes a header that clang 14 with gcc 12's library cannot compile. clang 14 builds the fuzz targets.

First the script checks itself: it builds a small tree with one violation of every rule and must find each. Standard library only.
"""

import pathlib
import re
import sys
import tempfile

NOT_IN_CLANG_14 = {"expected", "format", "print", "ranges", "source_location"}
CODE = {".cc", ".h", ".cu", ".cuh"}
TEXT = CODE | {".py", ".sh", ".proto", ".md", ".txt", ".json"}
NOT_OURS = {"build", ".git", ".venv", "__pycache__", "testdata"}
PACKAGES = ("absl/", "gtest/", "gmock/", "nlohmann/", "CLI/")  # external headers that may be included in quotes
LONGEST_FILE = 450
SIMD_ENDINGS = ("_avx2.cc", "_avx512.cc", "_avx512_no_vnni.cc", "_sse42.cc")  # have their own compile options

TESTED_FOLDERS = ["common", "security", "http", "metrics", "observe", "tracing", "text", "requests", "openai", "kernels", "cache", "scheduler", "routing", "router",
                  "loadtest", "model", "kvtransfer", "engine", "worker_rpc"]
# Source → the test that covers it under another name. A comment above each group gives the reason.
TESTED_ELSEWHERE = {
    # One file per instruction set. One parametrised test compares each with the plain version.
    "kernels/cpu/attention_avx2.cc": "tests/kernels/fast_attention_test.cc",
    "kernels/cpu/attention_avx512_no_vnni.cc": "tests/kernels/fast_attention_test.cc",
    "kernels/cpu/elementwise_avx2.cc": "tests/kernels/fast_elementwise_test.cc",
    "kernels/cpu/elementwise_avx512_no_vnni.cc": "tests/kernels/fast_elementwise_test.cc",
    "kernels/cpu/float_matmul_avx512_no_vnni.cc": "tests/kernels/fast_matmul_test.cc",
    "kernels/cpu/int8_attention_avx512.cc": "tests/kernels/fast_attention_test.cc",
    "kernels/cpu/int8_attention_avx512_no_vnni.cc": "tests/kernels/fast_attention_test.cc",
    "kernels/cpu/matmul_avx2.cc": "tests/kernels/fast_matmul_test.cc",
    "kernels/cpu/matmul_avx512.cc": "tests/kernels/fast_matmul_test.cc",
    "kernels/cpu/matmul_avx512_no_vnni.cc": "tests/kernels/fast_matmul_test.cc",
    # Tables of function pointers without behaviour of their own.
    "kernels/cpu/plain_kernels.cc": "tests/kernels/cpu_kernels_test.cc",
    "kernels/cpu/vector_kernels.cc": "tests/kernels/cpu_kernels_test.cc",
    # Parts of the CUDA device and of its streams, tested through these.
    "kernels/cuda/cuda_call_thread.cc": "tests/cuda/cuda_stream_test.cc",
    "kernels/cuda/cuda_context.cc": "tests/cuda/cuda_device_test.cc",
    "kernels/cuda/cuda_driver.cc": "tests/cuda/emulated_driver_test.cc",
    "kernels/cuda/cuda_event.cc": "tests/cuda/cuda_stream_test.cc",
    "kernels/cuda/cuda_kernels.cc": "tests/cuda/cuda_device_test.cc",
    "kernels/cuda/cuda_memory.cc": "tests/cuda/cuda_device_test.cc",
    # NCCL's table and communicators, with NCCL's stand-in.
    "kernels/cuda/nccl_api.cc": "tests/kvtransfer/nccl_api_test.cc",
    # The hardware versions of one function. Its test compares them with the table version.
    "common/crc32c_sse42.cc": "tests/common/crc32c_test.cc",
    "common/crc32c_avx512.cc": "tests/common/crc32c_test.cc",
    # One contract for all transports: transport_contract_test.cc runs against each.
    "kvtransfer/loopback/loopback_transport.cc": "tests/kvtransfer/transport_contract_test.cc",
    "kvtransfer/protocol/posted_transport.cc": "tests/kvtransfer/transport_contract_test.cc",
    "kvtransfer/protocol/transfer_node.cc": "tests/kvtransfer/transport_contract_test.cc",
    # Sockets and the receive path into the pool, tested over real connections.
    "kvtransfer/sockets/tcp_socket.cc": "tests/kvtransfer/socket_transport_test.cc",
    "kvtransfer/sockets/create_socket_transport.cc": "tests/kvtransfer/socket_transport_test.cc",
    "kvtransfer/shm/shm_connection.cc": "tests/kvtransfer/shm_hostile_sender_test.cc",
    "kvtransfer/sockets/tcp_connection.cc": "tests/kvtransfer/tcp_hostile_sender_test.cc",
    "kvtransfer/pool/block_landing.cc": "tests/kvtransfer/tcp_hostile_sender_test.cc",
    # Has no public header; tested over real sockets.
    "http/http_connection.cc": "tests/http/http_server_test.cc",
    # Small parts, tested through their users.
    "kvtransfer/transfer_pool.cc": "tests/kvtransfer/staged_pool_test.cc",
    "kvtransfer/pool/lease_request.cc": "tests/kvtransfer/staged_pool_test.cc",
    "kvtransfer/pool/pieces.cc": "tests/kvtransfer/piece_bytes_test.cc",
    # Has no public header; tested through the fleet.
    "loadtest/simulated_call.cc": "tests/loadtest/simulated_fleet_test.cc",
    # Only its owner creates and drives a session, so the owner's test covers it.
    "kvtransfer/protocol/send_session.cc": "tests/kvtransfer/transfer_sender_test.cc",
    "kvtransfer/protocol/receive_session.cc": "tests/kvtransfer/transfer_receiver_test.cc",
    # Parts of the scheduler and of the engine, tested through these.
    "scheduler/scheduler_room.cc": "tests/scheduler/scheduler_test.cc",
    "engine/peer_transport.cc": "tests/engine/engine_test.cc",
}

# Rows whose files may all use wire types.
EDGE_ROWS = ["rpc", "tracing/otlp", "worker_rpc", "router/grpc", "router/http", "router/server"]

# Functions that return a KV pool's address → the files that may use them, besides tests and benchmarks. These files declare the
# function, or pass the address directly to kernels or to a device's copy engine.
POOL_ADDRESSES = {
    "kernel_address": {"engine/kv_pool.h", "engine/kv_pool.cc"},
    "kernel_addresses": {"engine/kv_pool.h", "engine/kv_pool.cc", "engine/engine.cc"},
    "AddressForCopyEngine": {"kvtransfer/transfer_pool.h", "kvtransfer/pool/host_pool.h", "kvtransfer/pool/staged_pool.h",
                             "kvtransfer/nccl/nccl_runtime.cc"},
}

UNDONE = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|home/\w+|root|Users)/")
DOCUMENT = re.compile(r"\b[A-Z][A-Z_]{2,}\.md\b|\b(?:REQUIREM" + r"ENTS|FIELD" + r"_NOTES)\b|\bDE" + r"SIGN §")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.M)
WITH_GRPC = re.compile(r"^#ifdef BATON_GRPC\n.*?^#(?:else|endif)", re.M | re.S)


class Tree:
    """The texts of a source tree, and the violations found in it."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.texts = {}  # path from the root → content
        for path in sorted(self.root.rglob("*")):
            relative = path.relative_to(self.root)
            if path.suffix in TEXT and path.is_file() and not NOT_OURS & set(relative.parts):
                self.texts[relative.as_posix()] = path.read_text(encoding="utf-8")
        self.rows, self.without_grpc = read_table(self.texts["CMakeLists.txt"])
        self.violations = []
        self.reach_of = {}

    def report(self, path, what):
        self.violations.append(f"{path}: {what}")

    def code(self):
        return [path for path in self.texts if pathlib.PurePath(path).suffix in CODE]

    def includes(self, path, without_grpc=False):
        text = self.texts[path]
        if without_grpc:
            text = WITH_GRPC.sub("", text)
        return INCLUDE.findall(text)

    def grpc_chain(self, path):
        """Returns the chain of includes from `path` to gRPC or a generated header; empty if there is none."""
        if path in self.reach_of:
            return self.reach_of[path]
        self.reach_of[path] = []  # cycles end here
        for _, name in self.includes(path, without_grpc=True):
            if is_wire(name):
                self.reach_of[path] = [path, name]
                break
            if name in self.texts and (chain := self.grpc_chain(name)):
                self.reach_of[path] = [path] + chain
                break
        return self.reach_of[path]


def read_table(cmake):
    """Returns the rows {folder: folders it may include}, and the set of folders that are built without gRPC."""
    rows, without_grpc, depth = {}, set(), 0
    for line in cmake.splitlines():
        depth += line.startswith("if(BATON_GRPC)")
        depth -= depth > 0 and line.startswith("endif()")
        if match := re.match(r"\s*baton_folder\((\S+)\s*(.*)\)", line):
            folder, rest = match.groups()
            deps = re.search(r"DEPS ([^)]*?)(?: LIBS|$)", rest)
            rows[folder] = deps.group(1).split() if deps else []
            if depth == 0:
                without_grpc.add(folder)
    return rows, without_grpc


def is_wire(name):
    return name.startswith(("grpcpp/", "grpc/", "google/protobuf/")) or name.endswith(".pb.h")


def check_table(tree):
    done, order = set(), dict(tree.rows)
    while ready := [folder for folder, deps in order.items() if all(d in done or d == "proto" for d in deps)]:
        done.update(ready)
        for folder in ready:
            del order[folder]
    for folder in order:
        tree.report("CMakeLists.txt", f"the row of {folder} is in a cycle, or names a folder without a row: {order[folder]}")
    for folder in tree.without_grpc:
        for dep in tree.rows[folder]:
            if dep == "proto" or dep not in tree.without_grpc:
                tree.report("CMakeLists.txt", f"{folder} is built without gRPC and may not use {dep}")


def check_shown_table(tree):
    """Checks that ARCHITECTURE.md shows the same rows, as `folder → names` or `folder → (nothing)`."""
    text = tree.texts.get("ARCHITECTURE.md", "")
    shown = {folder: names.split() if names != "(nothing)" else []
             for folder, names in re.findall(r"^([\w/]+) +→ (.+)$", text, re.M)}
    for folder in sorted(set(shown) | set(tree.rows)):
        if set(shown.get(folder, ["no row"])) != set(tree.rows.get(folder, ["no row"])):
            tree.report("ARCHITECTURE.md", f"shows {folder} → {shown.get(folder)}, CMakeLists.txt has {tree.rows.get(folder)}")


def row_of(tree, path):
    """Returns the innermost folder of a file that has a row, else the outermost folder."""
    for parent in pathlib.PurePath(path).parents:
        if parent.as_posix() in tree.rows:
            return parent.as_posix()
    return path.split("/")[0]


def allowed_folders(tree, path):
    folder, name = row_of(tree, path), pathlib.PurePath(path).stem
    if folder == "cli":
        core = set(tree.without_grpc) | {"cli"}
        return core | {"rpc", "proto"} if name.endswith("_client") else core
    return {folder, *tree.rows[folder]}


def check_includes(tree):
    for path in tree.code():
        folder = row_of(tree, path)
        for quote, name in tree.includes(path):
            includes_cli11 = name.startswith("CLI/") or name == "common/command_line_help.h"
            if includes_cli11 and path not in ("common/command_line.cc", "common/command_line_help.cc", "common/command_line_help.h"):
                tree.report(path, f"includes {name}; common/command_line.h stands for it")
            if name in NOT_IN_CLANG_14:
                tree.report(path, f"includes <{name}>, which clang 14 cannot compile")
            if quote != '"' or name.startswith(PACKAGES):
                continue
            target = "proto" if name.endswith(".pb.h") else row_of(tree, name)
            if target != "proto" and name not in tree.texts:
                tree.report(path, f'includes "{name}", which is not in the tree')
            elif folder in ("tests", "bench"):
                continue
            elif folder != "cli" and folder not in tree.rows:
                tree.report(path, f"lies in {folder}/, which has no row in the dependency table")
                break
            elif target not in allowed_folders(tree, path):
                tree.report(path, f'includes "{name}"; {folder} may use only '
                                   f'{", ".join(sorted(allowed_folders(tree, path) - {folder})) or "nothing"}')


def is_edge(tree, path):
    folder = row_of(tree, path)
    measures_grpc = path == "bench/grpc_bench.cc"  # alone, without any code of ours
    return measures_grpc or folder in EDGE_ROWS or folder == "tests" or pathlib.PurePath(path).stem.endswith(("_service", "_client"))


def check_wire(tree):
    for path in tree.code():
        folder, name = row_of(tree, path), pathlib.PurePath(path).stem
        wire = [include for _, include in tree.includes(path) if is_wire(include)]
        if wire and not is_edge(tree, path):
            tree.report(path, f"includes {wire[0]}, but is no edge (*_service, *_client, or in {', '.join(EDGE_ROWS)})")
        core = folder in tree.without_grpc or (folder == "cli" and not name.endswith("_client"))
        if core and (chain := tree.grpc_chain(path)):
            tree.report(path, "reaches gRPC: " + " → ".join(chain))


def check_tests(tree):
    for path in tree.code():
        folder, name = path.split("/")[0], pathlib.PurePath(path).stem
        row = row_of(tree, path)
        if folder not in TESTED_FOLDERS or (row in EDGE_ROWS and row != folder) or not path.endswith(".cc"):
            continue
        mirrored = f"tests/{path.removesuffix('.cc')}_test.cc"
        outer = "cuda" if path.startswith("kernels/cuda/") else folder  # tests/cuda has the emulator
        test = mirrored if mirrored in tree.texts else f"tests/{outer}/{name}_test.cc"
        elsewhere = TESTED_ELSEWHERE.get(path)
        if test in tree.texts:
            if elsewhere:
                tree.report(path, f"has {test}: take it out of TESTED_ELSEWHERE")
        elif elsewhere is None:
            tree.report(path, f"has no {test}")
        elif elsewhere not in tree.texts:
            tree.report(path, f"is said to be tested by {elsewhere}, which is not there")
    for path in TESTED_ELSEWHERE:
        if path not in tree.texts:
            tree.report(path, "is in TESTED_ELSEWHERE, but not in the tree")


def check_form(tree):
    for path, text in tree.texts.items():
        suffix, lines = pathlib.PurePath(path).suffix, text.splitlines()
        if suffix in (".h", ".cuh") and "#pragma once" not in lines:
            tree.report(path, "has no #pragma once")
        if path.split("/")[0] != "tests" and len(lines) > LONGEST_FILE:
            tree.report(path, f"has {len(lines)} lines, at most {LONGEST_FILE}")
        for number, line in enumerate(lines, 1):
            if suffix in CODE and re.match(r"\s*using\s+namespace\b", line):
                tree.report(f"{path}:{number}", "using namespace")
            if UNDONE.search(line):
                tree.report(f"{path}:{number}", f"work left undone: {line.strip()[:80]}")
        if suffix == ".py":
            try:
                compile(text, path, "exec")
            except SyntaxError as error:
                tree.report(f"{path}:{error.lineno}", f"is not Python: {error.msg}")


def check_conflicts(tree):
    for path, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(("<" * 7 + " ", ">" * 7 + " ")):
                tree.report(f"{path}:{number}", "has a conflict marker of a merge")


def check_names(tree):
    documents = {pathlib.PurePath(path).name for path in tree.texts}
    for path, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{path}:{number}"
            if match := MACHINE_PATH.search(line):
                tree.report(where, f"names a path of one developer's machine: {match.group()}")
            for match in DOCUMENT.finditer(line):
                if match.group() not in documents:
                    tree.report(where, f"speaks of a document that is not in the tree: {match.group()}")


# Matches a constant, type, alias or function at the outermost level of an anonymous namespace.
LOCAL = re.compile(r"(?:using |class |struct |enum |enum class )(?P<type>\w+)(?P<is>[^;{]*)"
                   r"|(?:static |inline )?(?:constexpr|const) [^=({]*?(?P<constant>\bk[A-Z]\w*)\b"
                   r"|(?!using|class|struct|enum|namespace|return|template)[\w:<>,&*\s]*?[\s&*](?P<function>\w+)\((?P<arguments>[^)]*)")
PARAMETER_NAME = re.compile(r" ?\b\w+(?= *(?:,|$|=))")


def local_names(text):
    """Returns {(name, parameter types): definition} of the names that are local to a source."""
    names, inside = {}, False
    for match in re.finditer(r"^(?P<line>[^\s/#}].*(?:\n    .*)*)|^}  // namespace$", text, re.M):
        line = match.group("line")
        if line is None or line == "namespace {":
            inside = line is not None
        elif inside and (found := LOCAL.match(line)):
            if name := found["function"]:
                arguments = " ".join(found["arguments"].split())
                names[name, PARAMETER_NAME.sub("", arguments)] = match.start()  # a unique value, because no two may be equal
            elif name := found["constant"]:
                names[name, ""] = match.start()
            else:
                names[found["type"], ""] = found["is"].strip() if line.startswith("using") else match.start()
    return names


def check_batches(tree):
    alone = set(re.search(r"set\(UNITY_ALONE ([^)]*)\)", tree.texts["CMakeLists.txt"] + "set(UNITY_ALONE )").group(1).split())
    cold_kernels = set(re.search(r"set\(COLD_KERNELS ([^)]*)\)", tree.texts["CMakeLists.txt"] + "set(COLD_KERNELS )").group(1).split())
    seen = {}  # (library, name, parameters) → (source, definition)
    for path in sorted(tree.code()):
        library = row_of(tree, path)
        if not path.endswith(".cc") or path in alone or path.endswith(SIMD_ENDINGS + ("main.cc",)):
            continue
        if (library not in tree.rows and library != "cli") or (library == "kernels" and path not in cold_kernels):
            continue
        for key, definition in local_names(tree.texts[path]).items():
            other, first = seen.setdefault((library, *key), (path, definition))
            if other != path and (first != definition or isinstance(definition, int)):
                tree.report(path, f"defines a local {key[0]}, and so does {other}: rename one, or add the file to UNITY_ALONE")


def check_pool_addresses(tree):
    for path in tree.code():
        if path.split("/")[0] in ("tests", "bench"):
            continue
        for function, files in POOL_ADDRESSES.items():
            if path not in files and re.search(rf"\b{function}\b", tree.texts[path]):
                tree.report(path, f"asks where a pool's memory is: {function}")


CHECKS = [check_table, check_shown_table, check_includes, check_wire, check_tests, check_form, check_names,
          check_pool_addresses, check_conflicts, check_batches]


def violations_of(root):
    tree = Tree(root)
    for check in CHECKS:
        check(tree)
    return tree.violations, len(tree.texts)


def self_check():
    """Checks that every rule finds its planted violation. Returns the violations that were missed or wrongly reported."""
    planted = {  # file: (content, words of the violation that it must cause)
        "common/a.h": ("int a;\n", "common/a.h: has no #pragma once"),
        "ARCHITECTURE.md": ("common → (nothing)\nrpc → proto common\nrouter → common\nrouter/grpc → router rpc proto common\ntext → (nothing)\n",
                            "ARCHITECTURE.md: shows text → [], CMakeLists.txt has ['common']"),
        "common/b.cc": ('#include "text/t.h"\n', 'common/b.cc: includes "text/t.h"; common may use only nothing'),
        "text/t.h": ("#pragma once\n#include <grpcpp/grpcpp.h>\n", "text/t.h: reaches gRPC: text/t.h → grpcpp/grpcpp.h"),
        "text/u.cc": ('#include "text/t.h"\n', "text/u.cc: reaches gRPC: text/u.cc → text/t.h → grpcpp/grpcpp.h"),
        "text/v.cc": ('#include "text/gone.h"\n', 'includes "text/gone.h", which is not in the tree'),
        "text/w.cc": ("using namespace std;\n", "text/w.cc:1: using namespace"),
        "text/x.cc": ("int x;\n", "text/x.cc: has no tests/text/x_test.cc"),
        "rpc/r.h": ('#pragma once\n#include "text/t.h"\n', 'rpc/r.h: includes "text/t.h"; rpc may use only common, proto'),
        "router/request_flow.h": ('#pragma once\n#include "rpc/s.h"\n', "router/request_flow.h: reaches gRPC"),
        "router/z.h": ('#pragma once\n#include "router/grpc/e.h"\n', 'includes "router/grpc/e.h"; router may use only common'),
        "router/grpc/f.h": ('#pragma once\n#include "text/t.h"\n', 'includes "text/t.h"; router/grpc may use only'),
        "rpc/s.h": ("#pragma once\n#include <grpcpp/x.h>\n", "rpc/s.h → grpcpp/x.h"),
        "router/y.cc": ('#include "baton/v1/inference.pb.h"\n', "router/y.cc: includes baton/v1/inference.pb.h, but is no edge"),
        "cli/c.cc": ('#include "rpc/s.h"\n', 'cli/c.cc: includes "rpc/s.h"; cli may use only'),
        "cli/g.cc": ("#include <ranges>\n", "cli/g.cc: includes <ranges>, which clang 14 cannot compile"),
        "cli/f.cc": ("#include <CLI/CLI.hpp>\n", "cli/f.cc: includes CLI/CLI.hpp; common/command_line.h stands for it"),
        "attic/z.cc": ('#include "common/a.h"\n', "attic/z.cc: lies in attic/, which has no row"),
        "common/long.cc": ("\n" * 451, "common/long.cc: has 451 lines"),
        "common/undone.cc": ("// TO" + "DO: later\n", "common/undone.cc:1: work left undone"),
        "common/pool.h": ("#pragma once\nauto a = pool.kernel_address();\n",
                          "common/pool.h: asks where a pool's memory is: kernel_address"),
        "text/same_a.cc": ("namespace {\nconstexpr int kSame = 1;\nusing J = int;\nint Of(int a) {\n}\n}  // namespace\n",
                           "text/same_a.cc: has no"),
        "text/same_b.cc": ("namespace {\nconstexpr int kSame = 2;\n}  // namespace\n",
                           "text/same_b.cc: defines a local kSame, and so does text/same_a.cc"),
        "text/same_c.cc": ("namespace {\nusing J = char;\nint Of(int b) {\n}\n}  // namespace\n",
                           "text/same_c.cc: defines a local J, and so does text/same_a.cc"),
        "text/same_d.cc": ("namespace {\nint Of(int other) {\n}\n}  // namespace\n",
                           "text/same_d.cc: defines a local Of, and so does text/same_a.cc"),
        "scripts/p.py": ("  x = 1\n", "scripts/p.py:1: is not Python"),
        "scripts/q.sh": ("ls /wo" + "rk/main\n", "scripts/q.sh:1: names a path"),
        "scripts/r.md": ("see GONE." + "md\n", "scripts/r.md:1: speaks of a document"),
        "scripts/s.md": ("<" * 7 + " HEAD\n", "scripts/s.md:1: has a conflict marker"),
    }
    table = ("baton_folder(common)\nbaton_folder(text DEPS common LIBS X::X)\nbaton_folder(router DEPS common)\nif(BATON_GRPC)\n"
             "  baton_folder(rpc DEPS proto common)\n  baton_folder(router/grpc DEPS router rpc proto common)\nendif()\n")
    good = {
        "cli/d_client.h": '#pragma once\n#include "rpc/s.h"\n',
        "cli/main.cc": '#include "common/a.h"\n#ifdef BATON_GRPC\n#include "cli/d_client.h"\n#endif\n',
        "router/grpc/e.h": '#pragma once\n#include "baton/v1/worker.grpc.pb.h"\n#include "common/a.h"\n#include "router/g.h"\n',
        "router/g.h": '#pragma once\n#include "common/a.h"\n',
        "router/grpc/h.cc": "namespace {\nusing J = int;\nint Of(int a) {\n}\n}  // namespace\n",
        "router/grpc/i.cc": "namespace {\nusing J = int;\nint Of(char a) {\n}\n}  // namespace\n",
        "tests/common/b_test.cc": '#include "router/grpc/e.h"\n',
    }
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, text in {**{n: t for n, (t, _) in planted.items()}, **good, "CMakeLists.txt": table}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = [line for line in violations_of(root)[0] if "TESTED_ELSEWHERE" not in line]
    missed = [f"not found: {words}" for _, words in planted.values() if not any(words in line for line in found)]
    blamed = [f"wrongly blamed: {line}" for line in found if line.split(":")[0] in good]
    return missed + blamed


def main():
    if problems := self_check():
        print("tree_test failed its own check:\n" + "\n".join(problems))
        return 1
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    violations, files = violations_of(root)
    print("\n".join(violations) if violations else "no violations", file=sys.stdout)
    print(f"{files} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
