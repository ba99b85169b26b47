"""Renders the part of kustomize that k8s/ uses: resources, components, and JSON 6902 patches with a target. Whatever
else a kustomization says is refused, so that this never shows what kubectl would not. Where kubectl is there,
k8s_test holds the two together."""
import copy
import pathlib

import yaml

KNOWN = {"apiVersion", "kind", "resources", "components", "patches"}


class Wrong(Exception):
    """A kustomization that cannot be rendered."""


def documents(path):
    return [each for each in yaml.safe_load_all(pathlib.Path(path).read_text(encoding="utf-8")) if each is not None]


def same(a, b):
    keys = ("apiVersion", "kind")
    return all(a[key] == b[key] for key in keys) and a["metadata"]["name"] == b["metadata"]["name"]


def step(value, word):
    """What `word` of a JSON pointer leads to within the value."""
    try:
        return value[int(word)] if isinstance(value, list) else value[word]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise Wrong(f"a patch's path has no {word!r}") from error


def apply(document, operation):
    """One operation of RFC 6902: add, replace or remove."""
    words = [word.replace("~1", "/").replace("~0", "~") for word in operation["path"].split("/")[1:]]
    parent = document
    for word in words[:-1]:
        parent = step(parent, word)
    last, name = words[-1], operation["op"]
    if name not in ("add", "replace", "remove"):
        raise Wrong(f"operation {name!r} is not known here")
    if name != "add":
        step(parent, last)  # must be there
    if name == "remove":
        del parent[int(last) if isinstance(parent, list) else last]
    elif isinstance(parent, list) and name == "add":
        parent.insert(len(parent) if last == "-" else int(last), copy.deepcopy(operation["value"]))
    else:
        parent[int(last) if isinstance(parent, list) else last] = copy.deepcopy(operation["value"])


def patch(rendered, entry):
    target = entry["target"]
    hit = [each for each in rendered if each["kind"] == target["kind"] and each["metadata"]["name"] == target["name"]]
    if not hit:
        raise Wrong(f"a patch's target {target} is not there")
    for document in hit:
        for operation in yaml.safe_load(entry["patch"]):
            apply(document, operation)


def render(folder, rendered=None):
    """The documents of a kustomization, or `rendered` changed by a component."""
    folder = pathlib.Path(folder)
    content = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := set(content) - KNOWN:
        raise Wrong(f"{folder}: {', '.join(sorted(unknown))}: not known here")
    if (content["kind"] == "Component") != (rendered is not None):
        raise Wrong(f"{folder}: a {content['kind']} at the wrong place")
    rendered = [] if rendered is None else rendered
    for name in content.get("resources", ()):
        found = render(folder / name) if (folder / name).is_dir() else documents(folder / name)
        for document in found:
            if any(same(document, each) for each in rendered):
                raise Wrong(f"{folder}: {document['kind']} {document['metadata']['name']} is there twice")
            rendered.append(document)
    for name in content.get("components", ()):
        render(folder / name, rendered)
    for entry in content.get("patches", ()):
        patch(rendered, entry)
    return rendered
