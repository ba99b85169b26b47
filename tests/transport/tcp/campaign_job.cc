#include "transport/tcp/campaign_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/tcp/hub_fixture.h"

namespace gyre::tcp {

namespace {

constexpr int kMinute = 60'000;
constexpr uint64_t kTransfersPerChannel = 20;
constexpr size_t kMaxTransfer = 100'000;

}  // namespace

absl::StatusOr<std::unique_ptr<CampaignJob>> CampaignJob::Start(const CampaignJobOptions& options) {
  std::unique_ptr<CampaignJob> job(new CampaignJob(options));
  for (int number = 0; number < kHubs; ++number) RETURN_IF_ERROR(job->Listen(number));
  RETURN_IF_ERROR(job->Connect());
  for (int self = 0; self < kHubs; ++self) {
    for (int other = 0; other < kHubs; ++other) {
      if (self != other) job->threads_.emplace_back([job = job.get(), self, other] { job->RunPair(self, other); });
    }
  }
  return job;
}

CampaignJob::~CampaignJob() {
  Stop();
}

absl::Status CampaignJob::Listen(int number) {
  HubEvents events;
  events.on_lost = [this](int lost, const std::string& text) {
    if (IsHonest(lost)) return Fail(absl::InternalError(text));
    ++lost_liars_;
  };
  events.on_gave_up = events.on_lost;
  events.on_left = [this](int left) {
    if (IsHonest(left) && !closing_) Fail(absl::InternalError(absl::StrCat("rank ", left, " has left")));
  };
  events.on_announcement = [this](int, const Announcement&) { ++announcements_; };
  HubOptions hub_options = PatientOptions();
  hub_options.connect_timeout = std::chrono::seconds(30);
  const HandshakeIdentity self{options_.job_id, options_.epoch, rank(number), Role::kRank};
  ASSIGN_OR_RETURN(hubs_[static_cast<size_t>(number)],
                   Hub::Listen(self, options_.secret, Loopback(0), hub_options, std::move(events),
                               MakeLogger(LogLevel::kOff, "campaign"), In(kMinute)));
  return absl::OkStatus();
}

absl::Status CampaignJob::Connect() {
  for (int self = 0; self < kHubs; ++self) {
    Peers peers;
    for (int liar = 0; liar < options_.liars; ++liar) peers[liar] = AddressOf(liar, Loopback(1));
    for (int other = 0; other < kHubs; ++other) {
      if (other != self) peers[rank(other)] = AddressOf(rank(other), hub(other).endpoint());
    }
    int decoy = first_decoy();
    for (const Endpoint& endpoint : options_.decoys) {
      peers[decoy] = AddressOf(decoy, endpoint);
      ++decoy;
    }
    RETURN_IF_ERROR(hub(self).Start(peers));
  }
  for (int self = 0; self < kHubs; ++self) {
    for (int other = 0; other < kHubs; ++other) {
      if (other == self) continue;
      const int peers[] = {rank(other)};
      RETURN_IF_ERROR(hub(self).Connect(peers, In(kMinute)));
      if (other > self) ++peers_came_[static_cast<size_t>(other)];
    }
  }
  return absl::OkStatus();
}

// One side of a pair: channel after channel. The lower rank says when it is over.
void CampaignJob::RunPair(int self, int other) {
  const auto pair = static_cast<uint64_t>(std::min(self, other) * kHubs + std::max(self, other));
  bool last = false;
  for (uint64_t n = 0; !last && !failed_; ++n) {
    const std::unique_ptr<Streams> streams = hub(self).Open((pair << 32) + n, {rank(other)});
    for (uint64_t i = 0; !last && i < kTransfersPerChannel; ++i) {
      const uint64_t seed = options_.seed + (pair << 48) + n * kTransfersPerChannel + i;
      if (const absl::Status status = Exchange(*streams, self, other, seed, last); !status.ok()) return Fail(status);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (self < other) continue;
    ++peers_came_[static_cast<size_t>(self)];
    ++channels_;
  }
}

absl::Status CampaignJob::Exchange(Streams& streams, int self, int other, uint64_t seed, bool& last) {
  const int peer = rank(other);
  if (self < other) {
    last = stop_;
    RETURN_IF_ERROR(Send(streams, peer, last ? "1" : "0", In(kMinute)));
  } else {
    std::string word(1, '\0');
    RETURN_IF_ERROR(Transfer(streams, peer, {}, word, seed, In(kMinute)));
    if (word != "0" && word != "1") return absl::InternalError("another byte came than was sent");
    last = word == "1";
  }
  if (last) return absl::OkStatus();
  const auto side = [seed](int who) { return 3 * seed + static_cast<uint64_t>(who); };
  std::string in(side(other) % kMaxTransfer, '\0');
  RETURN_IF_ERROR(Transfer(streams, peer, Pattern(side(self), side(self) % kMaxTransfer), in, seed, In(kMinute)));
  if (in != Pattern(side(other), in.size())) return absl::InternalError("other bytes came than were sent");
  ++transfers_;
  return absl::OkStatus();
}

void CampaignJob::Fail(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = Annotate(status, "the job");
  failed_ = true;
}

absl::Status CampaignJob::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CampaignJob::Pause() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void CampaignJob::Stop() {
  Pause();
  closing_ = true;
  for (auto& hub : hubs_) {
    if (hub != nullptr) hub->Close();
  }
}

}  // namespace gyre::tcp
