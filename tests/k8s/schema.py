"""Holds manifests to structural schemas: those of custom resources, and Kubernetes' own. An unknown field is an error,
as is what the API server would only prune."""
import json
import pathlib
import re

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


class Schemas:
    """All schemas of a folder, by (apiVersion, kind)."""

    def __init__(self, folder):
        self.definitions, self.roots = {}, {}
        for path in sorted(pathlib.Path(folder).glob("*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.get("kind") == "CustomResourceDefinition":
                spec = content["spec"]
                for version in spec["versions"]:
                    key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                    self.roots[key] = version["schema"]["openAPIV3Schema"]
                continue
            self.definitions.update(content["definitions"])
            for definition in content["definitions"].values():
                for each in definition.get("x-kubernetes-group-version-kind", ()):
                    group = f"{each['group']}/" if each["group"] else ""
                    self.roots[group + each["version"], each["kind"]] = definition

    def check(self, document):
        """What is wrong with the document: a list of texts."""
        key = (document.get("apiVersion"), document.get("kind"))
        if key not in self.roots:
            return [f"no schema of {key[1]} in {key[0]}"]
        return list(self.errors(document, self.roots[key], ""))

    def errors(self, value, schema, path):
        if "$ref" in schema:
            schema = self.definitions[schema["$ref"].rsplit("/", 1)[1]]
        if path == ".metadata" and "properties" not in schema:
            schema = self.definitions[META]
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                yield f"{path}: {value!r} is neither number nor text"
            return
        kind = schema.get("type")
        if kind is None:
            return
        if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            yield f"{path}: {value!r} is no {kind}"
        elif kind == "object":
            yield from self.object_errors(value, schema, path)
        elif kind == "array":
            for i, each in enumerate(value):
                yield from self.errors(each, schema.get("items", {}), f"{path}[{i}]")
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                yield f"{path}: {len(value)} entries"
        else:
            yield from self.value_errors(value, schema, path)

    def object_errors(self, value, schema, path):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}: missing"
        for name, each in value.items():
            if name in properties:
                yield from self.errors(each, properties[name], f"{path}.{name}")
            elif isinstance(others, dict):
                yield from self.errors(each, others, f"{path}.{name}")
            elif not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}: no such field"

    @staticmethod
    def value_errors(value, schema, path):
        if "enum" in schema and value not in schema["enum"]:
            yield f"{path}: {value!r} is none of {schema['enum']}"
        if isinstance(value, str):
            if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
                yield f"{path}: {value!r} has the wrong length"
            if "pattern" in schema and not re.search(schema["pattern"], value):
                yield f"{path}: {value!r} does not match {schema['pattern']}"
        elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{path}: {value} is out of range"
