#!/usr/bin/env python3
"""Checks that today's proto/ still speaks every released version. Exit code 1 and a line for each break if it does not.

    released_proto_test.py [ROOT]

proto/released/VERSION.binpb is the FileDescriptorSet of that release (scripts/release_proto.sh writes it). Nothing in it may
have gone, unless its number is reserved now:

 - a field keeps its number, name, type, label and oneof; it may go if its number is reserved;
 - an enum value keeps its number and name;
 - a service keeps its methods with their types.

First the checker is given changed copies of a small set, and must find each break. Needs protoc; standard library only.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

TOKEN = re.compile(r'\s*([A-Za-z_]\w*)\s*(?:\{|:\s*("(?:[^"\\]|\\.)*"|[^\s{}]+))|\s*(\})')


def parse_text(text):
    """protoc's text form of a message, as {name: [values]}; a nested message is such a dict."""
    root, position = {}, 0
    stack = [root]
    while match := TOKEN.match(text, position):
        position = match.end()
        name, value, closing = match.groups()
        if closing:
            stack.pop()
        elif value is None:
            child = {}
            stack[-1].setdefault(name, []).append(child)
            stack.append(child)
        else:
            stack[-1].setdefault(name, []).append(value.strip('"'))
    if text[position:].strip() or len(stack) != 1:
        raise ValueError(f"protoc's text is not understood at character {position}: {text[position:position + 40]!r}")
    return root


def decode(descriptor_set):
    text = subprocess.run(["protoc", "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"],
                          input=descriptor_set, capture_output=True, check=True).stdout.decode()
    return parse_text(text)


def describe(proto_folder):
    """The FileDescriptorSet of the .proto files in `proto_folder`, serialized."""
    files = sorted(str(path) for path in proto_folder.glob("baton/**/*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{proto_folder}", f"--descriptor_set_out={out.name}", *files], check=True)
        return pathlib.Path(out.name).read_bytes()


def one(message, name, absent=""):
    return message.get(name, [absent])[0]


def flatten(descriptor_set):
    """({full name: facts that must not change}, {message: [(begin, end)] of reserved numbers})."""
    facts, reserved = {}, {}

    def add_enum(scope, enum):
        for value in enum.get("value", []):
            facts[f"{scope}.{one(enum, 'name')} value {one(value, 'number')}"] = one(value, "name")

    def add_message(scope, message):
        name = f"{scope}.{one(message, 'name')}"
        facts[f"{name} message"] = "message"
        reserved[name] = [(int(one(r, "start")), int(one(r, "end"))) for r in message.get("reserved_range", [])]
        oneofs = [one(declared, "name") for declared in message.get("oneof_decl", [])]
        for field in message.get("field", []):
            oneof = oneofs[int(one(field, "oneof_index"))] if "oneof_index" in field else ""
            facts[f"{name} field {one(field, 'number')}"] = " ".join(
                [one(field, "name"), one(field, "label"), one(field, "type"), one(field, "type_name"), oneof]).strip()
        for nested in message.get("nested_type", []):
            add_message(name, nested)
        for enum in message.get("enum_type", []):
            add_enum(name, enum)

    for file in descriptor_set.get("file", []):
        package = one(file, "package")
        for message in file.get("message_type", []):
            add_message(package, message)
        for enum in file.get("enum_type", []):
            add_enum(package, enum)
        for service in file.get("service", []):
            for method in service.get("method", []):
                facts[f"{package}.{one(service, 'name')} method {one(method, 'name')}"] = " ".join(
                    one(method, part, "false") for part in ("input_type", "output_type", "client_streaming", "server_streaming"))
    return facts, reserved


def breaks(old, new):
    """What `new` no longer says of `old`, a line each."""
    (old_facts, _), (new_facts, reserved) = flatten(old), flatten(new)
    found = []
    for name, fact in old_facts.items():
        if new_facts.get(name) == fact:
            continue
        message, _, number = name.partition(" field ")
        if name not in new_facts and number and any(b <= int(number) < e for b, e in reserved.get(message, [])):
            continue
        found.append(f"{name} was “{fact}” and is {new_facts.get(name, 'gone')!r}")
    return found


GOOD = """syntax = "proto3"; package baton.v1;
enum Color { RED = 0; BLUE = 1; }
message Ask { int32 a = 1; string b = 2; repeated int32 c = 3; oneof d { int32 e = 4; Color f = 5; } message Inner { bool g = 1; } optional int32 h = 6; }
message Answer {}
service Talk { rpc Say(Ask) returns (stream Answer); }
"""
CHANGED = {  # replacement: breaks expected
    ("int32 a = 1;", "int64 a = 1;"): 1,
    ("int32 a = 1;", "int32 z = 1;"): 1,
    ("int32 a = 1;", "repeated int32 a = 1;"): 1,
    ("int32 a = 1;", ""): 1,
    ("int32 a = 1;", "reserved 1;"): 0,
    ("int32 a = 1;", "int32 a = 1; int32 i = 7;"): 0,
    ("optional int32 h = 6;", "int32 h = 6;"): 1,
    ("int32 e = 4; Color f = 5; }", "Color f = 5; } int32 e = 4;"): 1,
    ("BLUE = 1;", ""): 1,
    ("BLUE = 1;", "BLUE = 1; GREEN = 2;"): 0,
    ("message Inner { bool g = 1; }", ""): 2,
    ("returns (stream Answer)", "returns (Answer)"): 1,
    ("rpc Say(Ask) returns (stream Answer);", ""): 1,
}


def self_check():
    def described(text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "baton").mkdir()
            (pathlib.Path(folder) / "baton/a.proto").write_text(text, encoding="utf-8")
            return decode(describe(pathlib.Path(folder)))

    good, wrong = described(GOOD), []
    for (before, after), expected in CHANGED.items():
        assert before in GOOD
        found = breaks(good, described(GOOD.replace(before, after)))
        if len(found) != expected:
            wrong.append(f"“{before}” → “{after}”: {expected} breaks expected, found {found}")
    return wrong


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    if wrong := self_check():
        print("released_proto_test does not find what it must:\n" + "\n".join(wrong))
        return 1
    released = sorted((root / "proto/released").glob("*.binpb"))
    if not released:
        print("proto/released has no descriptors")
        return 1
    today, failures, facts = decode(describe(root / "proto")), 0, 0
    for path in released:
        old = decode(path.read_bytes())
        facts += len(flatten(old)[0])
        for line in breaks(old, today):
            print(f"{path.stem}: {line}")
            failures += 1
    print(f"{len(released)} releases, {facts} facts, {failures} breaks")
    return 1 if failures or not facts else 0


if __name__ == "__main__":
    sys.exit(main())
