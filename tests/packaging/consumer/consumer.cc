// Sums a vector over the ranks of the job and checks the result; alone, over itself.
#include <gyre/gyre.h>

#include <iostream>
#include <vector>

int main() {
  auto runtime = gyre::Runtime::Create();
  if (!runtime.ok()) {
    std::cerr << "consumer: " << runtime.status() << "\n";
    return 1;
  }
  gyre::Communicator& world = (*runtime)->world();
  std::vector<float> values(1000, static_cast<float>(world.rank() + 1));
  const absl::Status status = world.AllReduce(values);
  if (!status.ok()) {
    std::cerr << "consumer: rank " << world.rank() << ": " << status << "\n";
    return 1;
  }
  const auto expected = static_cast<float>(world.size() * (world.size() + 1) / 2);
  for (float value : values) {
    if (value != expected) {
      std::cerr << "consumer: rank " << world.rank() << " has " << value << ", not " << expected << "\n";
      return 1;
    }
  }
  std::cout << "consumer: rank " << world.rank() << " of " << world.size() << ": sums are right\n";
  return 0;
}
