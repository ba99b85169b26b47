// What the algorithms of this folder are written with.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

inline Step SendTo(int peer, int block) {
  return {Step::Kind::kSend, peer, block};
}
inline Step ReceiveFrom(int peer, int block) {
  return {Step::Kind::kReceive, peer, block};
}
inline Step ReduceFrom(int peer, int block) {
  return {Step::Kind::kReceiveReduce, peer, block};
}

// `value` modulo `size`, in [0, size) for a negative value too: ranks and blocks on a ring.
inline int Wrapped(int value, int size) {
  const int rest = value % size;
  return rest < 0 ? rest + size : rest;
}

}  // namespace gyre::internal
