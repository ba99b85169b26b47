// From a call to the operation that carries it out in shared memory.
#pragma once

#include <type_traits>
#include <utility>

#include "collectives/call.h"
#include "collectives/shm/adasum.h"
#include "collectives/shm/allgather.h"
#include "collectives/shm/allreduce.h"
#include "collectives/shm/alltoall.h"
#include "collectives/shm/broadcast.h"
#include "collectives/shm/group.h"
#include "collectives/shm/operation.h"
#include "collectives/shm/reduce.h"
#include "collectives/shm/reduce_scatter.h"

namespace gyre::internal {

// Where the call's ranks meet. REQUIRES: a message's peer is another rank of the group.
inline Channel& ChannelOf(Group& group, const Call& call) {
  if (call.kind != CallKind::kMessage) return group.collective();
  return call.send ? group.outgoing(call.peer) : group.incoming(call.peer);
}

// Returns make(std::type_identity<T>(), arguments...) for the operation T that the call asks for, `arguments` being
// those of T's constructor: so blocking calls build it on the stack, asynchronous ones on the heap.
// REQUIRES: Validate(call, group.rank(), group.size()) is OK, call.timeout is set.
template <typename Make>
auto MakeOperation(Group& group, const Call& call, Make&& make) {
  const Signature signature = SignatureOf(call);
  switch (call.kind) {
    case CallKind::kAllReduce:
      if (call.op == ReduceOp::kAdasum) return make(std::type_identity<AdasumAllReduce>(), group, call, signature);
      return make(std::type_identity<AllReduce>(), group, call, signature);
    case CallKind::kReduceScatter: return make(std::type_identity<ReduceScatter>(), group, call, signature);
    case CallKind::kAllGather: return make(std::type_identity<AllGather>(), group, call, signature);
    case CallKind::kReduce: return make(std::type_identity<ReduceToRoot>(), group, call, signature);
    case CallKind::kAllToAll: return make(std::type_identity<AllToAll>(), group, call, signature);
    case CallKind::kBroadcast:
    case CallKind::kBarrier:
    case CallKind::kMessage:
    case CallKind::kRefused: break;
  }
  // A message is the broadcast of two, a barrier the broadcast of nothing.
  return make(std::type_identity<Broadcast>(), group, ChannelOf(group, call), signature, *call.timeout, call.root,
              call.in, call.out);
}

}  // namespace gyre::internal
