// The smallest program: every rank contributes a number, and all get the sum. Start it as `gyrerun -np 4
// hello_allreduce`, or alone.
#include <gyre/gyre.h>
#include <gyre/status_macros.h>

#include <array>
#include <cstdio>

absl::Status Hello() {
  ASSIGN_OR_RETURN(auto runtime, gyre::Runtime::Create());  // finds its launcher; alone, it is one rank
  gyre::Communicator& world = runtime->world();
  std::array<float, 1> value = {static_cast<float>(world.rank() + 1)};
  RETURN_IF_ERROR(world.AllReduce(value));
  std::printf("rank %d of %d: the sum of 1 to %d is %g\n", world.rank(), world.size(), world.size(), value[0]);
  return absl::OkStatus();
}

int main() {
  const absl::Status status = Hello();
  if (!status.ok()) std::fprintf(stderr, "hello_allreduce: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
