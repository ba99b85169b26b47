#include "net/connector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/handshake_pump.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(2);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);

// Nobody there (yet), too slow, or no descriptor free at the moment: may pass.
bool MayPass(const absl::Status& why) {
  return absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsResourceExhausted(why);
}

}  // namespace

struct Connector::Attempt {
  Attempt(UniqueFd connecting, const HandshakeIdentity& self, const std::string& secret)
      : fd(std::move(connecting)), handshake(self, secret, hello), pump(handshake, std::move(hello)) {}

  UniqueFd fd;
  std::string hello;
  HandshakeClient handshake;
  HandshakePump pump;
  bool connected = false;
  uint32_t events = EPOLLOUT;
};

Connector::Connector(EventLoop& loop, ConnectorOptions options, HandshakeIdentity self, std::string secret,
                     OnDone on_done, OnRetry on_retry)
    : loop_(loop),
      options_(std::move(options)),
      self_(std::move(self)),
      secret_(std::move(secret)),
      on_done_(std::move(on_done)),
      on_retry_(std::move(on_retry)),
      pause_(kFirstPause) {
  // By way of the loop: a constructor that already calls back would surprise.
  SetTimer(std::chrono::steady_clock::now(), &Connector::Begin);
}

Connector::~Connector() {
  loop_.CancelTimer(timer_);
  if (attempt_ != nullptr) loop_.Remove(attempt_->fd.get());
}

void Connector::SetTimer(TimePoint when, void (Connector::*then)()) {
  loop_.CancelTimer(timer_);
  timer_ = loop_.AddTimer(when, [this, then] { (this->*then)(); });
}

void Connector::Begin() {
  if (const absl::Status begun = TryBegin(); !begun.ok()) Fail(begun);
}

absl::Status Connector::TryBegin() {
  ASSIGN_OR_RETURN(UniqueFd fd, BeginConnectTcp(options_.endpoint));
  auto attempt = std::make_unique<Attempt>(std::move(fd), self_, secret_);
  RETURN_IF_ERROR(loop_.Add(attempt->fd.get(), attempt->events, [this](uint32_t) { SocketReady(); }));
  attempt_ = std::move(attempt);
  const TimePoint until = DeadlineAfter(std::chrono::steady_clock::now(), options_.attempt_timeout);
  SetTimer(std::min(until, options_.deadline), &Connector::TimedOut);
  return absl::OkStatus();
}

void Connector::TimedOut() {
  Fail(absl::DeadlineExceededError(attempt_->connected ? "handshake: timed out" : "connect: timed out"));
}

void Connector::SocketReady() {
  if (!attempt_->connected) {
    if (const absl::Status outcome = FinishConnectTcp(attempt_->fd.get()); !outcome.ok()) return Fail(outcome);
    attempt_->connected = true;
  }
  Advance();
}

void Connector::Advance() {
  const auto need = attempt_->pump.Advance(attempt_->fd.get());
  if (!need.ok()) return Fail(need.status());
  if (*need == HandshakePump::Need::kNothing) return Succeed();
  const uint32_t events = *need == HandshakePump::Need::kWrite ? EPOLLOUT : EPOLLIN;
  if (events == std::exchange(attempt_->events, events)) return;
  if (const absl::Status modified = loop_.Modify(attempt_->fd.get(), events); !modified.ok()) Fail(modified);
}

void Connector::Succeed() {
  loop_.Remove(attempt_->fd.get());
  Connected connected{std::move(attempt_->fd), attempt_->handshake.peer()};
  attempt_.reset();
  Finish(std::move(connected));
}

void Connector::Fail(const absl::Status& why) {
  if (attempt_ != nullptr) loop_.Remove(attempt_->fd.get());
  attempt_.reset();
  if (!MayPass(why)) return Finish(Annotate(why, options_.what));
  const TimePoint now = std::chrono::steady_clock::now();
  if (now >= options_.deadline) {
    return Finish(
        absl::DeadlineExceededError(absl::StrCat(options_.what, " was not reached in time: ", why.message())));
  }
  if (on_retry_ != nullptr) on_retry_(why);
  SetTimer(std::min(now + pause_, options_.deadline), &Connector::Begin);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Connector::Finish(absl::StatusOr<Connected> result) {
  loop_.CancelTimer(timer_);
  const OnDone on_done = std::move(on_done_);  // outlives this object, which the call may destroy
  on_done(std::move(result));
}

}  // namespace gyre
