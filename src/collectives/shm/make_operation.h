// From a call to the operation that carries it out in shared memory.
#pragma once

#include <memory>

#include "collectives/call.h"
#include "collectives/shm/group.h"
#include "collectives/shm/operation.h"

namespace gyre::internal {

// REQUIRES: Validate(call, group.rank(), group.size()) is OK.
std::unique_ptr<Operation> MakeOperation(Group& group, const Call& call);

// What all ranks must agree on of the call.
shm::Signature SignatureOf(const Call& call);

}  // namespace gyre::internal
