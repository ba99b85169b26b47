#include "launch/manifest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "launch/manifest_checks.h"
#include "launch/manifests.h"
#include "launch/sizes.h"
#include "launch/yaml.h"

namespace gyre::launch {

namespace {

constexpr int kMostWorkers = 10'000;
constexpr int kMostGpus = 64;           // of a worker
constexpr size_t kLongestLabel = 63;    // RFC 1035, and so the longest name of a pod with a host name
constexpr size_t kLongestObject = 253;  // the name of other objects
// The memory of the launcher: for each worker, an ssh (1.7 MiB of its own, measured after 50 MB of output), 1 MiB of
// output that waits, and buffers of the kernel's; tests/k8s/rules.py has the same.
constexpr int kLauncherMiB = 512;
constexpr int kWorkerMiB = 8;
constexpr int kMiBPerGiB = 1024;
constexpr char kJobLabel[] = "training.kubeflow.org/job-name";
constexpr char kWorker[] = "/spec/mpiReplicaSpecs/Worker/template";
constexpr char kLauncher[] = "/spec/mpiReplicaSpecs/Launcher/template";

absl::Status CheckJobName(const ManifestOptions& options) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  constexpr std::string_view kAlso = "0123456789-";
  const auto known = [&](char c) { return kLetters.find(c) != kLetters.npos || kAlso.find(c) != kAlso.npos; };
  const std::string& name = options.name;
  if (name.empty()) return WrongManifest("--name is missing", "--name my-job");
  if (kLetters.find(name[0]) == kLetters.npos || name.back() == '-' || !std::ranges::all_of(name, known)) {
    return WrongManifest(
        absl::StrCat("--name ", name, " is no DNS label (lower-case letters, digits and -, a letter first)"),
        "--name my-job");
  }
  const std::string last = absl::StrCat(name, "-worker-", options.workers - 1);
  if (last.size() <= kLongestLabel) return absl::OkStatus();
  return WrongManifest(
      absl::StrCat("the last worker's name, ", last, ", has ", last.size(), " characters; a pod's host name may have ",
                   kLongestLabel, ", and with more the operator starts nothing"),
      "a shorter --name");
}

absl::StatusOr<Size> ChooseSize(const ManifestOptions& options) {
  const std::vector<Size> sizes = Sizes();
  const std::string wanted = !options.size.empty() ? options.size : options.gpus > 0 ? "h100" : "s";
  const auto found = std::ranges::find(sizes, wanted, &Size::name);
  if (found == sizes.end()) {
    const std::string names =
        absl::StrJoin(sizes, ", ", [](std::string* out, const Size& size) { out->append(size.name); });
    return WrongManifest(absl::StrCat("--size ", wanted, " is none of ", names), "--size m");
  }
  if (found->per_gpu && options.gpus == 0) {
    return WrongManifest(absl::StrCat("--size ", wanted, " is for workers with GPUs"), "--gpus 1, or --size m");
  }
  if (!found->per_gpu && options.gpus > 0) {
    return WrongManifest(absl::StrCat("--size ", wanted, " has no GPUs, and --gpus ", options.gpus, " asks for some"),
                         "--size h100");
  }
  Size size = *found;
  const int times = std::max(1, options.gpus);
  size.cpu *= times;
  size.memory *= times;
  size.shm *= times;
  return size;
}

absl::StatusOr<int> ChooseSlots(const ManifestOptions& options, const Size& size) {
  const int slots = options.slots.value_or(options.gpus > 0 ? options.gpus : size.cpu);
  if (slots < 1) return WrongManifest(absl::StrCat("--slots ", slots, " leaves no rank"), "--slots 1");
  if (options.gpus > 0 && slots != options.gpus) {
    return WrongManifest(
        absl::StrCat("--slots ", slots, " ranks of a worker are not its ", options.gpus, " GPUs, one each"),
        absl::StrCat("--slots ", options.gpus));
  }
  if (slots > size.cpu) {
    return WrongManifest(
        absl::StrCat("--slots ", slots, " ranks of a worker are more than its ", size.cpu, " processors"),
        absl::StrCat("--slots ", size.cpu, ", or a larger --size"));
  }
  return slots;
}

// Whatever names the job: what selects its pods must follow its name.
void Rename(YAML::Node node, const std::string& name) {
  if (node.IsSequence()) {
    for (YAML::Node entry : node) Rename(entry, name);
  }
  if (!node.IsMap()) return;
  if (node[kJobLabel]) node[kJobLabel] = TextNode(name);
  for (auto member : node) Rename(member.second, name);
}

void SetWorker(YAML::Node& job, const ManifestOptions& options, const Size& size, int slots) {
  job["spec"]["slotsPerWorker"] = slots;
  NodeAt(job, "/spec/mpiReplicaSpecs/Worker")["replicas"] = options.workers;
  YAML::Node spec = NodeAt(job, absl::StrCat(kWorker, "/spec"));
  for (const char* kind : {"requests", "limits"}) {
    YAML::Node amounts;
    amounts["cpu"] = TextNode(absl::StrCat(size.cpu));
    amounts["memory"] = absl::StrCat(size.memory, "Gi");
    if (options.gpus > 0) amounts["nvidia.com/gpu"] = TextNode(absl::StrCat(options.gpus));
    spec["containers"][0]["resources"][kind] = amounts;
  }
  spec["volumes"][0]["emptyDir"]["sizeLimit"] = absl::StrCat(size.shm, "Gi");
}

void SetLauncher(YAML::Node& job, const ManifestOptions& options) {
  YAML::Node container = NodeAt(job, absl::StrCat(kLauncher, "/spec/containers/0"));
  const int mib = kLauncherMiB + kWorkerMiB * options.workers;
  for (const char* kind : {"requests", "limits"}) {
    container["resources"][kind]["memory"] = absl::StrCat((mib + kMiBPerGiB - 1) / kMiBPerGiB, "Gi");
  }
  YAML::Node words(YAML::NodeType::Sequence);
  if (options.command[0].starts_with('-')) words.push_back(TextNode("--"));  // it would be an option of gyrerun's
  for (const std::string& word : options.command) words.push_back(TextNode(WithoutExpansion(word)));
  container["args"] = words;
}

// What ssh starts has the login's environment, so gyrerun passes on what its container has.
absl::Status SetEnvironment(YAML::Node& job, const ManifestOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<PodVariable> variables, ParsePodVariables(options.environment));
  YAML::Node container = NodeAt(job, absl::StrCat(kLauncher, "/spec/containers/0"));
  for (const PodVariable& variable : variables) {
    YAML::Node entry;
    entry["name"] = TextNode(variable.name);
    entry["value"] = TextNode(WithoutExpansion(variable.value));
    container["env"].push_back(entry);
    container["command"].push_back(TextNode("-x"));
    container["command"].push_back(TextNode(variable.name));
  }
  return absl::OkStatus();
}

// What all pods have alike.
absl::Status SetPods(YAML::Node& job, const ManifestOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<PodVolume> volumes, ParsePodVolumes(options.volumes));
  for (const char* role : {kLauncher, kWorker}) {
    YAML::Node spec = NodeAt(job, absl::StrCat(role, "/spec"));
    YAML::Node container = spec["containers"][0];
    container["image"] = TextNode(options.image);
    if (!options.service_account.empty()) spec["serviceAccountName"] = TextNode(options.service_account);
    if (!options.priority.empty()) spec["priorityClassName"] = TextNode(options.priority);
    std::vector<std::string> claims;
    for (const PodVolume& volume : volumes) {
      const auto known = std::ranges::find(claims, volume.claim);
      const std::string name = absl::StrCat("claim-", known - claims.begin());
      if (known == claims.end()) {
        claims.push_back(volume.claim);
        YAML::Node entry;
        entry["name"] = name;
        entry["persistentVolumeClaim"]["claimName"] = TextNode(volume.claim);
        spec["volumes"].push_back(entry);
      }
      YAML::Node mount;
      mount["name"] = name;
      mount["mountPath"] = TextNode(volume.path);
      container["volumeMounts"].push_back(mount);
    }
  }
  return absl::OkStatus();
}

void SetLimits(YAML::Node& job, const ManifestOptions& options) {
  YAML::Node policy = NodeAt(job, "/spec/runPolicy");
  if (options.deadline) policy["activeDeadlineSeconds"] = *options.deadline;
  if (options.ttl) policy["ttlSecondsAfterFinished"] = *options.ttl;
}

// The gang's own document, if it has one.
YAML::Node SetGang(YAML::Node& job, const ManifestOptions& options) {
  const std::string group = absl::StrCat(options.name, "-gang");
  YAML::Node document;
  switch (options.gang) {
    case Gang::kNone: return document;
    case Gang::kKueue:
      ApplyPatches(kKueue, job);
      if (!options.queue.empty()) {
        NodeAt(job, "/metadata/labels")["kueue.x-k8s.io/queue-name"] = TextNode(options.queue);
      }
      return document;
    case Gang::kVolcano:
      ApplyPatches(kGangVolcano, job);
      document = YAML::Load(kGangVolcanoGroup);
      if (!options.queue.empty()) document["spec"]["queue"] = TextNode(options.queue);
      if (!options.priority.empty()) document["spec"]["priorityClassName"] = TextNode(options.priority);
      for (const char* role : {kLauncher, kWorker}) {
        NodeAt(job, absl::StrCat(role, "/metadata/annotations"))["scheduling.k8s.io/group-name"] = group;
      }
      break;
    case Gang::kCoscheduling:
      ApplyPatches(kGangCoscheduling, job);
      document = YAML::Load(kGangCoschedulingGroup);
      for (const char* role : {kLauncher, kWorker}) {
        NodeAt(job, absl::StrCat(role, "/metadata/labels"))["scheduling.x-k8s.io/pod-group"] = group;
      }
      break;
  }
  document["metadata"]["name"] = group;
  document["spec"]["minMember"] = options.workers + 1;  // the launcher is one of them
  return document;
}

absl::StatusOr<std::string> RenderDocuments(const ManifestOptions& options, const Size& size, int slots) {
  YAML::Node job = YAML::Load(kMpiJob);
  YAML::Node policy = YAML::Load(kNetworkPolicy);
  SetWorker(job, options, size, slots);
  SetLauncher(job, options);
  RETURN_IF_ERROR(SetEnvironment(job, options));
  RETURN_IF_ERROR(SetPods(job, options));
  SetLimits(job, options);
  if (options.placement == PodPlacement::kPack) ApplyPatches(kPack, job);
  if (options.placement == PodPlacement::kSpread) ApplyPatches(kSpread, job);
  const YAML::Node gang = SetGang(job, options);
  for (YAML::Node* document : {&job, &policy}) {
    (*document)["metadata"]["name"] = TextNode(options.name);
    Rename(*document, options.name);
  }
  std::string text = absl::StrCat(ToYaml(policy), "---\n");
  if (!gang.IsNull()) absl::StrAppend(&text, ToYaml(gang), "---\n");
  return absl::StrCat(text, ToYaml(job));
}

absl::Status CheckNames(const ManifestOptions& options) {
  if (options.image.empty()) return WrongManifest("--image is missing", "--image gyre:cpu");
  if (!IsImageReference(options.image)) {
    return WrongManifest(absl::StrCat("--image ", options.image, " is no image: [HOST[:PORT]/]NAME[:TAG][@DIGEST]"),
                         "--image registry.example.org/gyre:cpu");
  }
  // A queue's name is a label's value too.
  if (!options.queue.empty() && !IsDnsName(options.queue, kLongestLabel)) {
    return WrongManifest(absl::StrCat("--queue ", options.queue, " is no name of a queue"), "--queue my-team");
  }
  if (!options.service_account.empty() && !IsDnsName(options.service_account, kLongestObject)) {
    return WrongManifest(absl::StrCat("--service-account ", options.service_account, " is no name of one"),
                         "--service-account trainer");
  }
  if (!options.priority.empty() && !IsDnsName(options.priority, kLongestObject)) {
    return WrongManifest(absl::StrCat("--priority ", options.priority, " is no name of a PriorityClass"),
                         "--priority batch-low");
  }
  return CheckJobName(options);
}

}  // namespace

absl::StatusOr<std::string> RenderManifest(const ManifestOptions& options) {
  if (options.workers < 1 || options.workers > kMostWorkers) {
    return WrongManifest(absl::StrCat("--workers must be 1 to ", kMostWorkers), "--workers 2");
  }
  if (options.gpus < 0 || options.gpus > kMostGpus) {
    return WrongManifest(absl::StrCat("--gpus must be 0 to ", kMostGpus), "--gpus 1");
  }
  if (options.command.empty()) return WrongManifest("the program is missing", "--command PROGRAM ARGS...");
  if (!options.queue.empty() && options.gang != Gang::kVolcano && options.gang != Gang::kKueue) {
    return WrongManifest("--queue is Volcano's or Kueue's", "--gang volcano");
  }
  RETURN_IF_ERROR(CheckNames(options));
  try {
    ASSIGN_OR_RETURN(const Size size, ChooseSize(options));
    ASSIGN_OR_RETURN(const int slots, ChooseSlots(options, size));
    return RenderDocuments(options, size, slots);
  } catch (const YAML::Exception& error) {
    return absl::InternalError(absl::StrCat("manifest: ", error.what(), "; try: the files in k8s/"));
  }
}

}  // namespace gyre::launch
