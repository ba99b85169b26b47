#include "launch/manifest_checks.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/rank_environment.h"
#include "launch/report.h"

namespace gyre::launch {

namespace {

constexpr size_t kLongestClaim = 253;
constexpr size_t kLongestImage = 255;  // its name, without tag and digest
constexpr size_t kLongestTag = 128;
constexpr size_t kShortestDigest = 32;

// What the pods have of their own: mounts of the manifest and the operator, and folders of the image. A volume there,
// or above it, would hide them.
constexpr std::array<std::string_view, 15> kPodsOwn = {
    "/bin",  "/dev/shm", "/etc/mpi", "/home/mpiuser/.ssh", "/lib",     "/lib64",     "/proc",    "/run/sshd",
    "/sbin", "/sys",     "/tmp",     "/usr/bin",           "/usr/lib", "/usr/local", "/usr/sbin"};

bool IsLowerOrDigit(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c));
}

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool IsDnsLabel(std::string_view label) {
  return !label.empty() && IsLowerOrDigit(label.front()) && IsLowerOrDigit(label.back()) &&
         std::ranges::all_of(label, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// Lower-case letters and digits; between them one '.', one or two '_', or any number of '-'.
bool IsPathComponent(std::string_view text) {
  if (text.empty() || !IsLowerOrDigit(text.front()) || !IsLowerOrDigit(text.back())) return false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && !IsLowerOrDigit(text[i])) ++i;
    const std::string_view separator = text.substr(begin, i - begin);
    const bool dashes = separator.find_first_not_of('-') == separator.npos;
    if (!dashes && separator != "." && separator != "_" && separator != "__") return false;
    while (i < text.size() && IsLowerOrDigit(text[i])) ++i;
  }
  return true;
}

// "host", "host:5000", "[fd00::1]:5000".
bool IsRegistry(std::string_view text) {
  std::string_view host = text;
  const size_t colon = text.rfind(':');
  if (colon != text.npos && (!text.starts_with('[') || text[colon - 1] == ']')) {
    const std::string_view port = text.substr(colon + 1);
    if (port.empty() || port.find_first_not_of("0123456789") != port.npos) return false;
    host = text.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    return host.find_first_not_of("0123456789abcdefABCDEF:", 1) == host.size() - 1;
  }
  const auto known = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.'; };
  return !host.empty() && std::ranges::all_of(host, known) && host.front() != '-' && host.front() != '.' &&
         host.back() != '-' && host.back() != '.' && host.find("..") == host.npos;
}

bool IsTag(std::string_view tag) {
  const auto known = [](char c) { return IsWordCharacter(c) || c == '.' || c == '-'; };
  return !tag.empty() && tag.size() <= kLongestTag && IsWordCharacter(tag[0]) && std::ranges::all_of(tag, known);
}

bool IsDigest(std::string_view digest) {
  const size_t colon = digest.find(':');
  if (colon == 0 || colon == digest.npos) return false;
  const std::string_view hex = digest.substr(colon + 1);
  return absl::ascii_isalpha(static_cast<unsigned char>(digest[0])) && hex.size() >= kShortestDigest &&
         hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos;
}

// Whether one of the folders is the other, or lies within it.
bool Overlap(std::string_view a, std::string_view b) {
  const auto within = [](std::string_view inner, std::string_view outer) {
    return inner == outer || (inner.starts_with(outer) && inner.substr(outer.size()).starts_with('/'));
  };
  return within(a, b) || within(b, a);
}

// "/a/b": absolute, without "." and "..", "//" and a slash in the end; a colon would end it.
bool IsPlainPath(std::string_view path) {
  if (!path.starts_with('/') || path.size() < 2 || path.find(':') != path.npos) return false;
  const std::vector<absl::string_view> names = absl::StrSplit(ToAbsl(path.substr(1)), '/');
  return std::ranges::none_of(names,
                              [](absl::string_view name) { return name.empty() || name == "." || name == ".."; });
}

}  // namespace

absl::Status WrongManifest(std::string_view what, std::string_view next) {
  return absl::InvalidArgumentError(absl::StrCat("manifest: ", OneLine(what), "; try: ", OneLine(next)));
}

bool IsDnsName(std::string_view name, size_t longest) {
  const std::vector<absl::string_view> labels = absl::StrSplit(ToAbsl(name), '.');
  return name.size() <= longest && std::ranges::all_of(labels, [](absl::string_view label) {
           return IsDnsLabel({label.data(), label.size()});
         });
}

bool IsImageReference(std::string_view image) {
  std::string_view name = image;
  if (const size_t at = image.find('@'); at != image.npos) {
    if (!IsDigest(image.substr(at + 1))) return false;
    name = image.substr(0, at);
  }
  const size_t colon = name.rfind(':');
  if (colon != name.npos && name.find('/', colon) == name.npos) {  // otherwise it is a port's
    if (!IsTag(name.substr(colon + 1))) return false;
    name = name.substr(0, colon);
  }
  if (name.size() > kLongestImage) return false;
  // The first part is a registry if it cannot be anything else.
  const size_t slash = name.find('/');
  const std::string_view first = name.substr(0, slash);
  const bool registry =
      slash != name.npos && (first == "localhost" || first.find_first_of(".:") != first.npos ||
                             std::ranges::any_of(first, [](unsigned char c) { return absl::ascii_isupper(c); }));
  if (registry && !IsRegistry(first)) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(ToAbsl(registry ? name.substr(slash + 1) : name), '/');
  return std::ranges::all_of(parts, [](absl::string_view part) { return IsPathComponent({part.data(), part.size()}); });
}

absl::StatusOr<std::vector<PodVolume>> ParsePodVolumes(const std::vector<std::string>& texts) {
  constexpr std::string_view kTry = "--volume my-claim:/checkpoints";
  std::vector<PodVolume> volumes;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    const PodVolume volume{text.substr(0, colon), colon == text.npos ? "" : text.substr(colon + 1)};
    if (!IsDnsName(volume.claim, kLongestClaim)) {
      return WrongManifest(absl::StrCat("--volume ", text, ": ", volume.claim, " is no name of a claim"), kTry);
    }
    if (!IsPlainPath(volume.path)) {
      return WrongManifest(absl::StrCat("--volume ", text, " has no absolute path after the colon"), kTry);
    }
    const auto clash = [&](std::string_view other) { return Overlap(volume.path, other); };
    if (const auto* const own = std::ranges::find_if(kPodsOwn, clash); own != kPodsOwn.end()) {
      return WrongManifest(absl::StrCat("--volume ", text, ": the pods have ", ToAbsl(*own), " of their own"), kTry);
    }
    if (std::ranges::any_of(volumes, [&](const PodVolume& other) { return clash(other.path); })) {
      return WrongManifest(absl::StrCat("--volume ", text, ": another volume is there"), "a path for each volume");
    }
    volumes.push_back(volume);
  }
  return volumes;
}

absl::StatusOr<std::vector<PodVariable>> ParsePodVariables(const std::vector<std::string>& texts) {
  std::vector<PodVariable> variables;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const bool known = !name.empty() && std::ranges::all_of(name, IsWordCharacter) &&
                       !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
    if (equals == text.npos || !known) {
      return WrongManifest(absl::StrCat("--env ", text, " is no NAME=VALUE"), "--env OMP_NUM_THREADS=1");
    }
    if (!CheckExport(text).ok()) {
      return WrongManifest(absl::StrCat("--env ", text, ": gyrerun sets this variable itself"), "without it");
    }
    if (std::ranges::count(variables, name, &PodVariable::name) > 0) {
      return WrongManifest(absl::StrCat("--env ", name, " is given twice"), "one of them");
    }
    variables.push_back({name, text.substr(equals + 1)});
  }
  return variables;
}

std::string WithoutExpansion(std::string_view word) {
  return absl::StrReplaceAll(ToAbsl(word), {{"$", "$$"}});
}

}  // namespace gyre::launch
