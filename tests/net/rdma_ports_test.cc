#include "net/rdma_ports.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temporary.h"

namespace gyre {
namespace {

// A machine's /sys and /dev, as far as they are looked at.
class RdmaPorts : public testing::Test {
 protected:
  void Write(const std::filesystem::path& file, const std::string& line) {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << line << "\n";
  }

  // An adapter that programs may open as `device`.
  void Add(const std::string& adapter, const std::string& device, const std::string& type = "1: CA") {
    const std::filesystem::path folder = "sys/class/infiniband/" + adapter;
    Write(folder / "node_type", type);
    Write(folder / "ports/1/state", "4: ACTIVE");
    Write("sys/class/infiniband_verbs/" + device + "/ibdev", adapter);
    Write("dev/infiniband/" + device, "");
  }

  std::vector<std::string> Usable() const { return UsableRdmaPorts(root_.path()); }

  support::TemporaryDirectory root_;
};

TEST_F(RdmaPorts, NoneWithoutAdapters) {
  EXPECT_THAT(Usable(), testing::IsEmpty());
  std::filesystem::create_directories(root_.path() / "sys/class/infiniband");
  std::filesystem::create_directories(root_.path() / "sys/class/infiniband_verbs");
  EXPECT_THAT(Usable(), testing::IsEmpty());
  EXPECT_THAT(UsableRdmaPorts(root_.path() / "nothing"), testing::IsEmpty());
}

TEST_F(RdmaPorts, ThoseThatAreActive) {
  Add("mlx5_1", "uverbs0");
  Add("mlx5_0", "uverbs1");
  Write("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN");
  Write("sys/class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE");
  EXPECT_THAT(Usable(), testing::ElementsAre("mlx5_0/1", "mlx5_1/1", "mlx5_1/2"));
  Write("sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT");
  Write("sys/class/infiniband/mlx5_1/ports/1/state", "");
  EXPECT_THAT(Usable(), testing::ElementsAre("mlx5_1/2"));
}

TEST_F(RdmaPorts, NotOfAdaptersThatUcxDoesNotDrive) {
  Add("efa_0", "uverbs0", "7: <unknown>");
  Add("iwarp0", "uverbs1", "4: RNIC");
  EXPECT_THAT(Usable(), testing::IsEmpty());
}

TEST_F(RdmaPorts, NotOfAdaptersWhoseDeviceIsNotHere) {
  Add("mlx5_0", "uverbs0");
  Add("mlx5_1", "uverbs1");
  std::filesystem::remove(root_.path() / "dev/infiniband/uverbs0");
  EXPECT_THAT(Usable(), testing::ElementsAre("mlx5_1/1"));
  std::filesystem::remove_all(root_.path() / "sys/class/infiniband_verbs");
  EXPECT_THAT(Usable(), testing::IsEmpty());
}

}  // namespace
}  // namespace gyre
