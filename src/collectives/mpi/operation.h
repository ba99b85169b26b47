// One collective by MPI, piece by piece through staged memory. Deadlines, losses and broken communicators are dealt
// with as by Gyre's own operations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/adasum.h"
#include "collectives/mpi/factory.h"
#include "collectives/mpi/module.h"
#include "collectives/mpi/staging.h"

namespace gyre::internal::mpi {

class Operation final : public Pollable {
 public:
  Operation(std::shared_ptr<Backend> backend, Members members, const Call& call, absl::Status refused);

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override { deadline_ = DeadlineAfter(now, *call_.timeout); }
  TimePoint deadline() const override { return deadline_; }

 private:
  enum class State { kBefore, kUnderWay, kEnded };

  bool Begin();
  bool NextPiece();
  Transport::Started StartPiece();
  Transport::Started StartSegments();
  void TakePiece();
  absl::Status CheckSize() const;
  int64_t PieceElements() const;
  int64_t PieceCount() const;
  bool FindBroken();
  bool FindLost();
  bool Fail(absl::Status status, const shm::LastWords::Content& words);
  bool FailAlone(const absl::Status& why);
  bool End(absl::Status status);
  std::string Context() const;
  int64_t element() const { return DTypeSize(call_.in.dtype); }

  const std::shared_ptr<Backend> backend_;
  const Members members_;
  const std::vector<int64_t> counts_, receive_counts_;  // what the call's spans refer to
  const Call call_;
  const absl::Status refused_;
  State state_ = State::kBefore;
  TimePoint deadline_{};
  int64_t done_ = 0;  // elements
  std::shared_ptr<Staging> staging_;
  std::optional<AdasumWork> adasum_;
  std::unique_ptr<Request> request_;
};

}  // namespace gyre::internal::mpi
