"""Prints the licenses of all crates that are in the program, with their texts, each once.

    licenses.py TARGET
"""
import collections
import json
import os
import re
import subprocess
import sys

NOTICE = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.I)

command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", sys.argv[1]]
metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
waiting = [id for id, package in packages.items() if package["name"] == "fencelock-cli"]
found = set(waiting)
while waiting:
    for dependency in nodes[waiting.pop()]["deps"]:
        # Of the build and of tests: not in the program.
        if dependency["pkg"] not in found and any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            found.add(dependency["pkg"])
            waiting.append(dependency["pkg"])

crates = collections.defaultdict(list)
for package in sorted((packages[id] for id in found if packages[id]["source"]), key=lambda it: (it["name"], it["version"])):
    directory = os.path.dirname(package["manifest_path"])
    files = sorted(name for name in os.listdir(directory) if NOTICE.match(name) and os.path.isfile(os.path.join(directory, name)))
    # One of several licenses is enough, and this is the shortest.
    chosen = [name for name in files if "MIT" in name.upper()] if " OR MIT" in f" OR {package['license']}" else []
    texts = [open(os.path.join(directory, name), errors="replace").read().strip() for name in chosen or files]
    title = f"{package['name']} {package['version']} ({package['license']})"
    for text in texts or ["The crate contains no text of its license. Its source: " + (package["repository"] or "crates.io")]:
        crates[text].append(title)

print("Licenses of the crates that are in the program. Without a text here: the standard library of Rust, MIT OR Apache-2.0,")
print("https://github.com/rust-lang/rust.")
for text, titles in sorted(crates.items(), key=lambda item: item[1]):
    print("\n" + "=" * 80 + "\n" + "\n".join(titles) + "\n" + "=" * 80 + "\n\n" + text)
