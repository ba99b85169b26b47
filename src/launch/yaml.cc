#include "launch/yaml.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

constexpr char kQuoted[] = "!";  // the tag that yaml-cpp gives to scalars in quotes

std::vector<std::string> Words(std::string_view pointer) {
  std::vector<std::string> words = absl::StrSplit(ToAbsl(pointer), '/');
  words.erase(words.begin());
  for (std::string& word : words) word = absl::StrReplaceAll(word, {{"~1", "/"}, {"~0", "~"}});
  return words;
}

YAML::Node ChildNode(const YAML::Node& parent, const std::string& word) {
  size_t index = 0;
  const bool entry = parent.IsSequence() && absl::SimpleAtoi(word, &index);
  const YAML::Node child = entry ? parent[index] : parent[word];
  if (!child) throw YAML::Exception(YAML::Mark::null_mark(), "there is no " + word);
  return child;
}

void Write(YAML::Emitter& out, const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      out << YAML::BeginMap;
      for (const auto& member : node) {
        out << YAML::Key << member.first.Scalar() << YAML::Value;
        Write(out, member.second);
      }
      out << YAML::EndMap;
      return;
    case YAML::NodeType::Sequence:
      out << YAML::BeginSeq;
      for (const YAML::Node& entry : node) Write(out, entry);
      out << YAML::EndSeq;
      return;
    case YAML::NodeType::Scalar:
      if (node.Tag() == kQuoted) out << YAML::DoubleQuoted;
      out << node.Scalar();
      return;
    default: out << YAML::Null;
  }
}

}  // namespace

YAML::Node TextNode(const std::string& text) {
  YAML::Node node(text);
  node.SetTag(kQuoted);
  return node;
}

YAML::Node NodeAt(const YAML::Node& document, std::string_view pointer) {
  YAML::Node node = document;
  for (const std::string& word : Words(pointer)) node.reset(ChildNode(node, word));
  return node;
}

void ApplyPatches(const std::string& kustomization, YAML::Node& document) {
  for (const YAML::Node& patch : YAML::Load(kustomization)["patches"]) {
    for (const YAML::Node& operation : YAML::Load(patch["patch"].Scalar())) {
      const std::string& pointer = operation["path"].Scalar();
      const size_t last = pointer.rfind('/');
      YAML::Node parent = NodeAt(document, std::string_view(pointer).substr(0, last));
      const std::string name = Words(std::string_view(pointer).substr(last))[0];
      if (operation["op"].Scalar() == "replace") ChildNode(parent, name);  // must be there
      parent[name] = operation["value"];
    }
  }
}

std::string ToYaml(const YAML::Node& document) {
  YAML::Emitter out;
  Write(out, document);
  return std::string(out.c_str()) + "\n";
}

}  // namespace gyre::launch
