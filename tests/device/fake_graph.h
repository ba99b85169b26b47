// A graph of the fake GPU: what was queued while its stream was captured, in order, each as what queues it again. None
// of it was done when it was captured, and each launch does it with the addresses that it was captured with. Whoever
// launches one that packs by a table that is gone fails the test; whoever waits for a stream while it is captured
// spoils the graph, as CUDA has it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_graph.h"

namespace gyre::device {

class FakeGpu;

// A pack table of the fake GPU: gone once what was queued before its end has been done.
struct FakeTable final : Gpu::Table {
  FakeTable(FakeGpu& gpu, PackTable table, Gpu::Stream used_on)
      : gpu(gpu), table(std::make_shared<PackTable>(std::move(table))), used_on(used_on) {}
  ~FakeTable() override;
  const PackTable& host() const override { return *table; }

  FakeGpu& gpu;
  std::shared_ptr<PackTable> table;
  const Gpu::Stream used_on;
};

class FakeGraph final : public GpuGraph {
 public:
  // Queues a piece of work on the stream that it is given.
  using Node = std::function<absl::Status(Gpu::Stream stream)>;

  FakeGraph(FakeGpu& gpu, Gpu::Stream stream) : gpu_(gpu), stream_(stream) {}
  ~FakeGraph() override;

  absl::Status End() override;
  absl::Status Launch(Gpu::Stream stream) override;
  absl::Status Update(const Gpu::Table* table) override;
  void Discard() override;

  // While it is captured.
  absl::Status Add(Node node);
  absl::Status AddPack(const Gpu::Table& table, void* buffer, double scale, bool unpacks);
  void Spoil(const std::string& why);

 private:
  absl::Status LaunchPack(size_t number, void* buffer, double scale, bool unpacks, Gpu::Stream stream);
  void DiscardLocked();

  FakeGpu& gpu_;
  std::mutex mutex_;    // guards all that follows; held while nodes queue
  Gpu::Stream stream_;  // null: the capture has ended
  bool launchable_ = false;
  std::string spoilt_;  // why
  std::vector<Node> nodes_;
  std::vector<std::weak_ptr<PackTable>> tables_;  // of those that pack
  bool packs_ = true;
  std::shared_ptr<void> last_;  // the gate that its latest launch opens at its end
};

}  // namespace gyre::device
