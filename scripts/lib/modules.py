"""The modules of a crate that import each other."""
import re

USE = re.compile(r"^ *(pub(?:\([^)]*\))? )?use ([^;]+);", re.M)


def expand(tree):
    """The paths of a `use`."""
    head, brace, body = tree.strip().partition("{")
    if not brace:
        return [re.sub(r" as \w+$", "", head.strip())]
    depth, parts = 0, [""]
    for char in body[: body.rindex("}")]:
        depth += (char == "{") - (char == "}")
        parts = [*parts, ""] if char == "," and not depth else [*parts[:-1], parts[-1] + char]
    return [head.strip() + path for part in parts if part.strip() for path in expand(part)]


def circles(sources):
    """The groups of modules, each of which imports from the others; those inside of a module may use it. `sources` are files
    below `src`, by path."""
    uses = {module(path): [(bool(public), path) for public, tree in USE.findall(text) for path in expand(tree)]
            for path, text in sources.items()}

    def home(here, path, depth=0):
        """The module in which the first item of the path is defined; re-exports are followed."""
        at, names = here, path.split("::")
        if names[0] not in ("crate", "self", "super") and (*here, names[0]) not in uses:
            return None
        while names and (names[0] in ("crate", "self", "super") or (*at, names[0]) in uses):
            name = names.pop(0)
            at = () if name == "crate" else at if name == "self" else at[:-1] if name == "super" else (*at, name)
        exports = [export for _, export in uses[at] if names and depth < 8 and export.split("::")[-1] == names[0]]
        return next(filter(None, (home(at, export, depth + 1) for export in exports)), at)

    apart = lambda here, there: there is not None and here != there[: len(here)] and there != here[: len(there)]
    imports = {here: {home(here, path) for public, path in paths if not public} for here, paths in uses.items()}
    imports = {here: {there for there in found if apart(here, there)} for here, found in imports.items()}
    reach = {here: set(there) for here, there in imports.items()}
    for middle in reach:
        for there in reach.values():
            there |= reach[middle] if middle in there else set()
    groups = {frozenset(other for other in reach[here] if here in reach[other]) for here in reach if here in reach[here]}
    return sorted(sorted("::".join(here) or "lib" for here in group) for group in groups)


def module(path):
    """The path of the module in a file."""
    names = path.removesuffix(".rs").split("/")
    return tuple(names[:-1] if names[-1] in ("lib", "main", "mod") else names)
