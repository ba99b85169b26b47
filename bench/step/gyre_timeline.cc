#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "step/contender.h"

namespace gyre::bench {

namespace {

constexpr char kVariable[] = "GYRE_TIMELINE";
constexpr std::string_view kFolder = "/tmp/gyre-bench-timeline-XXXXXX";

// GYRE_TIMELINE, as long as it lives. Runtime::Create alone reads it, and makes no other thread read the environment.
class TimelineVariable {
 public:
  explicit TimelineVariable(const std::string& path) { setenv(kVariable, path.c_str(), 1); }
  ~TimelineVariable() { unsetenv(kVariable); }
  TimelineVariable(const TimelineVariable&) = delete;
  TimelineVariable& operator=(const TimelineVariable&) = delete;
};

// A port that nobody has on the loopback interface, or 0.
uint16_t FreePort() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = bind(listener, generic, length) == 0 && getsockname(listener, generic, &length) == 0;
  close(listener);
  return bound ? ntohs(address.sin_port) : 0;
}

// How the ranks meet once more; from rank 0.
struct TimelineMeeting {
  uint16_t port;
  std::array<char, 24> secret;  // text
  std::array<char, 40> folder;  // of the timelines
};

absl::StatusOr<TimelineMeeting> MakeMeeting(Communicator& world) {
  TimelineMeeting meeting{};
  if (world.rank() == 0) {
    meeting.port = FreePort();
    std::random_device random;
    for (size_t i = 0; i + 1 < meeting.secret.size(); ++i) meeting.secret[i] = static_cast<char>('a' + random() % 26);
    std::ranges::copy(kFolder, meeting.folder.begin());
    if (mkdtemp(meeting.folder.data()) == nullptr) meeting.folder[0] = '\0';
  }
  RETURN_IF_ERROR(world.Broadcast({&meeting, sizeof(meeting), DType::kU8}, 0));
  if (meeting.folder[0] == '\0') return absl::InternalError("rank 0 cannot make a folder for timelines");
  return meeting;
}

// A reducer in a runtime of its own, which writes a timeline.
class GyreTimeline final : public StepContender {
 public:
  GyreTimeline(std::unique_ptr<Runtime> runtime, std::unique_ptr<StepContender> reducer, std::string folder)
      : runtime_(std::move(runtime)), reducer_(std::move(reducer)), folder_(std::move(folder)) {}

  ~GyreTimeline() override {
    const std::string path = absl::StrCat(folder_, "/trace.", runtime_->world().rank());
    reducer_.reset();
    runtime_.reset();  // writes the end
    unlink(path.c_str());
    rmdir(folder_.c_str());  // the last rank's
  }

  std::string lib() const override { return "gyre-timeline"; }
  std::string buffers() const override { return reducer_->buffers(); }
  int64_t copied_bytes() const override { return reducer_->copied_bytes(); }
  std::span<float> gradient(int i) override { return reducer_->gradient(i); }
  absl::Status Ready(int i) override { return reducer_->Ready(i); }
  absl::Status Wait() override { return reducer_->Wait(); }
  bool waits_for_each() const override { return reducer_->waits_for_each(); }
  absl::Status WaitFor(int i) override { return reducer_->WaitFor(i); }
  bool settled() const override { return reducer_->settled(); }

 private:
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<StepContender> reducer_;
  const std::string folder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepContender>> MakeGyreTimeline(Communicator& world, const Model& model,
                                                                PlainGradients* plain) {
  if (world.node_count() != 1) return absl::InvalidArgumentError("gyre-timeline is for one host");
  ASSIGN_OR_RETURN(const TimelineMeeting meeting, MakeMeeting(world));
  const std::string folder = meeting.folder.data();
  const TimelineVariable timeline(folder + "/trace");
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create({.rank = world.rank(),
                                                  .size = world.size(),
                                                  .store = absl::StrCat("127.0.0.1:", meeting.port),
                                                  .job_id = folder,
                                                  .secret = meeting.secret.data()}));
  ASSIGN_OR_RETURN(auto reducer, MakeGyreReducer(*runtime, model, plain, {.bytes = kBySizeBytes}));
  return std::make_unique<GyreTimeline>(std::move(runtime), std::move(reducer), folder);
}

}  // namespace gyre::bench
