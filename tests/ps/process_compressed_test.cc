// Training through servers with compression, and without the disks of those that are lost: to the bit.
#include <gtest/gtest.h>

#include <memory>

#include "process_fixture.h"

namespace gyre::ps {
namespace {

TEST_F(ProcessTest, CompressedTrainingIsThatOfWhatWasDecodedToTheBit) {
  using compression::PayloadKind;
  const std::pair<Compression, PayloadKind> kinds[] = {{Int4{}, PayloadKind::kF16},
                                                       {Dgc{.sparsity = 0.9}, PayloadKind::kInt8}};
  for (const auto& [codec, values] : kinds) {
    compression_ = {.compression = codec, .workers = workers_, .dense = {false, false, false, true}};
    values_as_ = values;
    for (const char* const host : {"", "another host"}) {
      host_ = host;
      servers_.clear();
      folder_ = NewFolder();
      StartServers(2);
      const auto strike = [&](int worker, int step) {
        if (worker != 1 || (step != 2 && step != 4)) return;
        Serving& server = *servers_[step == 2 ? 0 : 1];
        server.Kill();
        server.Start();
      };
      EXPECT_EQ(Train(6, strike), Reference(6)) << CompressionName(codec) << " " << host;
    }
  }
}

// Workers keep nothing that was acknowledged, and the snapshots are gone: the next server has all of it.
TEST_F(ProcessTest, AServerThatIsLostWithItsDiskCostsNoStepWithReplicas) {
  replicas_ = 1;
  retain_ = 0;
  for (const int servers : {2, 3}) {
    if (servers == 3) {  // what is forwarded was a payload
      compression_ = {.compression = Dgc{.sparsity = 0.9}, .workers = workers_, .dense = {}};
      values_as_ = compression::PayloadKind::kF16;
    }
    servers_.clear();
    folder_ = NewFolder();
    StartServers(servers);
    const auto strike = [&](int worker, int step) {
      if (worker != 1 || step % 3 != 2) return;
      Serving& server = *servers_[static_cast<size_t>(step / 3 % servers)];
      server.Kill();
      server.LoseDisk();
      server.Start(Endpoints());
    };
    EXPECT_EQ(Train(14, strike), Reference(14)) << servers;
  }
}

}  // namespace
}  // namespace gyre::ps
