// What yaml-cpp leaves open: text that stays text, and JSON patches (RFC 6902) as kustomize applies them. Throws
// YAML::Exception where a document is not what its caller takes it for; whoever calls from an interface catches that.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

namespace gyre::launch {

// A scalar that is written in quotes: "600" does not become a number.
YAML::Node TextNode(const std::string& text);

// The node that a JSON pointer ("/spec/containers/0/image", with ~1 for /) leads to. Throws where there is none.
YAML::Node NodeAt(const YAML::Node& document, std::string_view pointer);

// Carries out the patches of a kustomization whose every target is `document`: operations add (of a member) and
// replace.
void ApplyPatches(const std::string& kustomization, YAML::Node& document);

// The document as YAML. What was in quotes, or came from TextNode, is in quotes.
std::string ToYaml(const YAML::Node& document);

}  // namespace gyre::launch
