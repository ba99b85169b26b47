#include "bootstrap/secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

class SecretTest : public testing::Test {
 protected:
  std::string File(const std::string& content, mode_t mode) {
    const std::string path = directory_.path() / "file";
    std::filesystem::remove(path);
    std::ofstream(path) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  Environment Home() { return FixedEnvironment({{"XDG_RUNTIME_DIR", directory_.path()}}); }

  const support::TemporaryDirectory directory_;
};

const std::string kGood(32, 's');

TEST_F(SecretTest, MadeOnesDiffer) {
  const auto a = MakeSecret(), b = MakeSecret();
  ASSERT_THAT(a, IsOk());
  EXPECT_EQ(a->size(), 32u);
  EXPECT_NE(*a, *b);
}

TEST_F(SecretTest, PassesByDescriptor) {
  const std::string secret = *MakeSecret();
  const auto fd = MakeSecretFd(secret);
  ASSERT_THAT(fd, IsOk());
  EXPECT_EQ(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);  // to be inherited
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*ReadSecretFd(fd->get()), secret);
  EXPECT_EQ(write(fd->get(), "x", 1), -1);  // sealed
  EXPECT_EQ(ftruncate(fd->get(), 0), -1);
  EXPECT_THAT(MakeSecretFd("short"), MatchesStatus(StatusCode::kInvalidArgument, "16"));
}

TEST_F(SecretTest, TheDescriptorIsHandedOnUntilItIsRead) {
  const auto fd = MakeSecretFd(*MakeSecret());
  ASSERT_THAT(fd, IsOk());
  EXPECT_EQ(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  for (int i = 0; i < 2; ++i) {  // several runtimes may live in one process
    EXPECT_THAT(ReadSecretFd(fd->get()), IsOk());
    EXPECT_EQ(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST_F(SecretTest, RefusesDescriptorsThatHoldNone) {
  EXPECT_THAT(ReadSecretFd(987), MatchesStatus(StatusCode::kFailedPrecondition, "GYRE_SECRET_FD"));
  EXPECT_THAT(ReadSecretFd(987), MatchesStatus(StatusCode::kFailedPrecondition, "unset GYRE_RANK"));
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const UniqueFd a(pipe_fds[0]), b(pipe_fds[1]);
  EXPECT_THAT(ReadSecretFd(a.get()), MatchesStatus(StatusCode::kFailedPrecondition, "GYRE_SECRET_FD"));
  const UniqueFd file(open(File(kGood, 0600).c_str(), O_RDONLY));
  EXPECT_THAT(ReadSecretFd(file.get()), MatchesStatus(StatusCode::kFailedPrecondition, "is not the secret"));
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(write(memory.get(), "short", 5), 5);
  EXPECT_THAT(ReadSecretFd(memory.get()), MatchesStatus(StatusCode::kFailedPrecondition, "is not the secret"));
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  EXPECT_THAT(ReadSecretFd(memory.get()), MatchesStatus(StatusCode::kFailedPrecondition, "5 bytes"));
}

TEST_F(SecretTest, ReadsPrivateFiles) {
  EXPECT_EQ(*ReadSecretFile(File(kGood, 0600)), kGood);
  EXPECT_EQ(*ReadSecretFile(File(kGood + "\r\n\n", 0400)), kGood);
  EXPECT_EQ(*ReadSecretFile(File(std::string(4096, 'x'), 0600)), std::string(4096, 'x'));
}

TEST_F(SecretTest, RefusesFilesThatAreNotPrivateAndSaysWhatToDo) {
  for (const mode_t mode : {0640, 0604, 0660, 0666, 0644, 0610}) {
    const std::string path = File(kGood, mode);
    EXPECT_THAT(ReadSecretFile(path), MatchesStatus(StatusCode::kFailedPrecondition, absl::StrCat("chmod 600 ", path)));
  }
  EXPECT_THAT(ReadSecretFile(File("short", 0600)), MatchesStatus(StatusCode::kFailedPrecondition, "16 to 4096"));
  EXPECT_THAT(ReadSecretFile(File(std::string(4097, 'x'), 0600)),
              MatchesStatus(StatusCode::kFailedPrecondition, "4097"));
  EXPECT_THAT(ReadSecretFile(directory_.path()), MatchesStatus(StatusCode::kFailedPrecondition, "not a regular file"));
  EXPECT_THAT(ReadSecretFile(directory_.path() / "none"), MatchesStatus(StatusCode::kNotFound, "does not exist"));
  const std::string pipe = directory_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadSecretFile(pipe), MatchesStatus(StatusCode::kFailedPrecondition, "not a regular file"));  // no hang
}

TEST_F(SecretTest, RefusesOthersFiles) {
  const std::string path = File(kGood, 0600);
  if (chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root can give files away";
  EXPECT_THAT(ReadSecretFile(path), MatchesStatus(StatusCode::kFailedPrecondition, "belongs to user 12345"));
}

TEST_F(SecretTest, TheUsersOwnIsMadeOnceByWhoeverComesFirst) {
  constexpr int kThreads = 8;
  std::vector<std::string> secrets(kThreads);
  std::vector<std::thread> threads;
  for (std::string& secret : secrets) {
    threads.emplace_back([&] {
      const auto made = UserSecret(Home());
      EXPECT_THAT(made, IsOk());
      if (made.ok()) secret = *made;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(secrets.begin(), secrets.end()).size(), 1u);
  EXPECT_GE(secrets[0].size(), 32u);
  EXPECT_EQ(*UserSecret(Home()), secrets[0]);
  // Nothing is left beside it, and nobody else can read it.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path() / "gyre")) {
    ++files;
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms(0600));
  }
  EXPECT_EQ(files, 1);
  EXPECT_EQ(std::filesystem::status(directory_.path() / "gyre").permissions(), std::filesystem::perms(0700));
}

TEST_F(SecretTest, TheUsersDirectoryMustBePrivate) {
  const std::filesystem::path gyre = directory_.path() / "gyre";
  std::filesystem::create_directory(gyre);
  ASSERT_EQ(chmod(gyre.c_str(), 0755), 0);
  EXPECT_THAT(UserDirectory(Home()), MatchesStatus(StatusCode::kFailedPrecondition, "chmod 700"));
  std::filesystem::remove(gyre);
  std::filesystem::create_directory(directory_.path() / "elsewhere");
  ASSERT_EQ(chmod((directory_.path() / "elsewhere").c_str(), 0700), 0);
  std::filesystem::create_directory_symlink(directory_.path() / "elsewhere", gyre);
  EXPECT_THAT(UserDirectory(Home()), MatchesStatus(StatusCode::kFailedPrecondition, "XDG_RUNTIME_DIR"));
  std::filesystem::remove(gyre);
  if (geteuid() != 0) return;  // only root can give a directory away
  std::filesystem::create_directory(gyre);
  ASSERT_EQ(chown(gyre.c_str(), 65534, 65534), 0);
  EXPECT_THAT(UserDirectory(Home()), MatchesStatus(StatusCode::kFailedPrecondition, "XDG_RUNTIME_DIR"));
}

TEST_F(SecretTest, AnUnusableRuntimeDirectoryIsPassedOver) {
  const auto fallback = UserDirectory(FixedEnvironment({{"XDG_RUNTIME_DIR", "/no/such/directory"}}));
  ASSERT_THAT(fallback, IsOk());
  EXPECT_EQ(*fallback, absl::StrCat("/tmp/gyre-", geteuid()));
}

}  // namespace
}  // namespace gyre
