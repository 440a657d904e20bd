"""What scripts/lines knows about files of Rust."""
import collections
import io
import os
import re
import subprocess
import tarfile

WORDS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(?P<text>\bb?r(?P<hashes>\#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\[^\n]+?|[^\\'\n])')""", re.S
)
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod (\w+)(?:;| \{.*?^\})", re.S | re.M)
IMPL = re.compile(r"^ *impl(?:<.*?>)? &?(?:\w+::)*(\w+)(?:<[^{]*>)?(?:\s+where[^{]*)? \{", re.M)


def read(revision):
    """The text of each file, of the directory or of a revision."""
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    git = lambda *words: subprocess.run(["git", *words], stdout=subprocess.PIPE, check=True).stdout
    if revision:
        archive = tarfile.open(fileobj=io.BytesIO(git("archive", revision)))
        return {file.name: archive.extractfile(file).read().decode(errors="replace") for file in archive if file.isfile()}
    paths = git("ls-files", "-co", "--exclude-standard").decode().splitlines()
    return {path: open(path, errors="replace").read() for path in paths if os.path.isfile(path)}


def without_comments(text):
    """The code. A string keeps its lines, but not its words."""
    marks = lambda string: re.sub(r"[^\n]+", '""', string)
    return WORDS.sub(lambda word: marks(word[0]) if word["text"] else "\n" * word[0].count("\n"), text)


def lines(code):
    """The number of lines that are not blank."""
    return sum(bool(line.strip()) for line in code.splitlines())


def spread(rust):
    """How many files have an inherent `impl` of a type, the most first. Types of one name: the nearest is meant."""
    homes, found = collections.defaultdict(list), collections.defaultdict(set)
    for path, text in rust.items():
        for name in re.findall(r"\b(?:struct|enum|union) (\w+)", text):
            homes[name].append(path)
    near = lambda a, b: len(os.path.commonpath([a, b])) + (a == b)
    for path, text in rust.items():
        crate = "/".join(path.split("/")[:2])
        for name in IMPL.findall(text):
            inside = [home for home in homes[name] if home.startswith(crate + "/")]
            found[max(inside, key=lambda home: near(home, path), default=crate), name].add(path)
    return sorted(((len(paths), f"{name}, {home}") for (home, name), paths in found.items()), reverse=True)
