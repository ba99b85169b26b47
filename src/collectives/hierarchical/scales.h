// How the scales of a reduction over hosts are dealt out to its parts: within the hosts, between them, and at the end.
// Pure.
#pragma once

#include "collectives/call.h"
#include "device/reduce.h"

namespace gyre::internal {

// Each host combines its inputs, times the call's prescale, by plain.op; its result is multiplied by `early`. Between
// hosts `plain` combines these. `rest` is what is left to do to the one over all hosts.
struct HostScales {
  device::Reduction plain;  // the call's reduction without its scales
  double early = 1.0;       // what of the scale comes early, where the sum over all hosts could overflow without it
  device::Reduction rest;

  bool finishes() const { return rest.scale_result != 1.0 || rest.divisor != 1; }
};

// Of a reducing call over `size` ranks.
HostScales HostScalesOf(const Call& call, int size);

}  // namespace gyre::internal
