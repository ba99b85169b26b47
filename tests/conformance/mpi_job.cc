// A rank of mpirun's for mpi_test.cc: says how calls end by GYRE_BACKEND=mpi.
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "device/fake_gpu.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "runtime/gpus.h"

namespace gyre {
namespace {

void Say(const Communicator& world, const char* what, const absl::Status& status) {
  std::printf("rank %d %s: %s\n", world.rank(), what, status.ToString().c_str());
  std::fflush(stdout);
}

// Rank 0 is alone in an allreduce.
void Deadline(Communicator& world) {
  std::vector<float> data(1000, 1);
  std::array<int, 1> word{};
  if (world.rank() == 0) {
    Say(world, "alone", world.AllReduce(data, {.timeout = std::chrono::milliseconds(200)}));
    Say(world, "again", world.AllReduce(data));
    for (int rank = 1; rank < world.size(); ++rank) (void)world.Send(word, rank);
  } else {
    (void)world.Receive(word, 0);
    Say(world, "late", world.AllReduce(data));
  }
}

// The last rank's output is too short.
void Refused(Communicator& world) {
  std::vector<float> in(10), out(world.rank() + 1 == world.size() ? 9 : 10);
  Say(world, "refused", world.AllReduce(in, out));
}

// A communicator of its own for the odd ranks, and for the even ones.
void Split(Communicator& world) {
  std::vector<int> half;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) half.push_back(rank);
  const auto part = world.Split(half);
  if (!part.ok()) return Say(world, "split", part.status());
  std::array<int, 1> value = {world.rank()};
  const absl::Status status = (*part)->AllReduce(value);
  std::printf("rank %d of %d split: %d\n", world.rank(), world.size(), status.ok() ? value[0] : -1);
}

// Tensors on a GPU, begun between two on the host, which are MPI's.
absl::Status OnGpu(Communicator& world, Runtime& runtime) {
  const auto gpu = std::make_shared<device::FakeGpu>(static_cast<unsigned>(world.rank()));
  internal::Gpus::Of(world).OpenBy([gpu](int /*ordinal*/) { return gpu; });
  ASSIGN_OR_RETURN(void* const stream, gpu->CreateStream());
  constexpr int64_t kCount = 3000;
  ASSIGN_OR_RETURN(const Buffer buffer, runtime.Allocate(kCount * 4, {.gpu = 0, .stream = stream}));
  const TensorView tensor(buffer.data(), kCount, DType::kF32, buffer.device());
  std::vector<float> value(kCount, static_cast<float>(world.rank() + 1));
  std::array<int, 1> before{1}, after{10};
  RETURN_IF_ERROR(gpu->Copy(tensor.data, value.data(), tensor.bytes(), stream));
  RETURN_IF_ERROR(world.AllReduce(before));
  RETURN_IF_ERROR(world.Broadcast(tensor, 1));
  Work sum = world.AllReduceAsync(tensor);
  RETURN_IF_ERROR(world.AllReduce(after));
  RETURN_IF_ERROR(sum.Wait());
  RETURN_IF_ERROR(gpu->Copy(value.data(), tensor.data, tensor.bytes(), stream));
  RETURN_IF_ERROR(gpu->Synchronize(stream));
  gpu->DestroyStream(stream);
  std::printf("rank %d on a GPU: %d %g %g %d\n", world.rank(), before[0], value.front(), value.back(), after[0]);
  return absl::OkStatus();
}

int Main(const std::string& what) {
  const auto runtime = Runtime::Create();
  if (!runtime.ok()) {
    std::printf("no runtime: %s\n", runtime.status().ToString().c_str());
    return 1;
  }
  Communicator& world = (*runtime)->world();
  if (what == "deadline") Deadline(world);
  if (what == "refused") Refused(world);
  if (what == "split") Split(world);
  if (what == "gpu") Say(world, "gpu", OnGpu(world, **runtime));
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return argc == 2 ? gyre::Main(argv[1]) : 64;
}
