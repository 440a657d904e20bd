"""Packs a directory so that the same files give the same bytes on every machine, and writes checksums.

    archive.py DIRECTORY ARCHIVE NAME TIME    a tar.gz of the directory, which is called NAME in it, with its own SHA256SUMS
    archive.py --sums SUMS FILE...            the checksums of the files, in the format of sha256sum
"""
import gzip
import hashlib
import os
import sys
import tarfile


def sums(files, directory):
    """A line for each file."""
    digest = lambda path: hashlib.sha256(open(path, "rb").read()).hexdigest()
    return "".join(f"{digest(path)}  {os.path.relpath(path, directory)}\n" for path in files)


def inside(directory):
    """The files, sorted."""
    return sorted(os.path.join(path, name) for path, _, names in os.walk(directory) for name in names if name != "SHA256SUMS")


def pack(directory, archive, name, time):
    """Owner, times and order are fixed, and modes have two values."""
    files = inside(directory)
    with open(os.path.join(directory, "SHA256SUMS"), "w") as out:
        out.write(sums(files, directory))
    with open(archive, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted([*files, os.path.join(directory, "SHA256SUMS")]):
                entry = tarfile.TarInfo(os.path.join(name, os.path.relpath(path, directory)))
                entry.size = os.path.getsize(path)
                entry.mtime, entry.mode = time, 0o755 if os.access(path, os.X_OK) else 0o644
                with open(path, "rb") as content:
                    tar.addfile(entry, content)


if sys.argv[1] == "--sums":
    with open(sys.argv[2], "w") as out:
        out.write(sums(sys.argv[3:], os.path.dirname(sys.argv[2])))
else:
    pack(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
